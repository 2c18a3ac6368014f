package nccl

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/test/golden"
	"github.com/muster-run/muster/topology"
	"github.com/muster-run/muster/topology/fixture"
)

const machines = "../topology/testdata/machines"

// routes are the interfaces by which nodes of each machine would meet: not told by the descriptions.
var routes = map[string]string{
	"aws-p5.48xlarge": "enp71s0", "azure-nd96isr-h100-v5": "eth0", "dgx-a100": "ibp97s0f0", "dgx-h100": "enp3s0",
	"gb200-nvl72-tray": "enP6p3s0f0np0", "roce-8xa800-4nic": "bond0", "workstation-1gpu": "enp5s0", "mi300x-8gpu-baremetal": "",
	"aws-p4d.24xlarge": "ens5", "azure-nd96isr-mi300x-v5": "eth0", "kvm-8xh100-flat": "eth0", "oci-bm.gpu.h100.8": "eth0", "vm-1xh200": "eth0",
}

func described(t testing.TB, name string) string {
	t.Helper()
	return fixture.Described(t, machines, name)
}

func machineOf(t testing.TB, text string) topology.Machine {
	t.Helper()
	m, err := topology.Probe(topology.Root(fixture.Tree(t, text)))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// given is a machine's, in a world of n nodes that are all like it, without anything that a user set.
func given(m topology.Machine, route string, n int) Given {
	return Given{
		Machine: m, Getenv: env(nil), TopoFile: "/run/muster/topology.xml",
		World: World{Nodes: n, Route: route, Unrouted: "the way to the others is not known", Peers: peers(m, n)},
	}
}

func peers(m topology.Machine, n int) (all []job.Node) {
	for i := range n {
		all = append(all, job.Node{Name: fmt.Sprintf("node%d", i), Index: i, Rails: Rails(m)})
	}
	return all
}

func env(values map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := values[name]
		return v, ok
	}
}

// shown is a choice as text.
func shown(c Choice) string {
	var b strings.Builder
	for _, s := range c.Set {
		fmt.Fprintf(&b, "%s=%s\n    %s [%s]\n", s.Name, s.Value, s.Why, s.Source)
	}
	for _, k := range c.Kept {
		fmt.Fprintf(&b, "kept %s=%s of %s", k.Name, k.Value, k.From)
		if k.Would != "" {
			fmt.Fprintf(&b, ", in place of %s", k.Would)
		}
		fmt.Fprintln(&b)
	}
	for _, l := range c.Left {
		fmt.Fprintf(&b, "left alone: %s\n", l)
	}
	for _, n := range c.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	return b.String()
}

// What is chosen for each machine, and why: alone, with a few others, and with many, in a container whose NCCL is older.
func TestGoldenMachines(t *testing.T) {
	for name, route := range routes {
		t.Run(name, func(t *testing.T) {
			m := machineOf(t, described(t, name))
			old := given(m, route, 64)
			old.Container.Version, old.Sealed = Version{2, 25, 1}, true
			got := "# one node\n" + shown(Choose(given(m, "", 1))) +
				"\n# four nodes\n" + shown(Choose(given(m, route, 4))) +
				"\n# 64 nodes, NCCL 2.25.1, in a container that may not place memory\n" + shown(Choose(old))
			golden.File(t, filepath.Join("testdata", name+".txt"), got)
		})
	}
	files, err := filepath.Glob(machines + "/*.txt")
	if err != nil || len(files) != len(routes) {
		t.Errorf("%d machines are described, and %d are looked at (%v)", len(files), len(routes), err)
	}
}
