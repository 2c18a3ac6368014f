package topology

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-run/muster/topology/fixture"
)

// described is the text of a machine under testdata.
func described(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "machines", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func machineNames(t testing.TB) (names []string) {
	t.Helper()
	files, err := filepath.Glob("testdata/machines/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no machines", err)
	}
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".txt"))
	}
	return names
}

// expanded is the tree of a description.
func expanded(t testing.TB, text string) Root { return Root(fixture.Tree(t, text)) }

// machineRoot is the tree of a machine under testdata.
func machineRoot(t testing.TB, name string) Root { return expanded(t, described(t, name)) }

func probed(t testing.TB, r Root) Machine {
	t.Helper()
	m, err := Probe(r)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// What each machine's description says that one should find.
func TestMachines(t *testing.T) {
	for _, name := range machineNames(t) {
		t.Run(name, func(t *testing.T) {
			m := probed(t, machineRoot(t, name))
			parsed, err := fixture.Parse(described(t, name))
			if err != nil {
				t.Fatal(err)
			}
			gpus := 0
			for _, want := range parsed.Expect {
				if want["gpu"] != "" {
					gpus++
				}
				got := found(t, m, want)
				for key := range want {
					if got[key] != want[key] {
						t.Errorf("%s: %s=%s, want %s (%v)", name, key, got[key], want[key], want)
					}
				}
			}
			if gpus != len(m.GPUs) || gpus == 0 {
				t.Errorf("%d GPUs, want %d", len(m.GPUs), gpus)
			}
			if len(m.Unknown) > 0 {
				t.Errorf("not known: %q", m.Unknown)
			}
		})
	}
}

// found is what a machine shows under the keys of an expect line.
func found(t *testing.T, m Machine, want map[string]string) map[string]string {
	if want["gpu"] == "" {
		return foundMachine(m)
	}
	i, err := strconv.Atoi(want["gpu"])
	if err != nil || i >= len(m.GPUs) {
		t.Fatalf("no GPU %s", want["gpu"])
	}
	g, a := m.GPUs[i], m.Affinity()[i]
	got := map[string]string{
		"gpu": strconv.Itoa(a.GPU), "bdf": g.PCI.Address.String(), "numa": strconv.Itoa(g.PCI.NUMA),
		"nics": strings.Join(Names(a.Rails), ","), "rel": a.Relation.String(), "gpu_mem_node": strconv.Itoa(g.Memory),
	}
	if pairs := m.Veiled(); pairs != nil {
		got["after_topo_nic"], got["after_topo_rel"] = pairs[i].HCA, "PIX"
	}
	return got
}

func foundMachine(m Machine) map[string]string {
	efa := 0
	for _, h := range m.HCAs {
		if h.EFA() {
			efa++
		}
	}
	got := map[string]string{
		"platform": m.Platform(), "compute_hcas": strings.Join(Names(m.Compute()), ","), "nvswitches": strconv.Itoa(len(m.NVSwitches)),
		"transport": m.Transport(), "efa": strconv.Itoa(efa), "mnnvl": map[bool]string{true: "yes", false: "no"}[m.MNNVL()],
		"topo_file": map[bool]string{true: "needed", false: "not needed"}[m.Veiled() != nil],
	}
	if m.Transport() == "efa" {
		got["compute_hcas"] = "" // verbs' transports cannot use them
	}
	if i, ok := m.GIDIndex(); ok {
		got["gid_index"] = strconv.Itoa(i)
	}
	return got
}

// facts is a machine as lines, one for each fact, so that two can be compared.
func facts(m Machine) (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	add("platform %s, transport %s, compute %v", m.Platform(), m.Transport(), Names(m.Compute()))
	index, ok := m.GIDIndex()
	add("gid index %d %t", index, ok)
	add("dmi %+v", m.DMI)
	add("limits %+v, usable %v", m.Limits, m.Limits.Usable(m.Processor.Online))
	add("hidden %q, slots %d", m.Hidden, len(m.Slots()))
	for i, g := range m.GPUs {
		a := m.Affinity()[i]
		add("gpu %d %s %s %s: visible %t %s", g.Index, g.PCI.Address, g.Device, g.UUID, g.Visible, g.Why)
		add("gpu %d link %v degraded %t", g.Index, g.PCI.Link, g.PCI.Link.Degraded())
		add("gpu %d near %v %v, cpus %v", g.Index, a.Relation, Names(a.Rails), m.Near(g.PCI))
	}
	for _, r := range m.Rails() {
		add("hca %s: %s %s, usable %t %s", r.Name(), r.Port.State, r.Port.Phys, r.Port.Usable, r.Port.Why)
		add("hca %s: rate %g %dX %s, lid %x sm %x", r.Name(), r.Port.Rate, r.Port.Lanes, r.Port.Speed, r.Port.LID, r.Port.SMLID)
		add("hca %s: gids %v", r.Name(), r.Port.GIDs)
	}
	for _, u := range m.Unknown {
		add("unknown %s", u)
	}
	return all
}

// change lists the facts that b has in place of a's.
func change(a, b Machine) (all []string) {
	before, after := facts(a), facts(b)
	for _, f := range after {
		if !slices.Contains(before, f) {
			all = append(all, "+"+f)
		}
	}
	for _, f := range before {
		if !slices.Contains(after, f) {
			all = append(all, "-"+f)
		}
	}
	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(a[1:], b[1:]) })
	return all
}
