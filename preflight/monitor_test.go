package preflight

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-run/muster/topology"
	"github.com/muster-run/muster/topology/fixture"
)

// A machine's files change under a job, one thing at a time: each look says what has changed since the one before, once.
func TestMonitor(t *testing.T) {
	dir := fixture.Tree(t, described(t, "dgx-h100"))
	write := func(name, text string) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE, 0o644)
		if strings.HasSuffix(name, "kmsg") {
			f, err = os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
		} else if err == nil {
			err = f.Truncate(0)
		}
		if err == nil {
			_, err = f.WriteString(text + "\n")
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	write("dev/kmsg", "6,1,100,-;NVRM: Xid (PCI:0000:1b:00): 79, before the job")
	m, err := topology.Probe(topology.Root(dir))
	if err != nil {
		t.Fatal(err)
	}
	w := NewMonitor(topology.Root(dir), m)
	defer w.Close()
	answers := map[string]string{}
	smi := func(args ...string) (string, error) {
		for name, text := range answers {
			if strings.Contains(args[0], name) {
				return text, nil
			}
		}
		return "", errors.New("it does not say")
	}
	look := func() (text string) {
		for _, all := range [][]Finding{w.Ports(), w.Counters(), w.Lanes(), w.Kernel(), w.Memory(smi)} {
			for _, f := range all {
				text += f.Result.String() + " " + f.Check + ": " + f.Found + "\n"
			}
		}
		return text
	}
	if text := look(); text != "" {
		t.Fatalf("nothing has changed, and it says %s", text)
	}
	const port = "sys/class/infiniband/mlx5_3/ports/1/"
	at := "sys/bus/pci/devices/" + m.GPUs[0].PCI.Address.String() + "/current_link_width"
	for _, c := range []struct{ name, text, want string }{
		{port + "state", "1: DOWN", "fail hca: mlx5_3: DOWN, LinkUp\n"},
		{port + "phys_state", "2: Polling", "fail hca: mlx5_3: DOWN, Polling: no cable, or nobody at its other end\n"},
		{port + "counters/link_downed", "1", "warn hca-errors: mlx5_3: its link went down: 1 more during the job\n"},
		{port + "phys_state", "5: LinkUp", "fail hca: mlx5_3: DOWN, LinkUp\n"},
		{port + "state", "4: ACTIVE", "pass hca: mlx5_3 is active again\n"},
		{port + "rate", "200 Gb/sec (2X NDR)", "warn hca: mlx5_3: 200 Gb/s, 400 before\n"},
		{port + "rate", "400 Gb/sec (4X NDR)", "pass hca: mlx5_3: 400 Gb/s again\n"},
		{port + "state", "2: INIT", "fail hca: mlx5_3: INIT: the link is up, but no subnet manager has set the port up\n"},
		{port + "rate", "200 Gb/sec (2X NDR)", ""},
		{port + "state", "4: ACTIVE", "pass hca: mlx5_3 is active again\nwarn hca: mlx5_3: 200 Gb/s, 400 before\n"},
		{port + "rate", "400 Gb/sec (4X NDR)", "pass hca: mlx5_3: 400 Gb/s again\n"},
		{port + "counters/link_error_recovery", "1", "warn hca-errors: mlx5_3: its link had to recover: 1 more during the job\n"},
		{port + "counters/link_error_recovery", "2", "warn hca-errors: mlx5_3: its link had to recover: 2 more during the job\n"},
		{port + "counters/link_error_recovery", "3", ""},
		{port + "counters/link_error_recovery", "4", "warn hca-errors: mlx5_3: its link had to recover: 4 more during the job\n"},
		{port + "counters/symbol_error", "10", "warn hca-errors: mlx5_3: symbol errors: 10 more during the job\n"},
		{port + "counters/symbol_error", "15", ""},
		{port + "counters/symbol_error", "40", "warn hca-errors: mlx5_3: symbol errors: 40 more during the job\n"},
		{port + "counters/symbol_error", "N/A (no PMA)", ""},
		{at, "8", "fail gpu-link: GPU0 has 8 lanes of the 16 that it had\n"},
		{at, "16", "pass gpu-link: GPU0 has 16 PCIe lanes again\n"},
		{"dev/kmsg", "6,2,200,-;NVRM: Xid (PCI:0000:1b:00): 31, of a program\n6,3,300,-;NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus", "fail xid: GPU0 (0000:1b:00): Xid 79\n"},
		{"dev/kmsg", "6,4,400,-;eth0: link is down", ""},
	} {
		write(c.name, c.text)
		if got := look(); got != c.want {
			t.Errorf("%s is %q: got %q, want %q", c.name, c.text, got, c.want)
		}
		if again := look(); again != "" {
			t.Errorf("%s is %q: it is said again: %q", c.name, c.text, again)
		}
	}
	id := m.GPUs[0].PCI.Address.String()
	for _, c := range []struct{ query, answer, want string }{
		{"ecc.errors", id + ", Enabled, 0", ""},
		{"remapped_rows", id + ", No, No", ""},
		{"ecc.errors", id + ", Enabled, 2", "warn gpu-memory: GPU0: 2 uncorrected errors of memory since its driver was loaded\n"},
		{"remapped_rows", id + ", Yes, No", "fail gpu-memory: GPU0 is to be reset, to remap a row of its memory\n"},
		{"remapped_rows", id + ", No, Yes", "fail gpu-memory: GPU0 could not remap a row of its memory\n"},
	} {
		answers[c.query] = c.answer + "\n"
		if got := look(); got != c.want {
			t.Errorf("%s is %q: got %q, want %q", c.query, c.answer, got, c.want)
		}
		if again := look(); again != "" {
			t.Errorf("%s is %q: it is said again: %q", c.query, c.answer, again)
		}
	}
}

// The looks that are made most often, on a machine of eight GPUs.
func BenchmarkMonitor(b *testing.B) {
	dir := fixture.Tree(b, described(b, "dgx-h100"))
	m, err := topology.Probe(topology.Root(dir))
	if err != nil {
		b.Fatal(err)
	}
	w := NewMonitor(topology.Root(dir), m)
	defer w.Close()
	for _, look := range []struct {
		name string
		does func() []Finding
	}{{"ports", w.Ports}, {"counters", w.Counters}, {"lanes", w.Lanes}, {"kernel", w.Kernel}} {
		b.Run(look.name, func(b *testing.B) {
			for b.Loop() {
				look.does()
			}
		})
	}
}
