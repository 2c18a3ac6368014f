package topology

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// smi answers as nvidia-smi of driver 570 does on a DGX H100 with GPUs 0 and 1 visible; a question that is not in it fails as an unknown field does.
func smi(answers map[string]string) SMI {
	return func(args ...string) (string, error) {
		asked := strings.TrimPrefix(args[0], "--query-gpu=pci.bus_id,")
		if text, ok := answers[asked]; ok {
			return text, nil
		}
		return "", fmt.Errorf("exit status 2: Field %q is not a valid field to query", asked)
	}
}

const (
	topoMatrix = "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n" +
		"GPU0\t X \tNV18\tPXB\t0-55,112-167\t0\t\tN/A\nGPU1\tNV18\t X \tSYS\t0-55,112-167\t0\t\tN/A\nNIC0\tPXB\tSYS\t X \t\t\t\t\n\n" +
		"Legend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n\nNIC Legend:\n\n  NIC0: mlx5_0\n"
	list = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-a)\n  MIG 1g.10gb     Device  0: (UUID: MIG-1)\n  MIG 1g.10gb     Device  1: (UUID: MIG-2)\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-b)\n"
)

func twoGPUs() Machine {
	a, _ := ParseAddress("0000:1b:00.0")
	b, _ := ParseAddress("0000:43:00.0")
	c, _ := ParseAddress("0000:52:00.0")
	return Machine{GPUs: []GPU{
		{Index: 0, Vendor: "nvidia", PCI: PCI{Address: a}, Visible: true, MIG: []MIG{{GPUInstance: 7, Visible: true}, {GPUInstance: 8}, {GPUInstance: 9, Visible: true}}},
		{Index: 1, Vendor: "nvidia", PCI: PCI{Address: b}, Why: "this container was not given it"},
		{Index: 2, Vendor: "nvidia", PCI: PCI{Address: c}, Visible: true, UUID: "GPU-of-procfs", Model: "of procfs"},
	}}
}

func TestAsk(t *testing.T) {
	m := twoGPUs()
	m.Ask(smi(map[string]string{
		"uuid,name":        "00000000:1B:00.0, GPU-a, NVIDIA H100 80GB HBM3\n00000000:52:00.0, GPU-b, NVIDIA H100 80GB HBM3\n",
		"mig.mode.current": "00000000:1B:00.0, Enabled\n00000000:52:00.0, [N/A]\n",
		"ecc.mode.current,ecc.errors.uncorrected.volatile.total": "00000000:1B:00.0, Enabled, 2\n00000000:52:00.0, Enabled, [N/A]\n",
		"fabric.state,fabric.status":                             "00000000:1B:00.0, Completed, Success\n00000000:52:00.0, In Progress, N/A\n",
		"topo":                                                   topoMatrix,
		"-L":                                                     list,
	}), func(error) bool { return false })
	first, hidden, last := m.GPUs[0], m.GPUs[1], m.GPUs[2]
	if first.UUID != "GPU-a" || first.Model != "NVIDIA H100 80GB HBM3" || first.Told.MIG != "Enabled" || first.Told.Uncorrected == nil || *first.Told.Uncorrected != 2 ||
		first.Told.Fabric != "Completed" || first.Told.FabricStatus != "Success" || first.Told.Clique != "" {
		t.Errorf("the first: %+v", first)
	}
	if first.MIG[0].UUID != "MIG-1" || first.MIG[1].UUID != "" || first.MIG[2].UUID != "MIG-2" {
		t.Errorf("instances: %+v", first.MIG)
	}
	if last.UUID != "GPU-of-procfs" || last.Model != "of procfs" || last.Told.MIG != "" || last.Told.Uncorrected != nil || last.Told.FabricStatus != "" {
		t.Errorf("the last: %+v", last)
	}
	if p, ok := first.Linked(last); !ok || p.Cell() != "NV18" || len(hidden.Links) > 0 || len(last.Links) != 1 || last.Links[0].Index != 0 {
		t.Errorf("links: %+v and %+v", first.Links, last.Links)
	}
	if len(m.Unknown) != 1 || !strings.Contains(m.Unknown[0], "fabric.clusterUuid") {
		t.Errorf("unknown: %q", m.Unknown)
	}
}

// What nvidia-smi knows all of is asked at once, and what a machine does not have is not asked for.
func TestAskAtOnce(t *testing.T) {
	m, asked := twoGPUs(), 0
	m.GPUs = m.GPUs[2:]
	m.Ask(func(args ...string) (string, error) {
		asked++
		return smi(map[string]string{
			"uuid,name": "00000000:52:00.0, GPU-b, NVIDIA H100 80GB HBM3\n",
			"mig.mode.current,ecc.mode.current,ecc.errors.uncorrected.volatile.total,fabric.state,fabric.status,fabric.clusterUuid,fabric.cliqueId": "00000000:52:00.0, Disabled, Enabled, 3, Completed, Success, 00ab, 7\n",
		})(args...)
	}, func(error) bool { return false })
	g := m.GPUs[0].Told
	if asked != 2 || len(m.Unknown) > 0 || g.MIG != "Disabled" || g.ECC != "Enabled" || *g.Uncorrected != 3 || g.Fabric != "Completed" || g.FabricCluster != "00ab" || g.Clique != "7" {
		t.Errorf("asked %d times, unknown %q: %+v", asked, m.Unknown, g)
	}
}

// An nvidia-smi that says nothing, or cannot, is asked no more.
func TestAskInVain(t *testing.T) {
	hangs := errors.New("does not end within 10s")
	for _, c := range []struct {
		name    string
		smi     SMI
		asked   int
		unknown string
	}{
		{"it cannot talk to the driver", func(...string) (string, error) {
			return "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", nil
		}, 1, "couldn't communicate"},
		{"it hangs", func(...string) (string, error) { return "", hangs }, 1, "does not end"},
		{"it hangs later", func(args ...string) (string, error) {
			if strings.Contains(args[0], "uuid,name") {
				return "00000000:1B:00.0, GPU-a, H100", nil
			}
			return "", hangs
		}, 2, "mig.mode.current"},
		{"it says nothing", func(...string) (string, error) { return "", nil }, 1, "said nothing"},
		{"it speaks of other GPUs", func(...string) (string, error) { return "00000000:99:00.0, GPU-a, H100", nil }, 1, "99:00.0"},
	} {
		m, asked := twoGPUs(), 0
		m.Ask(func(args ...string) (string, error) {
			asked++
			return c.smi(args...)
		}, func(err error) bool { return errors.Is(err, hangs) })
		if asked != c.asked || len(m.Unknown) != 1 || !strings.Contains(m.Unknown[0], c.unknown) {
			t.Errorf("%s: asked %d times, unknown %q", c.name, asked, m.Unknown)
		}
	}
}

// A line of a GPU that is at no address is told of, once, and the others' count.
func TestAskOdd(t *testing.T) {
	m := twoGPUs()
	m.Ask(func(args ...string) (string, error) {
		fields := strings.Count(args[0], ",")
		return "00000000:1G:00.0" + strings.Repeat(", lost", fields) + "\n00000000:1B:00.0" + strings.Repeat(", x", fields) + "\n", nil
	}, func(error) bool { return false })
	odd := slices.DeleteFunc(slices.Clone(m.Unknown), func(u string) bool { return !strings.Contains(u, "1G:00.0\" is no PCI address") })
	if len(odd) != 1 || m.GPUs[0].Told.MIG != "x" {
		t.Errorf("unknown %q, %+v", m.Unknown, m.GPUs[0].Told)
	}
}

func FuzzAsk(f *testing.F) {
	f.Add("00000000:1B:00.0, GPU-a, NVIDIA H100 80GB HBM3\n")
	f.Add(topoMatrix)
	f.Add(list)
	f.Fuzz(func(t *testing.T, text string) {
		m := twoGPUs()
		m.Ask(func(...string) (string, error) { return text, nil }, func(error) bool { return false })
		for i := range questions {
			_ = m.answer(questions[i], text)
		}
		_, _ = m.nvlinks(text), m.migUUIDs(text)
		for _, g := range m.GPUs {
			for _, p := range g.Links {
				if p.Index == g.Index || p.Index < 0 || p.Index > 2 || !g.Visible {
					t.Errorf("%q: GPU %d is linked to %d", text, g.Index, p.Index)
				}
			}
		}
	})
}
