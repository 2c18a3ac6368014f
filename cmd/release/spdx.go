package main

import (
	"crypto/sha256"
	"fmt"
	"regexp"
)

// A spdx is a document of SPDX 2.3, as JSON (https://spdx.github.io/spdx-spec/v2.3/).
type spdx struct {
	SPDXID            string         `json:"SPDXID"`
	Version           string         `json:"spdxVersion"`
	DataLicence       string         `json:"dataLicense"`
	Name              string         `json:"name"`
	Namespace         string         `json:"documentNamespace"`
	CreationInfo      creation       `json:"creationInfo"`
	Packages          []pkg          `json:"packages"`
	DocumentDescribes []string       `json:"documentDescribes"`
	Relationships     []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type pkg struct {
	SPDXID           string      `json:"SPDXID"`
	Name             string      `json:"name"`
	Version          string      `json:"versionInfo"`
	FileName         string      `json:"packageFileName,omitempty"`
	DownloadLocation string      `json:"downloadLocation"`
	FilesAnalyzed    bool        `json:"filesAnalyzed"`
	Checksums        []checksum  `json:"checksums,omitempty"`
	LicenceConcluded string      `json:"licenseConcluded"`
	LicenceDeclared  string      `json:"licenseDeclared"`
	Copyright        string      `json:"copyrightText"`
	Refs             []reference `json:"externalRefs,omitempty"`
	Purpose          string      `json:"primaryPackagePurpose"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

const (
	document0  = "SPDXRef-DOCUMENT"
	nothing    = "NOASSERTION"
	ownLicence = "Apache-2.0"
)

// bill is what is in the programs. The same commit makes the same bill.
func bill(built []program, parts []part, files map[string][]byte) spdx {
	p := built[0]
	d := spdx{
		SPDXID: document0, Version: "SPDX-2.3", DataLicence: "CC0-1.0", Name: "muster-" + p.version,
		Namespace:    "https://github.com/muster-run/muster/spdx/" + p.revision,
		CreationInfo: creation{p.time, []string{"Tool: muster-release"}},
	}
	for _, m := range parts {
		one := pkg{
			SPDXID: id(m.name), Name: m.name, Version: m.version, DownloadLocation: nothing, LicenceConcluded: m.licence, LicenceDeclared: m.licence, Copyright: nothing,
			Refs: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.name + "@" + m.version}}, Purpose: "LIBRARY",
		}
		if m.name != "stdlib" {
			one.DownloadLocation = "https://proxy.golang.org/" + escaped(m.name) + "/@v/" + escaped(m.version) + ".zip"
		}
		d.Packages = append(d.Packages, one)
	}
	for _, p := range built {
		name := "muster-linux-" + p.arch
		d.Packages = append(d.Packages, pkg{
			SPDXID: id(name), Name: name, Version: p.version, FileName: name, DownloadLocation: nothing, LicenceConcluded: ownLicence, LicenceDeclared: ownLicence, Copyright: nothing,
			Checksums: []checksum{{"SHA256", fmt.Sprintf("%x", sha256.Sum256(files[name]))}}, Purpose: "APPLICATION",
		})
		d.DocumentDescribes = append(d.DocumentDescribes, id(name))
		d.Relationships = append(d.Relationships, relationship{document0, "DESCRIBES", id(name)})
		for _, m := range parts {
			d.Relationships = append(d.Relationships, relationship{id(name), "CONTAINS", id(m.name)})
		}
	}
	return d
}

// id is the name of a package within the document.
func id(name string) string {
	return "SPDXRef-" + regexp.MustCompile(`[^a-zA-Z0-9.-]`).ReplaceAllString(name, "-")
}

// escaped is a name as the module proxy has it: A is !a.
func escaped(name string) string {
	return regexp.MustCompile(`[A-Z]`).ReplaceAllStringFunc(name, func(a string) string { return "!" + string(a[0]+'a'-'A') })
}
