package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-run/muster/test/golden"
	"github.com/muster-run/muster/topology"
	"github.com/muster-run/muster/topology/fixture"
)

const machines = "../topology/testdata/machines/"

func described(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(machines + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// checked are the findings about the tree of a machine for a job of two nodes, a line each.
func checked(t testing.TB, dir string) (lines []string) {
	t.Helper()
	m, err := topology.Probe(topology.Root(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range Check(Measure(topology.Root(dir), m), Need{Nodes: 2}) {
		lines = append(lines, f.Result.String()+" "+f.String())
	}
	return lines
}

// What is found of each machine.
func TestMachines(t *testing.T) {
	files, err := filepath.Glob(machines + "*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no machines", err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			got := strings.Join(checked(t, fixture.Tree(t, described(t, strings.TrimSuffix(name, ".txt")))), "\n") + "\n"
			golden.File(t, filepath.Join("testdata", name), got)
		})
	}
}

// linked is a machine of GPUs with so many NVLinks between each other, as nvidia-smi says it.
func linked(links [][]int) Host {
	var m topology.Machine
	for i, row := range links {
		g := topology.GPU{Index: i, Vendor: "nvidia", Visible: true}
		for k, n := range row {
			if n > 0 {
				g.Links = append(g.Links, topology.Peer{Index: k, Kind: "nvlink", Links: n})
			}
		}
		m.GPUs = append(m.GPUs, g)
	}
	return Host{Machine: m}
}

// without is a description without the lines that have one of these words.
func without(s string, words ...string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(s, "\n"), func(l string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(l, w) })
	}), "\n")
}

// nets are six fast interfaces on a machine.
func nets(more string) func(t testing.TB, s string) string {
	return func(_ testing.TB, s string) string {
		for i := range 6 {
			s += fmt.Sprintf("\nnet fast%d pci=- type=1 state=up speed=200000 mtu=8244 addr=42:01:0a:00:00:0%d dev_port=0", i, i)
		}
		return s + more + "\n"
	}
}

// What is wrong with a machine is found, by its name, and nothing else changes but what it was found to be well before.
func TestVariants(t *testing.T) {
	const port0 = "port mlx5_0 1 "
	well := map[string][]string{} // what is found of a machine as it is
	for _, c := range []struct {
		name, machine string
		text          func(t testing.TB, s string) string
		without       []string // files
		want          []string // beginnings of findings that are new, if they do not pass
	}{
		{name: "an adapter is down", machine: "dgx-h100", want: []string{"fail hca: mlx5_0: DOWN, Polling: no cable"}, text: func(t testing.TB, s string) string {
			return fixture.Edit(t, s, port0, "4: ACTIVE", "1: DOWN", "5: LinkUp", "2: Polling", "400 Gb/sec (4X NDR)", "10 Gb/sec (4X SDR)")
		}},
		{name: "no subnet manager", machine: "dgx-a100", want: []string{"fail hca: mlx5_0: INIT: the link is up, but no subnet manager"}, text: func(t testing.TB, s string) string {
			return fixture.Edit(t, s, port0, "4: ACTIVE", "2: INIT", "lid=0x20", "lid=0xffff", "sm_lid=0x1", "sm_lid=0x0")
		}},
		{name: "an adapter whose firmware is dead", machine: "dgx-h100", want: []string{"fail hca: mlx5_0: its state cannot be read: the adapter is being reset, or its firmware is dead: " +
			"its GPU sends through another one's adapter, and all nodes wait for this one; look again in a minute"}, text: func(t testing.TB, s string) string {
			return fixture.Edit(t, s, port0, "4: ACTIVE", "")
		}},
		{name: "half the lanes of a port", machine: "dgx-h100", want: []string{"warn hca-rate: mlx5_0: 200 Gb/s over 2 lanes of 4, others 400: each collective"}, text: func(t testing.TB, s string) string {
			return fixture.Edit(t, s, port0, "400 Gb/sec (4X NDR)", "200 Gb/sec (2X NDR)")
		}},
		{name: "a quarter of the lanes of a port", machine: "dgx-h100", want: []string{"fail hca-rate: mlx5_0: 100 Gb/s over 1 lane of 4, others 400"}, text: func(t testing.TB, s string) string {
			return fixture.Edit(t, s, port0, "400 Gb/sec (4X NDR)", "100 Gb/sec (1X NDR)")
		}},
		{name: "a port at half the speed", machine: "dgx-h100", want: []string{"warn hca-rate: mlx5_0: 200 Gb/s, others 400: each collective"}, text: func(t testing.TB, s string) string {
			return fixture.Edit(t, s, port0, "400 Gb/sec (4X NDR)", "200 Gb/sec (4X HDR)")
		}},
		{name: "a port at a quarter of the speed", machine: "oci-bm.gpu.h100.8", want: []string{"fail hca-rate: mlx5_0: 50 Gb/s, others 200"}, text: func(t testing.TB, s string) string {
			return fixture.Edit(t, s, port0, "200 Gb/sec (4X HDR)", "50 Gb/sec (4X QDR)")
		}},
		{name: "no subnet manager for anybody", machine: "dgx-h100", want: []string{
			"fail hca: mlx5_0: INIT: the link is up", "fail hca: mlx5_3: INIT", "fail hca: mlx5_4: INIT", "fail hca: mlx5_5: INIT", "fail hca: mlx5_6: INIT", "fail hca: mlx5_9: INIT",
			"fail hca: mlx5_10: INIT", "fail hca: mlx5_11: INIT", "warn hca: mlx5_2: DOWN, Disabled", "warn hca: mlx5_8: DOWN, Disabled",
		}, text: func(t testing.TB, s string) string {
			for _, n := range []int{0, 3, 4, 5, 6, 9, 10, 11} {
				s = fixture.Edit(t, s, fmt.Sprintf("port mlx5_%d 1 ", n), "4: ACTIVE", "2: INIT")
			}
			return s
		}},
		{name: "an adapter that fell off the bus", machine: "dgx-h100", want: []string{"warn hca: GPU0: no adapter for training is behind its PCIe switches, as one is behind those of most GPUs: "},
			text: func(t testing.TB, s string) string { return without(s, "mlx5_0 ", "0000:18:00.0") }},
		{name: "an adapter that a virtual machine lost", machine: "azure-nd96isr-h100-v5", want: []string{"warn hca: machines of this kind have an adapter at 0103:00:00.0, and the kernel shows none there: "},
			text: func(t testing.TB, s string) string { return without(s, "mlx5_ib2 ", "0103:00:00.0") }},
		{name: "a counter at its end", machine: "dgx-h100", want: []string{"warn hca-errors: mlx5_0: a counter of errors stands at its end"}, text: func(t testing.TB, s string) string {
			return fixture.Edit(t, s, port0, "down=0", "down=255")
		}},
		{name: "a link that went down", machine: "dgx-h100", want: []string{"warn hca-errors: mlx5_0: its link went down 7 times"}, text: func(t testing.TB, s string) string {
			return fixture.Edit(t, s, port0, "down=0", "down=7")
		}},
		{name: "a GPU with half its lanes", machine: "dgx-h100", want: []string{"warn gpu-link: GPU1 has 8 lanes of 16"}, text: func(t testing.TB, s string) string {
			return fixture.Edit(t, s, "pci 0000:43:00.0", "cur=32.0/16", "cur=16.0/8")
		}},
		{name: "a GPU with a quarter of its lanes", machine: "dgx-h100", want: []string{"fail gpu-link: GPU1 has 4 lanes of 16"}, text: func(t testing.TB, s string) string {
			return fixture.Edit(t, s, "pci 0000:43:00.0", "cur=32.0/16", "cur=32.0/4")
		}},
		{name: "a GPU in a slot with a quarter of its lanes", machine: "dgx-h100", text: func(t testing.TB, s string) string {
			s = fixture.Edit(t, s, "pci 0000:43:00.0", "cur=32.0/16", "cur=32.0/4")
			return fixture.Edit(t, s, "pci 0000:42:00.0", "max=32.0/16", "max=32.0/4")
		}},
		{name: "no device of an adapter", machine: "dgx-a100", without: []string{"dev/infiniband/uverbs6"}, want: []string{"fail hca: mlx5_6: no /dev/infiniband/uverbs6 in this container"}},
		{name: "no devices of adapters", machine: "dgx-h100", without: []string{"dev/infiniband"}, want: []string{"fail rdma: the machine has 12 adapters, and this container may use none"}},
		{name: "a pod with one GPU and its adapter", machine: "dgx-h100", without: others(8, []int{3}, 12, []int{5})},
		{name: "a pod with half of the machine", machine: "dgx-h100", without: others(8, []int{0, 1, 2, 3}, 12, []int{0, 3, 4, 5})},
		{name: "a pod with one GPU and its EFA", machine: "aws-p5.48xlarge", without: others(8, []int{0}, 32, []int{0, 1, 2, 3})},
		{name: "a pod with one GPU and one of two adapters as near", machine: "dgx-a100", without: others(8, []int{0}, 12, []int{1})},
		{name: "a pod with one GPU of a virtual machine", machine: "azure-nd96isr-h100-v5", without: others(8, []int{0}, 9, []int{1})},
		{name: "a pod with another GPU's adapter", machine: "dgx-h100", without: others(8, []int{3}, 12, []int{0}),
			want: []string{"warn hca: this container's adapters (mlx5_0) are near other GPUs than its own, which are near mlx5_5"}},
		{name: "a pod with half of the machine, and the other half's adapters", machine: "dgx-h100", without: others(8, []int{0, 1, 2, 3}, 12, []int{6, 9, 10, 11}),
			want: []string{"warn hca: this container's adapters (mlx5_6, mlx5_9, mlx5_10, mlx5_11) are near other GPUs than its own, which are near mlx5_0, mlx5_3, mlx5_4, mlx5_5"}},
		{name: "a pod with half of the machine, and one of the other half's adapters", machine: "dgx-h100", without: others(8, []int{0, 1}, 12, []int{6}),
			want: []string{"fail hca: mlx5_0: no /dev/infiniband/uverbs0 in this container", "fail hca: mlx5_3: "}},
		{name: "an adapter of a virtual machine is down", machine: "azure-nd96isr-h100-v5", want: []string{"fail hca: mlx5_ib2: DOWN"}, text: func(t testing.TB, s string) string {
			return fixture.Edit(t, s, "port mlx5_ib2 1 ", "4: ACTIVE", "1: DOWN")
		}},
		{name: "a card whose second port nobody uses", machine: "workstation-1gpu", text: func(t testing.TB, s string) string { return s + card("4: ACTIVE") },
			want: []string{"unknown memlock: ", "unknown gpudirect: "}},
		{name: "a card that nobody uses", machine: "workstation-1gpu", text: func(t testing.TB, s string) string { return s + card("1: DOWN") },
			want: []string{"warn hca: mlx5_0: DOWN", "warn hca: mlx5_1: DOWN", "unknown memlock: "}},
		{name: "a card that nobody uses beside one", machine: "workstation-1gpu", text: func(t testing.TB, s string) string {
			return s + card("4: ACTIVE") + strings.NewReplacer("0000:07", "0000:08", "00:1e", "00:1f", "mlx5_0", "mlx5_2", "mlx5_1", "mlx5_3", "uverbs=0", "uverbs=2", "uverbs=1", "uverbs=3").Replace(card("1: DOWN"))
		}, want: []string{"warn hca: mlx5_2: DOWN", "warn hca: mlx5_3: DOWN", "unknown memlock: ", "unknown gpudirect: "}},
		{name: "GIDs of other network namespaces", machine: "roce-8xa800-4nic", text: func(_ testing.TB, s string) string { return fixture.PodGIDs(s) }},
		{name: "a GPU of another container", machine: "dgx-h100", without: []string{"dev/nvidia3"}},
		{name: "no GPU at all", machine: "dgx-h100", want: []string{"fail gpus: "}, without: []string{"dev/nvidia0", "dev/nvidia1", "dev/nvidia2", "dev/nvidia3", "dev/nvidia4", "dev/nvidia5", "dev/nvidia6", "dev/nvidia7", "dev/nvidiactl", "dev/nvidia-uvm"}},
		{name: "no unified memory", machine: "dgx-h100", without: []string{"dev/nvidia-uvm"}, want: []string{"fail gpu-devices: no /dev/nvidia-uvm in this container: CUDA finds no GPU"}},
		{name: "no DMI", machine: "dgx-h100", without: []string{"sys/class/dmi"}},
		{name: "a small cpuset", machine: "dgx-h100", text: file("proc/self/status", "Cpus_allowed_list:\t8-15\nMems_allowed_list:\t0-1\n"), want: []string{
			"warn cpuset: GPU4 is on NUMA node 1, of whose CPUs this container may use none", "warn cpuset: GPU5", "warn cpuset: GPU6", "warn cpuset: GPU7",
		}},
		{name: "a cpuset of one socket and two cores", machine: "dgx-h100", text: file("proc/self/status", "Cpus_allowed_list:\t0-57,112-169\nMems_allowed_list:\t0-1\n"), want: []string{
			"warn cpuset: GPU4 is on NUMA node 1, of whose CPUs this container may use 56-57,168-169, for 4 GPUs: less than half of their part", "warn cpuset: GPU5", "warn cpuset: GPU6", "warn cpuset: GPU7",
		}},
		{name: "a cpuset of a socket and a third", machine: "dgx-h100", text: file("proc/self/status", "Cpus_allowed_list:\t0-74,112-186\nMems_allowed_list:\t0-1\n")},
		{name: "NUMA nodes that cannot be read", machine: "dgx-h100", without: []string{"sys/devices/system/node/node0/cpulist", "sys/devices/system/cpu/online", "proc/self/status"},
			want: []string{"unknown cpuset: which CPUs this container may use is not shown"}},
		{name: "fewer CPUs than workers", machine: "dgx-h100", text: file("proc/self/status", "Cpus_allowed_list:\t0-1,60-61\nMems_allowed_list:\t0-1\n"), want: []string{"warn quota: 4 CPUs for 8 workers"}},
		{name: "half a CPU for each worker", machine: "dgx-h100", text: file("sys/fs/cgroup/cpu.max", "400000 100000\n"), want: []string{"fail quota: the time of 4 CPUs for 8 workers (/sys/fs/cgroup/cpu.max)"}},
		{name: "two CPUs for each worker", machine: "dgx-h100", text: file("sys/fs/cgroup/cpu.max", "1600000 100000\n"), want: []string{"warn quota: the time of 16 CPUs for 8 workers"}},
		{name: "little memory", machine: "dgx-h100", text: file("sys/fs/cgroup/memory/memory.limit_in_bytes", "68719476736\n"), want: []string{"warn memory: 64 GiB of memory for 8 workers with a GPU each (/sys/fs/cgroup/memory/memory.limit_in_bytes)"}},
		{name: "few processes", machine: "dgx-h100", text: file("sys/fs/cgroup/pids.max", "1024\n"), want: []string{"warn tasks: 1024 processes and threads may be started (/sys/fs/cgroup/pids.max); 8 workers need about 8192"}},
		{name: "little memory may be locked", machine: "dgx-h100", text: limits("Max locked memory         8388608              8388608              bytes"), want: []string{"fail memlock: 8 MiB of memory may be locked (ulimit -l): RDMA fails"}},
		{name: "some memory may be locked", machine: "dgx-h100", text: limits("Max locked memory         1073741824           1073741824           bytes"), want: []string{"warn memlock: 1 GiB of memory may be locked"}},
		{name: "few open files", machine: "dgx-h100", text: limits("Max open files            1024                 4096                 files"), want: []string{"warn nofile: a process may open 4096 files"}},
		{name: "an endless stack", machine: "dgx-h100", text: limits("Max stack size            unlimited            unlimited            bytes"), want: []string{"warn stack: the stack is unlimited"}},
		{name: "errors of PCIe", machine: "dgx-h100", text: func(t testing.TB, s string) string {
			at := "sys/bus/pci/devices/0000:43:00.0/aer_dev_"
			return file(at+"fatal", "Undefined 0\\nDLP 2\\nTOTAL_ERR_FATAL 2\\n")(t, file(at+"nonfatal", "Undefined 0\\nTOTAL_ERR_NONFATAL 0\\n")(t, s))
		}, want: []string{"warn pcie: GPU1 (0000:43:00.0): 2 fatal errors of PCIe since the machine runs: "}},
		{name: "errors of an adapter's PCIe", machine: "dgx-h100", text: file("sys/bus/pci/devices/0000:40:00.0/aer_dev_nonfatal", "CmpltTO 1\\nTOTAL_ERR_NONFATAL 1\\n"),
			want: []string{"warn pcie: mlx5_3 (0000:40:00.0): 1 nonfatal error of PCIe since the machine runs: "}},
		{name: "errors of memory of AMD's", machine: "azure-nd96isr-mi300x-v5", text: file("sys/bus/pci/devices/0031:00:00.0/ras/umc_err_count", "ue: 3\\nce: 17\\n"),
			want: []string{"fail gpu-memory: GPU2: 3 uncorrected errors of memory since its driver was loaded: "}},
		{name: "NUMA balancing", machine: "dgx-h100", text: file("proc/sys/kernel/numa_balancing", "1"), want: []string{"warn numa-balancing: kernel.numa_balancing is 1 on a machine of 2 NUMA nodes"}},
		{name: "few ports", machine: "dgx-h100", text: file("proc/sys/net/ipv4/ip_local_port_range", "60000 61000\n"), want: []string{"warn ports: 1001 ports for outgoing connections (60000 to 61000)"}},
		{name: "another library than the driver's", machine: "dgx-h100", text: file("usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15", ""), want: []string{"fail driver: the kernel's driver is 570.133.20, the library 550.54.15: CUDA fails"}},
		{name: "leftovers", machine: "dgx-h100", text: file("dev/shm/nccl-aB3dE5", "x"), want: []string{"warn leftovers: /dev/shm holds 1 file of NCCL's"}},
		{name: "an IOMMU that translates", machine: "dgx-h100", text: func(t testing.TB, s string) string {
			s = file("sys/class/iommu/dmar0/x", "")(t, s)
			s = file("sys/kernel/iommu_groups/7/type", "DMA-FQ")(t, s)
			return s + "\nlink sys/bus/pci/devices/0000:1b:00.0/iommu_group sys/kernel/iommu_groups/7\n"
		}, want: []string{"warn iommu: the IOMMU translates addresses of GPU0 (DMA-FQ)"}},
		{name: "ACS", machine: "dgx-h100", text: func(t testing.TB, s string) string {
			return s + "\nlink sys/bus/pci/devices/0000:1b:00.0/iommu_group sys/kernel/iommu_groups/7\nlink sys/bus/pci/devices/0000:18:00.0/iommu_group sys/kernel/iommu_groups/8\n"
		}, want: []string{"warn acs: GPU0 and mlx5_0 are below one PCIe switch and in two IOMMU groups"}},
		{name: "a small MTU", machine: "roce-8xa800-4nic", text: func(t testing.TB, s string) string {
			return strings.ReplaceAll(s, "mtu=4200", "mtu=1500")
		}, want: []string{"warn mtu: ", "warn mtu: ", "warn mtu: ", "warn mtu: "}},
		{name: "small MTUs of TCP", machine: "workstation-1gpu", text: nets(""), want: []string{"warn mtu: MTU 8244 on fast0, fast1, fast2, fast3 and 2 more, of 200 Gb/s"}},
		{name: "Google's MTUs", machine: "workstation-1gpu", text: nets("\ndmi product_name \"Google Compute Engine\"")},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := described(t, c.machine)
			if well[c.machine] == nil {
				well[c.machine] = checked(t, fixture.Tree(t, text))
			}
			before := well[c.machine]
			if c.text != nil {
				text = c.text(t, text)
			}
			dir := fixture.Tree(t, text)
			for _, name := range c.without {
				fixture.Remove(t, dir, name)
			}
			got := slices.DeleteFunc(checked(t, dir), func(l string) bool { return slices.Contains(before, l) || strings.HasPrefix(l, "pass ") })
			if len(got) != len(c.want) {
				t.Fatalf("found %d, want %d:\n%s", len(got), len(c.want), strings.Join(got, "\n"))
			}
			for _, want := range c.want {
				if !slices.ContainsFunc(got, func(l string) bool { return strings.HasPrefix(l, want) }) {
					t.Errorf("not found: %q; but\n%s", want, strings.Join(got, "\n"))
				}
			}
		})
	}
}

// others are the devices of GPUs and adapters that other containers have.
func others(gpus int, own []int, adapters int, ownAdapters []int) (names []string) {
	for i := range gpus {
		if !slices.Contains(own, i) {
			names = append(names, fmt.Sprintf("dev/nvidia%d", i))
		}
	}
	for i := range adapters {
		if !slices.Contains(ownAdapters, i) {
			names = append(names, fmt.Sprintf("dev/infiniband/uverbs%d", i))
		}
	}
	return names
}

// card is one of two ports, of which the second is down.
func card(first string) string {
	return `
pci 0000:00:1e.0 parent=0000:00 class=0x060400 id=8086:7a31 sub=1043:8882 cur=16.0/16 max=16.0/16
pci 0000:07:00.0 parent=0000:00:1e.0 class=0x020000 id=15b3:101d sub=15b3:0016 cur=16.0/16 max=16.0/16 driver=mlx5_core
pci 0000:07:00.1 parent=0000:00:1e.0 class=0x020000 id=15b3:101d sub=15b3:0016 cur=16.0/16 max=16.0/16 driver=mlx5_core
hca mlx5_0 pci=0000:07:00.0 hca_type=MT4125 fw=22.35.2000 board=MT_0000000359 node_guid=b8ce:f603:00a8:0000 uverbs=0 node_type="1: CA"
port mlx5_0 1 state="` + first + `" phys="5: LinkUp" rate="100 Gb/sec (4X EDR)" layer=InfiniBand lid=0x1 sm_lid=0x1 cap=0x04010000 down=0 recov=0 sym=0
hca mlx5_1 pci=0000:07:00.1 hca_type=MT4125 fw=22.35.2000 board=MT_0000000359 node_guid=b8ce:f603:00a8:0001 uverbs=1 node_type="1: CA"
port mlx5_1 1 state="1: DOWN" phys="3: Disabled" rate="40 Gb/sec (4X QDR)" layer=InfiniBand lid=0x0 sm_lid=0x0 cap=0x04010000 down=0 recov=0 sym=0
`
}

// file adds a file to a description.
func file(name, text string) func(t testing.TB, s string) string {
	text = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\\n`).Replace(text)
	return func(_ testing.TB, s string) string { return s + fmt.Sprintf("\nfile %s \"%s\"\n", name, text) }
}

// limits adds /proc/self/limits of one line.
func limits(line string) func(t testing.TB, s string) string {
	return file("proc/self/limits", line+"\n")
}

// NCCL needs a plugin for EFA, which may be in several places.
func TestPlugin(t *testing.T) {
	root := topology.Root(fixture.Tree(t, described(t, "aws-p5.48xlarge")))
	m, err := topology.Probe(root)
	if err != nil {
		t.Fatal(err)
	}
	there := t.TempDir()
	if err := os.MkdirAll(filepath.Join(there, "opt/site/lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(there, "opt/site/lib/libnccl-net-ofi.so"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		root  topology.Root
		env   string
		nodes int
		want  string
	}{
		{root, "", 2, "fail aws-ofi-nccl, NCCL's plugin for EFA, is not in the usual places"},
		{root, "", 1, "warn aws-ofi-nccl"},
		{root, "NCCL_NET_PLUGIN=ofi", 2, "pass NCCL_NET_PLUGIN=ofi"},
		{topology.Root(there), "", 2, "fail aws-ofi-nccl"},
		{topology.Root(there), "LD_LIBRARY_PATH=:/opt/none:/opt/site/lib/", 2, "pass /opt/site/lib/libnccl-net-ofi.so"},
	} {
		h := Host{Machine: m, Root: c.root, Getenv: func(name string) string {
			value, _ := strings.CutPrefix(c.env, name+"=")
			if value == c.env {
				return ""
			}
			return value
		}}
		got := plugin(h, Need{Nodes: c.nodes, Workers: 8})
		if len(got) != 1 || !strings.HasPrefix(fmt.Sprint(got[0].Result, " ", got[0].Found), c.want) {
			t.Errorf("%q, %d nodes: %+v", c.env, c.nodes, got)
		}
	}
	if got := plugin(Host{Machine: m, Root: root}, Need{Nodes: 2}); got != nil {
		t.Errorf("of another machine's tree: %+v", got)
	}
}

// A check of what nvidia-smi and the live machine say, and no file.
func TestLive(t *testing.T) {
	const gib = 1 << 30
	gpus := topology.Machine{GPUs: []topology.GPU{{Vendor: "nvidia", Visible: true}, {Index: 1, Vendor: "nvidia", Visible: true}}}
	gpus.GPUs[0].PCI.Address, _ = topology.ParseAddress("0000:1b:00.0")
	others := topology.GPU{Index: 2, Vendor: "nvidia"}
	others.PCI.Address, _ = topology.ParseAddress("0000:df:00.0")
	gpus.GPUs = append(gpus.GPUs, others)
	told := func(edit func(*topology.Told)) topology.Machine {
		m := gpus
		m.GPUs = slices.Clone(gpus.GPUs)
		edit(&m.GPUs[1].Told)
		return m
	}
	one := 1
	shm := func(s Space, err error) Host { return Host{Space: func(string) (Space, error) { return s, err }} }
	log := func(age time.Duration, text string) Host {
		return Host{Machine: gpus, Errors: []Record{{age, text}}}
	}
	name := func(addresses ...string) Host {
		return Host{Resolve: func() (string, []string, error) { return "h", addresses, nil }}
	}
	for _, c := range []struct {
		look func(Host, Need) []Finding
		host Host
		want string
	}{
		{checks[0].look, shm(Space{Type: tmpfs, Size: 16 * gib, Free: 15 * gib}, nil), "pass /dev/shm has 16 GiB, 15 GiB free"},
		{checks[0].look, shm(Space{Type: tmpfs, Size: 64 << 20, Free: 64 << 20}, nil), "fail /dev/shm has 64 MiB, for 8 workers"},
		{checks[0].look, shm(Space{Type: tmpfs, Size: gib, Free: gib}, nil), "warn /dev/shm has 1 GiB, for 8 workers"},
		{checks[0].look, shm(Space{Type: tmpfs, Size: 16 * gib, Free: gib}, nil), "warn of /dev/shm's 16 GiB 1 GiB are free"},
		{checks[0].look, shm(Space{Type: 0xef53, Size: 16 * gib, Free: gib}, nil), "warn /dev/shm is no tmpfs"},
		{checks[0].look, shm(Space{Type: tmpfs, Size: 16 * gib, ReadOnly: true}, nil), "fail /dev/shm is mounted read-only"},
		{checks[0].look, shm(Space{}, fs.ErrNotExist), "fail there is no /dev/shm"},
		{checks[0].look, shm(Space{}, syscall.EACCES), "unknown permission denied"},
		{disk, shm(Space{Free: 5 * gib}, nil), "pass /tmp has 5 GiB free"},
		{disk, shm(Space{Free: 5 << 20}, nil), "warn /tmp has 5 MiB free"},
		{gpuMemory, Host{Machine: gpus}, "unknown nvidia-smi says nothing"},
		{gpuMemory, Host{Machine: told(func(t *topology.Told) { t.Uncorrected = new(int) })}, "pass no uncorrected"},
		{gpuMemory, Host{Machine: told(func(t *topology.Told) { t.Uncorrected = &one })}, "warn GPU1: 1 uncorrected error of memory"},
		{gpuMemory, Host{Machine: told(func(t *topology.Told) { t.RemapPending = "Yes" })}, "fail GPU1 is to be reset"},
		{gpuMemory, Host{Machine: told(func(t *topology.Told) { t.RemapFailed = "Yes" })}, "fail GPU1 could not remap"},
		{gpuMemory, Host{Machine: told(func(t *topology.Told) { t.Used = 40000 })}, "warn GPU1: 40000 MiB of memory are taken"},
		{persistence, Host{Machine: told(func(t *topology.Told) { t.Persistence = "Disabled" })}, "warn persistence mode is off on GPU1"},
		{persistence, Host{Machine: told(func(t *topology.Told) { t.Persistence = "Enabled" })}, ""},
		{nvlinks, linked([][]int{{0, 18, 18, 17}, {18, 0, 18, 17}, {18, 18, 0, 17}, {17, 17, 17, 0}}), "fail GPU3 has 17 NVLinks, others 18"},
		{nvlinks, linked([][]int{{0, 18, 18, 0}, {18, 0, 18, 0}, {18, 18, 0, 0}, {0, 0, 0, 0}}), "fail GPU3 has 0 NVLinks, others 18"},
		{nvlinks, linked([][]int{{0, 18, 18}, {18, 0, 18}, {18, 18, 0}}), "pass each GPU has 18 NVLinks"},
		{nvlinks, linked([][]int{{0, 12, 0, 0}, {12, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}), ""}, // a pair with a bridge
		{nvlinks, linked([][]int{{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}), ""},
		{gpuClocks, Host{Machine: told(func(t *topology.Told) { t.Throttled = 0x4 | 0x40 })}, "warn GPU1 is slowed down: too hot, by the hardware"},
		{gpuClocks, Host{Machine: told(func(t *topology.Told) { t.Throttled = 0x4 | 0x1 })}, ""},
		{gpuMode, Host{Machine: told(func(t *topology.Told) { t.Compute = "Prohibited" })}, "fail GPU1 is in the compute mode Prohibited"},
		{gpuMode, Host{Machine: told(func(t *topology.Told) { t.Compute = "Default" })}, ""},
		{fabric, Host{Machine: told(func(t *topology.Told) { t.Fabric = "In Progress" })}, "fail GPU1: its NVLink fabric is In Progress"},
		{fabric, Host{Machine: told(func(t *topology.Told) { t.Fabric, t.FabricStatus = "Completed", "Success" })}, "pass the NVLink fabric is set up"},
		{xid, log(59*time.Minute, "NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, GPU has fallen off the bus."), "fail GPU0 (0000:1b:00): Xid 79, 59m0s ago"},
		{xid, log(20*time.Hour, "NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, GPU has fallen off the bus."), "warn GPU0 (0000:1b:00): Xid 79, 20h0m0s ago"},
		{xid, log(time.Minute, "NVRM: Xid (PCI:0000:df:00): 79, pid=1234, GPU has fallen off the bus."), "pass"},
		{xid, log(time.Minute, "NVRM: Xid (PCI:0000:1b:00): 95, pid=1234, Uncontained"), "fail GPU0 (0000:1b:00): Xid 95"},
		{xid, log(time.Minute, "NVRM: Xid (PCI:0000:1b:00): 63, pid=1234, Row remapper"), "warn GPU0 (0000:1b:00): Xid 63"},
		{xid, log(time.Hour, "NVRM: Xid (PCI:0000:1b:00): 31, pid=1234, MMU fault"), "pass the kernel's log has no fatal Xid"},
		{xid, log(25*time.Hour, "NVRM: Xid (PCI:0000:1b:00): 79, pid=1234"), "pass"},
		{xid, log(time.Minute, "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30"), "fail 0000:05:00.0: Xid 20034"},
		{xid, log(time.Minute, "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 30"), "pass"},
		{xid, Host{Machine: gpus, NoLog: "/dev/kmsg: no such file"}, "unknown the kernel's log cannot be read: /dev/kmsg"},
		{hostname, name("127.0.1.1"), "warn the own name h is 127.0.1.1"},
		{hostname, name("127.0.1.1", "10.0.0.1"), "pass the own name h is 10.0.0.1"},
		{hostname, Host{Resolve: func() (string, []string, error) { return "h", nil, errors.New("no such host") }}, "warn the own name h does not resolve"},
	} {
		t.Run(c.want, func(t *testing.T) {
			all := c.look(c.host, Need{Workers: 8, Nodes: 2})
			got := ""
			if len(all) > 0 {
				got = all[0].Result.String() + " " + all[0].Found
			}
			if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" || len(all) > 1 {
				t.Errorf("got %q of %v", got, all)
			}
		})
	}
}

// The limits of this very process are what the kernel says to it, and its /dev/shm what statfs does.
func TestThisMachine(t *testing.T) {
	m, err := topology.Probe("/")
	if err != nil {
		t.Fatal(err)
	}
	h := Measure("/", m)
	l, ok := h.limit("Max open files")
	var want syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &want); err != nil || !ok || l.hard != int64(want.Max) {
		t.Errorf("%+v %v, want %+v %v", l, ok, want, err)
	}
	s, err := h.Space("/dev/shm")
	if err != nil || s.Size <= 0 || s.Free > s.Size {
		t.Errorf("%+v %v", s, err)
	}
	if newer, known := h.atLeast(3, 10); !newer || !known {
		t.Errorf("Linux %q is older than any", h.Kernel)
	}
	if h.uptime() <= 0 {
		t.Error("no time since the start")
	}
	for _, f := range Check(h, Need{Nodes: 1, Dirs: []string{filepath.Join(t.TempDir(), "to/be/made")}}) {
		if f.Found == "" || f.Result >= Warn && (f.Means == "" || f.Hint == "") {
			t.Errorf("says too little: %+v", f)
		}
	}
}

func FuzzRecord(f *testing.F) {
	f.Add("4,1234,98765432,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1\n SUBSYSTEM=pci\n")
	f.Add(";")
	f.Fuzz(func(t *testing.T, text string) {
		r, ok := parseRecord(text, time.Hour)
		if ok {
			xid(Host{Machine: topology.Machine{GPUs: []topology.GPU{{Vendor: "nvidia", Visible: true}}}, Errors: []Record{r}}, Need{})
		}
	})
}

// Whatever a file holds, checks end with findings.
func FuzzCheck(f *testing.F) {
	files := []string{"proc/self/limits", "proc/self/status", "proc/sys/kernel/numa_balancing", "proc/sys/kernel/osrelease", "proc/uptime", "proc/sys/net/ipv4/ip_local_port_range", "sys/fs/cgroup/pids.max", "sys/fs/cgroup/memory.max"}
	f.Add(uint8(0), "Max open files 1 x files\nMax locked memory\n")
	f.Add(uint8(3), "5.")
	f.Fuzz(func(t *testing.T, which uint8, text string) {
		dir := t.TempDir()
		name := filepath.Join(dir, files[int(which)%len(files)])
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.MkdirAll(filepath.Join(dir, "sys"), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
		checked(t, dir)
	})
}

// A library of an older driver that LD_LIBRARY_PATH leads to is what CUDA fails of; one of a newer driver is what CUDA's compat directory is for.
func TestCompat(t *testing.T) {
	for _, c := range []struct{ path, library, want string }{
		{"/usr/local/cuda/compat:/opt/x", "usr/local/cuda/compat/libcuda.so.550.54.15", "fail LD_LIBRARY_PATH leads to /usr/local/cuda/compat first, a library of the driver 550.54.15; the kernel's is 570.133.20"},
		{"/opt/x::relative:/usr/local/cuda/compat/", "usr/local/cuda/compat/libcuda.so.570.99", "fail LD_LIBRARY_PATH leads to /usr/local/cuda/compat/ first"},
		{"/usr/local/cuda/compat", "usr/local/cuda/compat/libcuda.so.580.65.06", "pass driver and library are 570.133.20"},
		{"/opt/x", "usr/local/cuda/compat/libcuda.so.550.54.15", "pass driver and library are 570.133.20"},
		{"/usr/local/cuda/compat", "usr/local/cuda/compat/libcuda.so.1", "pass driver and library are 570.133.20"},
	} {
		dir := t.TempDir()
		for _, name := range []string{c.library, "usr/lib/x86_64-linux-gnu/libcuda.so.570.133.20"} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		m := topology.Machine{GPUs: []topology.GPU{{Vendor: "nvidia", Visible: true}}}
		m.NVIDIA.Driver = "570.133.20"
		got := driver(Host{Machine: m, Root: topology.Root(dir), Getenv: func(name string) string { return map[string]string{"LD_LIBRARY_PATH": c.path}[name] }}, Need{})
		if len(got) != 1 || !strings.HasPrefix(fmt.Sprint(got[0].Result, " ", got[0].Found), c.want) {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}
