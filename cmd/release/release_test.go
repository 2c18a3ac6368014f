package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// A release for this machine, from two clones of what was committed last, whatever whoever makes it has set for himself.
func TestRelease(t *testing.T) {
	for name, value := range map[string]string{"GOAMD64": "v3", "GOARM64": "v8.2", "GOFLAGS": "-race", "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.autocrlf", "GIT_CONFIG_VALUE_0": "true"} {
		t.Setenv(name, value)
	}
	out := t.TempDir()
	said, err := release(out, []string{runtime.GOARCH}, false)
	if err != nil {
		t.Fatal(err)
	}
	binary := "muster-linux-" + runtime.GOARCH
	for _, name := range []string{binary, "LICENSE", "THIRD_PARTY_LICENSES", "muster.1", "muster.spdx.json"} {
		text, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		if line := fmt.Sprintf("%x  %s\n", sha256.Sum256(text), name); !strings.Contains(said, line) {
			t.Errorf("no line %q in\n%s", line, said)
		}
	}
	sums := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	sums.Dir = out
	if text, err := sums.CombinedOutput(); err != nil || strings.Count(string(text), ": OK\n") != 5 {
		t.Errorf("%v: %s", err, text)
	}
	head, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		t.Fatal(err)
	}
	settings, err := exec.Command("go", "version", "-m", filepath.Join(out, binary)).Output()
	if plain := map[string]string{"amd64": "GOAMD64=v1\n", "arm64": "GOARM64=v8.0\n"}[runtime.GOARCH]; err != nil || !strings.Contains(string(settings), plain) || strings.Contains(string(settings), "-race") {
		t.Errorf("it is not built with %s%v: %s", plain, err, settings)
	}
	if licence, err := os.ReadFile(filepath.Join(out, "LICENSE")); err != nil || bytes.Contains(licence, []byte("\r")) {
		t.Errorf("the clone is not as it was committed, %v", err)
	}
	version, err := exec.Command(filepath.Join(out, binary), "version").Output()
	if err != nil || !strings.Contains(string(version), string(head[:12])) {
		t.Errorf("%s: %v: it is not of %s", version, err, head)
	}
	text, err := os.ReadFile(filepath.Join(out, "muster.spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, text)
	notices, err := os.ReadFile(filepath.Join(out, "THIRD_PARTY_LICENSES"))
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"Permission is hereby granted", "TERMS AND CONDITIONS FOR USE, REPRODUCTION", "Copyright 2009 The Go Authors."} {
		if !strings.Contains(string(notices), words) {
			t.Errorf("no licence says %q", words)
		}
	}
	for _, line := range modulesOf(t, filepath.Join(out, binary)) {
		name, version, _ := strings.Cut(line, " ")
		if !strings.Contains(string(text), "pkg:golang/"+name+"@"+version) || !strings.Contains(string(notices), "\n"+name+" "+version+", ") {
			t.Errorf("%s is not in the list, or not with its licence", line)
		}
	}
	for _, carried := range []string{"go.etcd.io/etcd/client/v3", "google.golang.org/grpc"} { // by the build that is packed in it
		if !strings.Contains(string(text), "pkg:golang/"+carried+"@") {
			t.Errorf("%s is not in the list", carried)
		}
	}
}

// modulesOf are those that go itself finds in a program.
func modulesOf(t *testing.T, path string) (lines []string) {
	t.Helper()
	out, err := exec.Command("go", "version", "-m", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+)`).FindAllStringSubmatch(string(out), -1) {
		lines = append(lines, m[1]+" "+m[2])
	}
	if len(lines) == 0 {
		t.Fatalf("no modules in\n%s", out)
	}
	return lines
}

// wellFormed holds a document against what SPDX 2.3 requires: fields, their values, and names that lead somewhere.
func wellFormed(t *testing.T, text []byte) {
	t.Helper()
	var d map[string]any
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	require(t, "the document", d, "SPDXID spdxVersion creationInfo name dataLicense documentNamespace")
	creation, _ := d["creationInfo"].(map[string]any)
	require(t, "creationInfo", creation, "created creators")
	matches(t, "created", creation["created"], `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$`)
	matches(t, "creators", creation["creators"].([]any)[0], `^(Tool|Person|Organization): .+`)
	matches(t, "SPDXID", d["SPDXID"], `^SPDXRef-DOCUMENT$`)
	matches(t, "spdxVersion", d["spdxVersion"], `^SPDX-2\.3$`)
	matches(t, "dataLicense", d["dataLicense"], `^CC0-1\.0$`)
	matches(t, "documentNamespace", d["documentNamespace"], `^https://[^#]+$`)
	known := []any{"SPDXRef-DOCUMENT"}
	for _, p := range objects(t, d, "packages") {
		require(t, "a package", p, "SPDXID name downloadLocation")
		if slices.Contains(known, p["SPDXID"]) {
			t.Errorf("two packages are %v", p["SPDXID"])
		}
		known = append(known, p["SPDXID"])
		matches(t, "SPDXID", p["SPDXID"], `^SPDXRef-[a-zA-Z0-9.-]+$`)
		matches(t, "downloadLocation", p["downloadLocation"], `^(NOASSERTION|https://proxy\.golang\.org/[a-z0-9!./_-]+/@v/[a-z0-9!.+-]+\.zip)$`)
		matches(t, "licenseConcluded", p["licenseConcluded"], `^(Apache-2\.0|MIT|BSD-[23]-Clause|MPL-2\.0)( AND (Apache-2\.0|MIT|BSD-[23]-Clause|MPL-2\.0))*$`)
		matches(t, "primaryPackagePurpose", p["primaryPackagePurpose"], `^(LIBRARY|APPLICATION)$`)
		if p["filesAnalyzed"] != false {
			t.Errorf("%v wants a verification code", p["SPDXID"])
		}
		if p["checksums"] != nil {
			for _, c := range objects(t, p, "checksums") {
				require(t, "a checksum", c, "algorithm checksumValue")
				matches(t, "checksum", c["checksumValue"], `^[0-9a-f]{64}$`)
			}
		}
		if p["externalRefs"] != nil {
			for _, r := range objects(t, p, "externalRefs") {
				require(t, "a reference", r, "referenceCategory referenceLocator referenceType")
				matches(t, "purl", r["referenceLocator"], `^pkg:golang/[^@ ]+@[^@ ]+$`)
			}
		}
	}
	for _, r := range objects(t, d, "relationships") {
		require(t, "a relationship", r, "spdxElementId relatedSpdxElement relationshipType")
		matches(t, "relationshipType", r["relationshipType"], `^(DESCRIBES|CONTAINS)$`)
		if !slices.Contains(known, r["spdxElementId"]) || !slices.Contains(known, r["relatedSpdxElement"]) {
			t.Errorf("%v is of nothing in the document", r)
		}
	}
}

func require(t *testing.T, of string, object map[string]any, names string) {
	t.Helper()
	for name := range strings.FieldsSeq(names) {
		if object[name] == nil || object[name] == "" {
			t.Errorf("%s has no %s: %.200v", of, name, object)
		}
	}
}

func matches(t *testing.T, of string, value any, pattern string) {
	t.Helper()
	if text, _ := value.(string); !regexp.MustCompile(pattern).MatchString(text) {
		t.Errorf("%s is %q, and not as %s", of, text, pattern)
	}
}

func objects(t *testing.T, of map[string]any, name string) (all []map[string]any) {
	t.Helper()
	list, _ := of[name].([]any)
	for _, o := range list {
		all = append(all, o.(map[string]any))
	}
	if len(all) == 0 {
		t.Errorf("no %s", name)
	}
	return all
}

func TestLicenceOf(t *testing.T) {
	for want, text := range map[string]string{
		"Apache-2.0":         "Apache License\n   Version 2.0, January 2004",
		"MIT":                "Permission is hereby granted,\nfree of charge, to any person",
		"BSD-3-Clause":       "Redistribution and use in source and binary forms ... Neither the name of Google",
		"BSD-2-Clause":       "Redistribution and use in\nsource and binary forms",
		"Apache-2.0 AND MIT": "Permission is hereby granted, free of charge ... Licensed under the Apache License, Version 2.0",
		"":                   "All rights reserved.",
	} {
		if got := licenceOf(map[string][]byte{"LICENSE": []byte(text)}); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := licenceOf(map[string][]byte{"COPYING": []byte("GNU GENERAL PUBLIC LICENSE"), "LICENSE": []byte("Apache License Version 2.0")}); got != "" {
		t.Errorf("a copyleft came in: %q", got)
	}
}

// The texts themselves are in the file.
func TestLicences(t *testing.T) {
	text := string(licences([]part{{name: "example.com/m", version: "v1.0.0", licence: "MIT", texts: map[string][]byte{"LICENSE": []byte("whoever copies\n"), "NOTICE": []byte("says so\n")}}}))
	for _, want := range []string{"  example.com/m v1.0.0: MIT\n", "\nexample.com/m v1.0.0, LICENSE\n=", "=\n\nwhoever copies\n", "example.com/m v1.0.0, NOTICE\n=", "=\n\nsays so\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// A module without a licence ends the release.
func TestNoLicence(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "README"), []byte("Apache License Version 2.0"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := partIn(dir, "example.com/m", "v1.0.0"); err == nil || !strings.Contains(err.Error(), "example.com/m v1.0.0") {
		t.Error(err)
	}
}
