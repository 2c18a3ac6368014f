package nccl

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/test/golden"
	"github.com/muster-run/muster/topology"
	"github.com/muster-run/muster/topology/fixture"
)

// changed are the lines that differ between two choices.
func changed(before, after Choice) (all []string) {
	a, b := strings.Split(shown(before), "\n"), strings.Split(shown(after), "\n")
	for _, l := range a {
		if !slices.Contains(b, l) {
			all = append(all, "-"+strings.TrimSpace(l))
		}
	}
	for _, l := range b {
		if !slices.Contains(a, l) {
			all = append(all, "+"+strings.TrimSpace(l))
		}
	}
	return all
}

// same compares lines of which a wanted one that ends in … is the beginning.
func same(t *testing.T, got, want []string) {
	t.Helper()
	ok := len(got) == len(want)
	for i := 0; ok && i < len(got); i++ {
		start, cut := strings.CutSuffix(want[i], "…")
		ok = got[i] == want[i] || cut && strings.HasPrefix(got[i], start)
	}
	if !ok {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What is wrong with a machine changes what is set as it should, and nothing else: here all four nodes are wrong in the same way.
func TestVariants(t *testing.T) {
	const port0 = "port mlx5_0 1 "
	const oldHCA = "-NCCL_IB_HCA==mlx5_0,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_9,mlx5_10,mlx5_11"
	lost0 := func(why string) []string {
		return []string{
			oldHCA, "-UCX_NET_DEVICES=mlx5_0:1,…", "+NCCL_IB_HCA==mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_9,mlx5_10,mlx5_11", "+UCX_NET_DEVICES=mlx5_3:1,…",
			"+note: mlx5_0, which is for training, cannot be used: " + why,
		}
	}
	for _, c := range []struct {
		name, machine string
		text          func(s string) string
		without       string // a line that begins so
		want          []string
	}{
		{name: "an adapter is down", machine: "dgx-h100", text: func(s string) string {
			return fixture.Edit(t, s, port0, "4: ACTIVE", "1: DOWN", "5: LinkUp", "2: Polling", "400 Gb/sec (4X NDR)", "10 Gb/sec (4X SDR)")
		}, want: lost0("DOWN, Polling: no cable, or nobody at its other end")},
		{name: "no subnet manager", machine: "dgx-h100", text: func(s string) string {
			return fixture.Edit(t, s, port0, "4: ACTIVE", "2: INIT")
		}, want: lost0("INIT: the link is up, but no subnet manager has set the port up")},
		{name: "half the lanes", machine: "dgx-h100", text: func(s string) string {
			return fixture.Edit(t, s, port0, "400 Gb/sec (4X NDR)", "200 Gb/sec (2X NDR)")
		}},
		{name: "a counter at its end", machine: "dgx-h100", text: func(s string) string { return fixture.Edit(t, s, port0, "down=0", "down=255") }},
		{name: "a GPU with half its lanes", machine: "dgx-h100", text: func(s string) string {
			return fixture.Edit(t, s, "pci 0000:43:00.0", "cur=32.0/16", "cur=16.0/8")
		}},
		{name: "GIDs of other network namespaces", machine: "roce-8xa800-4nic", text: fixture.PodGIDs,
			want: []string{"-NCCL_IB_GID_INDEX=3", "+NCCL_IB_GID_INDEX=7"}},
		{name: "no DMI", machine: "azure-nd96isr-h100-v5", text: func(s string) string { return withoutLines(s, "dmi ") },
			want: []string{"-NCCL_TOPO_FILE=/run/muster/topology.xml", "-this virtual machine does not show…"}},
		{name: "a virtual machine that lost an adapter", machine: "azure-nd96isr-h100-v5", text: func(s string) string {
			return withoutLines(withoutLines(withoutLines(s, "hca mlx5_ib2 "), "port mlx5_ib2 "), "gid mlx5_ib2 ")
		}, want: []string{
			"-NCCL_TOPO_FILE=/run/muster/topology.xml", "-this virtual machine does not show…",
			"-NCCL_IB_HCA==mlx5_ib0,mlx5_ib1,mlx5_ib2,…", "-UCX_NET_DEVICES=mlx5_ib0:1,mlx5_ib1:1,mlx5_ib2:1,…", "+NCCL_IB_HCA==mlx5_ib0,mlx5_ib1,mlx5_ib3,…", "+UCX_NET_DEVICES=mlx5_ib0:1,mlx5_ib1:1,mlx5_ib3:1,…",
			"+left alone: NCCL_TOPO_FILE: not set, for machines of this kind have an adapter at 0103:00:00.0, and the kernel shows none there: …",
		}},
		{name: "a virtual machine that is not known", machine: "kvm-8xh100-flat", text: func(s string) string { return s + hypervisor },
			want: []string{"+left alone: NCCL_TOPO_FILE: not set, for this virtual machine shows no PCIe switch that a GPU and an adapter share, and its topology is not known here: GPUDirect stays off…"}},
		{name: "a virtual machine that shows its switches", machine: "oci-bm.gpu.h100.8", text: func(s string) string { return s + hypervisor }},
		{name: "a virtual machine of Grace's", machine: "gb200-nvl72-tray", text: func(s string) string { return s + hypervisor }},
		{name: "a GPU of another container", machine: "dgx-h100", text: func(s string) string { return s }, without: "dev/nvidia3"},
		{name: "an adapter without its device", machine: "dgx-h100", text: func(s string) string { return s }, without: "dev/infiniband/uverbs0",
			want: lost0("no /dev/infiniband/uverbs0 in this container")},
	} {
		t.Run(c.name, func(t *testing.T) {
			choose := func(text, without string) Choice {
				dir := fixture.Tree(t, text)
				if without != "" {
					fixture.Remove(t, dir, without)
				}
				m, err := topology.Probe(topology.Root(dir))
				if err != nil {
					t.Fatal(err)
				}
				g := given(m, routes[c.machine], 4)
				g.Container.Version = Version{2, 25, 1}
				return Choose(g)
			}
			whole := described(t, c.machine)
			same(t, changed(choose(whole, ""), choose(c.text(whole), c.without)), c.want)
		})
	}
}

// hypervisor has the CPUs say that they are a virtual machine's.
const hypervisor = "\nfile proc/cpuinfo \"flags : fpu hypervisor lm\"\n"

func withoutLines(text, start string) string {
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool { return strings.HasPrefix(l, start) })
	return strings.Join(lines, "\n")
}

// What the descriptions say of adapters and GIDs is what is set, where anything is.
func TestExpectations(t *testing.T) {
	for name, route := range routes {
		t.Run(name, func(t *testing.T) {
			text := described(t, name)
			parsed, err := fixture.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			m := machineOf(t, text)
			g := given(m, route, 4)
			g.Container.Version = Version{2, 25, 1}
			set := map[string]string{}
			for _, s := range Choose(g).Set {
				set[s.Name] = s.Value
			}
			want := parsed.Expect[0]
			if hcas, ok := set["NCCL_IB_HCA"]; ok && hcas != "="+want["compute_hcas"] {
				t.Errorf("NCCL_IB_HCA=%s, want %s", hcas, want["compute_hcas"])
			}
			if set["NCCL_IB_GID_INDEX"] != want["gid_index"] {
				t.Errorf("NCCL_IB_GID_INDEX=%s, want %s", set["NCCL_IB_GID_INDEX"], want["gid_index"])
			}
			if _, ok := set["NCCL_TOPO_FILE"]; ok != (want["topo_file"] == "needed") {
				t.Errorf("a topology: %t, want %q", ok, want["topo_file"])
			}
			if want["transport"] == "efa" && (set["NCCL_IB_HCA"] != "" || set["NCCL_IB_TIMEOUT"] != "") {
				t.Errorf("set on EFA: %v", set)
			}
			for _, gpu := range parsed.Expect[1:] {
				if nic := gpu["after_topo_nic"]; nic != "" {
					behindOneSwitch(t, m, gpu["bdf"], nic)
				}
			}
		})
	}
}

// behindOneSwitch holds that in the topology that is written a GPU and an adapter share their bridge.
func behindOneSwitch(t *testing.T, m topology.Machine, gpu, nic string) {
	t.Helper()
	var s topoSystem
	if err := xml.Unmarshal(Topology(m), &s); err != nil {
		t.Fatal(err)
	}
	for _, cpu := range s.CPUs {
		for _, bridge := range cpu.Devices {
			if len(bridge.Below) == 2 && bridge.Below[0].Bus == gpu && bridge.Below[1].Bus == adapter(m, nic).Address.String() {
				return
			}
		}
	}
	t.Errorf("GPU %s and %s are behind no switch together", gpu, nic)
}

func TestGoldenTopology(t *testing.T) {
	golden.File(t, "testdata/azure-nd96isr-h100-v5.xml", string(Topology(machineOf(t, described(t, "azure-nd96isr-h100-v5")))))
	if text := Topology(machineOf(t, described(t, "dgx-h100"))); text != nil {
		t.Errorf("a machine that hides nothing has a topology:\n%s", text)
	}
}

// Pods with some of a machine's GPUs and adapters are alike, whichever they have, and those of others are nobody's loss.
func TestPods(t *testing.T) {
	pod := func(gpus, adapters []int) topology.Machine {
		dir := fixture.Tree(t, described(t, "dgx-h100"))
		for i := range 12 {
			if !slices.Contains(gpus, i) {
				fixture.Remove(t, dir, fmt.Sprintf("dev/nvidia%d", i))
			}
			if !slices.Contains(adapters, i) {
				fixture.Remove(t, dir, fmt.Sprintf("dev/infiniband/uverbs%d", i))
			}
		}
		m, err := topology.Probe(topology.Root(dir))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	a, b := pod([]int{0}, []int{0}), pod([]int{3}, []int{5})
	for name, machines := range map[string][]topology.Machine{
		"a GPU each": {a, b}, "half of a machine each": {pod([]int{0, 1, 2, 3}, []int{0, 3, 4, 5}), pod([]int{4, 5, 6, 7}, []int{6, 9, 10, 11})},
	} {
		var nodes []job.Node
		for i, m := range machines {
			nodes = append(nodes, job.Node{Name: fmt.Sprintf("pod%d", i), Index: i, Rails: Rails(m)})
		}
		if differ := Disagreement(nodes); differ != "" {
			t.Errorf("%s: %s", name, differ)
		}
		for _, m := range machines {
			g := given(m, "enp3s0", 2)
			g.World.Peers = nodes
			if c := Choose(g); len(c.Notes) > 0 {
				t.Errorf("%s: %q", name, c.Notes)
			}
		}
	}
	if got := Rails(pod([]int{3}, []int{0})); len(got) != 2 || got[1].Name != "mlx5_5" || got[1].Why == "" {
		t.Errorf("a pod with another GPU's adapter: %+v", got)
	}
}

// One node of four has lost a rail.
func TestDisagreement(t *testing.T) {
	whole := described(t, "dgx-h100")
	broken := machineOf(t, fixture.Edit(t, whole, "port mlx5_3 1 ", "4: ACTIVE", "1: DOWN", "5: LinkUp", "2: Polling"))
	nodes := peers(machineOf(t, whole), 4)
	nodes[2].Rails = Rails(broken)
	const said = "3 of 4 nodes have 8 adapters for training, but node2 (node 2) has 7 (mlx5_3: DOWN, Polling: no cable, or nobody at its other end)"
	if got := Disagreement(nodes); got != said {
		t.Errorf("said: %s", got)
	}
	g := given(machineOf(t, whole), "enp3s0", 4)
	before := Choose(g)
	g.World.Peers = nodes
	same(t, changed(before, Choose(g)), []string{
		"-NCCL_IB_HCA=…", "-not for training…", "-UCX_NET_DEVICES=…", "-not for training…", "+left alone: NCCL_IB_HCA: not set, for " + said, "+note: " + said + "; NCCL pairs them by their places (--nccl-rails)",
	})
}

// Rank 0's node has no adapter at all, whatever the reason is, and says so.
func TestWithoutAny(t *testing.T) {
	whole, efa := machineOf(t, described(t, "dgx-h100")), machineOf(t, described(t, "aws-p5.48xlarge"))
	if rails := Rails(efa); rails != nil {
		t.Errorf("EFA's: %+v", rails)
	}
	dir := fixture.Tree(t, described(t, "dgx-h100"))
	fixture.Remove(t, dir, "dev/infiniband")
	closed, err := topology.Probe(topology.Root(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		machine topology.Machine
		want    string
	}{
		{closed, "3 of 4 nodes have 8 adapters for training, but node0 (node 0) has 0 (mlx5_0: no /dev/infiniband/uverbs0 in this container, mlx5_3: "},
		{topology.Machine{GPUs: whole.GPUs}, "3 of 4 nodes have 8 adapters for training, but node0 (node 0) has 0 (RDMA: no adapter)"},
	} {
		g := given(c.machine, "enp3s0", 4)
		g.World.Peers = peers(whole, 4)
		g.World.Peers[0].Rails = Rails(c.machine)
		if notes := Choose(g).Notes; len(notes) != 1 || !strings.HasPrefix(notes[0], c.want) {
			t.Errorf("%q", notes)
		}
	}
}

// Two nodes that lost one rail each, but not the same, have as many, and do not pair; nor do they with the others.
func TestNotTheSameRails(t *testing.T) {
	rail := func(name, why string) job.Rail {
		return job.Rail{Name: name, At: "0000:0" + name + ":00.0/1", Why: why}
	}
	node := func(i int, rails ...job.Rail) job.Node {
		return job.Node{Name: fmt.Sprintf("n%d", i), Index: -1, Rails: rails}
	}
	for _, c := range []struct {
		name  string
		nodes []job.Node
		want  string
	}{
		{"alike", []job.Node{node(0, rail("1", ""), rail("2", "")), node(1, rail("1", ""), rail("2", ""))}, ""},
		{"all lost the same", []job.Node{node(0, rail("1", "DOWN"), rail("2", "")), node(1, rail("1", "DOWN"), rail("2", ""))}, ""},
		{"other names", []job.Node{node(0, rail("1", "")), node(1, rail("7", ""))}, ""},
		{"one each", []job.Node{node(0, rail("1", "DOWN"), rail("2", "")), node(1, rail("1", ""), rail("2", "INIT"))},
			"1 of 2 nodes have 1 adapters for training, but n1 has 1 (2: INIT)"},
		{"none has any", []job.Node{node(0), node(1)}, ""},
		{"nobody", nil, ""},
		{"one says nothing", []job.Node{node(0, rail("1", "")), node(1)}, ""},
		{"one says nothing, another has lost one", []job.Node{node(0, rail("1", "")), node(1), node(2, rail("1", "DOWN"))}, "1 of 2 nodes have 1 adapters for training, but n2 has 0 (1: DOWN)"},
		{"none has any that works", []job.Node{node(0, rail("1", "DOWN")), node(1, rail("1", "DOWN"), rail("2", "DOWN"))}, ""},
	} {
		if got := Disagreement(c.nodes); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
