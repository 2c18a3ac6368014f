package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A part is a module that is in the program, or Go's own library, with what it says of its licence.
type part struct {
	name, version string
	texts         map[string][]byte // by the name of the file
	licence       string            // in SPDX's words
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// partsOf are those of all programs, by name.
func partsOf(clone string, built []program) (parts []part, err error) {
	var all []module
	for _, p := range built {
		all = append(all, p.modules...)
	}
	slices.SortFunc(all, func(a, b module) int { return strings.Compare(a.String(), b.String()) })
	for _, m := range slices.Compact(all) {
		cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", m.path)
		cmd.Dir = clone
		dir, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("where is %s: %w", m, err)
		}
		p, err := partIn(strings.TrimSpace(string(dir)), m.path, m.version)
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("where is Go: %w", err)
	}
	std, err := partIn(strings.TrimSpace(string(root)), "stdlib", strings.TrimPrefix(built[0].goVersion, "go"))
	return append(parts, std), err
}

// legal are the names of files that go with a program wherever it goes.
var legal = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// partIn reads what a module's directory says of its licence.
func partIn(dir, name, version string) (part, error) {
	p := part{name: name, version: version, texts: map[string][]byte{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return p, fmt.Errorf("%s: %w", name, err)
	}
	for _, e := range entries {
		if legal.MatchString(e.Name()) && e.Type().IsRegular() {
			if p.texts[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
				return p, err
			}
		}
	}
	p.licence = licenceOf(p.texts)
	if p.licence == "" {
		return p, fmt.Errorf("%s %s: no file in %s says a licence that is known here", name, version, dir)
	}
	return p, nil
}

// licenceOf recognises licences by words that no other one has.
func licenceOf(texts map[string][]byte) string {
	var all []byte
	for _, name := range sorted(texts) {
		all = append(all, texts[name]...)
	}
	text := strings.Join(strings.Fields(string(all)), " ")
	var found []string
	for _, known := range []struct{ words, licence string }{
		{"Apache License Version 2.0", "Apache-2.0"},
		{"Licensed under the Apache License, Version 2.0", "Apache-2.0"},
		{"Permission is hereby granted, free of charge", "MIT"},
		{"Neither the name", "BSD-3-Clause"},
		{"Redistribution and use in source and binary forms", "BSD-2-Clause"},
		{"Mozilla Public License", "MPL-2.0"},
		{"GNU GENERAL PUBLIC LICENSE", "GPL"}, // of which none is to come in unseen
	} {
		of3 := known.licence == "BSD-2-Clause" && slices.Contains(found, "BSD-3-Clause")
		if strings.Contains(text, known.words) && !slices.Contains(found, known.licence) && !of3 {
			found = append(found, known.licence)
		}
	}
	if slices.Contains(found, "GPL") {
		return ""
	}
	return strings.Join(found, " AND ")
}

// licences is a file with all those texts.
func licences(parts []part) []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, "muster contains software of others, under these licences:")
	for _, p := range parts {
		fmt.Fprintf(&b, "  %s %s: %s\n", p.name, p.version, p.licence)
	}
	for _, p := range parts {
		for _, name := range sorted(p.texts) {
			fmt.Fprintf(&b, "\n%s\n%s %s, %s\n%[1]s\n\n%[5]s", strings.Repeat("=", 78), p.name, p.version, name, p.texts[name])
		}
	}
	return b.Bytes()
}
