package view

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-run/muster/test/golden"
	"github.com/muster-run/muster/topology"
	"github.com/muster-run/muster/topology/fixture"
)

// probed is a machine by the name of its description.
func probed(t testing.TB, name string) topology.Machine {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../testdata/machines", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return probedText(t, string(text))
}

func probedText(t testing.TB, text string) topology.Machine {
	t.Helper()
	m, err := topology.Probe(topology.Root(fixture.Tree(t, text)))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Each machine as a person, a program and a browser see it.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("../testdata/machines/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no machines", err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".txt")
		t.Run(name, func(t *testing.T) {
			m := probed(t, name)
			for end, show := range map[string]func(io.Writer, topology.Machine) error{".txt": Table, ".json": JSON, ".svg": SVG} {
				var b strings.Builder
				if err := show(&b, m); err != nil {
					t.Fatal(err)
				}
				golden.File(t, filepath.Join("testdata", name+end), b.String())
				if end == ".svg" {
					wellFormed(t, b.String())
				}
			}
		})
	}
}

// wellFormed reads a drawing as a browser would.
func wellFormed(t *testing.T, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// What the tables say of what is not as it should be.
func TestTableOfTrouble(t *testing.T) {
	text, err := os.ReadFile("../testdata/machines/dgx-h100.txt")
	if err != nil {
		t.Fatal(err)
	}
	m := probedText(t, strings.NewReplacer(
		"pci 0000:1b:00.0 parent=0000:1a:00.0 class=0x030200 id=10de:2330 sub=10de:16c1 cur=32.0/16", "pci 0000:1b:00.0 parent=0000:1a:00.0 class=0x030200 id=10de:2330 sub=10de:16c1 cur=32.0/8",
	).Replace(string(text)))
	two := 2
	m.GPUs[0].Told = topology.Told{Uncorrected: &two, Fabric: "In Progress"}
	m.GPUs[0].MIG = []topology.MIG{{GPUInstance: 7, Visible: true, UUID: "MIG-1"}, {GPUInstance: 8}}
	m.GPUs[1].Visible, m.GPUs[1].Why = false, "no /dev/nvidia1 in this container"
	m.GPUs[2].Links = []topology.Peer{{Index: 3, Kind: "nvlink", Links: 18}}
	m.Hidden, m.Unknown = "it is hidden", []string{"a file: input/output error"}
	m.Limits = topology.Limits{CPUs: topology.CPUs{0, 1}, Quota: 1.5, From: "/sys/fs/cgroup/cpu.max"}
	m.Nets[0].Name = "<&>"
	var b strings.Builder
	if err := Table(&b, m); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"32 GT/s x8 of x16", "GPU0 has 2 uncorrected errors", "GPU0's NVLink fabric is In Progress", "MIG gi7 ci0", "yes MIG-1", "no: not in this container",
		"no: no /dev/nvidia1 in this container", "NV18", "NV#   so many NVLinks", "hidden     it is hidden", "not known:\n  a file: input/output error", "may use 2 of them, 0-1, for the time of 1.5 (/sys/fs/cgroup/cpu.max)",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if t.Failed() {
		t.Log(b.String())
	}
}

// Nothing at all is shown, too.
func TestEmpty(t *testing.T) {
	for _, show := range []func(io.Writer, topology.Machine) error{Table, JSON, SVG} {
		var b strings.Builder
		if err := show(&b, topology.Machine{}); err != nil || b.Len() == 0 {
			t.Error(err, b.String())
		}
	}
}

// What /sys does not show is not said to be nothing, and no vendor is named twice.
func TestMasked(t *testing.T) {
	var b strings.Builder
	summary(&b, topology.Machine{DMI: topology.DMI{Vendor: "Google", Product: "Google Compute Engine"}})
	for _, want := range []string{"(Google Compute Engine)\n", "CPUs       not known\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
