package topology

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParseAddress(t *testing.T) {
	for text, want := range map[string]string{
		"0000:1b:00.0": "0000:1b:00.0", "00000000:1B:00.0": "0000:1b:00.0", "c941:00:02.7": "c941:00:02.7", "10000:e0:06.0": "10000:e0:06.0",
		"": "", "1b:00.0": "", "0000:1b:00": "", "0000:1b:20.0": "", "0000:1b:00.8": "", "0000:1b:00.00": "", "-001:1b:00.0": "", "100000000:1b:00.0": "", "0000:1b:00.0 ": "",
	} {
		a, err := ParseAddress(text)
		if a.String() != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v; want %q", text, a, err, want)
		}
	}
}

func TestParseCPUs(t *testing.T) {
	for text, want := range map[string]string{
		"0-3,8": "0-3,8", " 0,1 \n": "0-1", "": "", "112-167,0-55": "0-55,112-167", "3,3,2": "2-3",
		"3-1": "wrong", "a": "wrong", "1,": "wrong", "-1": "wrong", "0-4294967295": "wrong", "0-65535,0-65535": "wrong", "70000": "wrong",
	} {
		set, err := ParseCPUs(text)
		if got := set.String(); err != nil && want != "wrong" || err == nil && got != want {
			t.Errorf("%q is %q, %v; want %q", text, got, err, want)
		}
	}
	a, _ := ParseCPUs("0-3,8")
	b, _ := ParseCPUs("2-9")
	if got := a.And(b).String(); got != "2-3,8" {
		t.Errorf("both have %s", got)
	}
}

// The kernel's own strings (drivers/infiniband/core/sysfs.c), of several versions.
func TestRate(t *testing.T) {
	for text, want := range map[string]string{
		"400 Gb/sec (4X NDR)": "400 4 NDR", "200 Gb/sec (2X NDR)": "200 2 NDR", "2.5 Gb/sec (1X SDR)": "2.5 1 SDR", "10 Gb/sec (4X)": "10 4 ",
		"40 Gb/sec (4X FDR10)": "40 4 FDR10", "800 Gb/sec (4X XDR)": "800 4 XDR", "": "0 0 ", "fast": "0 0 ", "-1 Gb/sec (4X NDR)": "0 0 ", "NaN Gb/sec (4X NDR)": "0 0 ", "400 Gb/sec": "400 0 ",
		"400 Gb/sec (999999999999X NDR)": "400 0 NDR",
	} {
		gbps, lanes, speed := rate(text)
		if got := fmt.Sprintf("%g %d %s", gbps, lanes, speed); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{"4: ACTIVE": "ACTIVE", "5: ACTIVE_DEFER": "ACTIVE_DEFER", "9: <unknown>": "unknown", "ACTIVE": "ACTIVE", "": ""} {
		if got := word(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func TestDriverVersion(t *testing.T) {
	for text, want := range map[string]string{
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build  (dvs-builder@U22-A23-20-3)\nGCC version: 11\n": "570.133.20 true",
		"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.65.06  Release Build":                                                "580.65.06 true",
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Fri Feb 23 03:53:30 UTC 2024\n":                                        "535.161.08 false",
		"something else": " false",
	} {
		r := Root(t.TempDir())
		write(t, r, "proc/driver/nvidia/version", text)
		n := r.tree().driverNVIDIA()
		if got := fmt.Sprintf("%s %t", n.Driver, n.Open); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func TestCard(t *testing.T) {
	c := parseCard("Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 205\nGPU UUID: \t GPU-????????-????-????-????-????????????\nDevice Minor: \t 3\nGPU Excluded:\t Yes\n")
	if c != (card{model: "NVIDIA H100 80GB HBM3", minor: 3, excluded: true}) {
		t.Errorf("%+v", c)
	}
	if c := parseCard("Device Minor: 99999999999999999999\n"); c.minor != -1 {
		t.Errorf("%+v", c)
	}
}

// The limits of a process, as cgroups of both versions have them, and as a container shows them.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string // usable, quota, where from
	}{
		{"nothing is told", nil, "0-7 0 "},
		{"version 2, limited above", map[string]string{
			"proc/self/status": "Cpus_allowed_list:\t0-5\n", "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/cpu.max": "150000 100000\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n", "sys/fs/cgroup/a/b/cpuset.cpus.effective": "4-7\n",
		}, "4-5 1.5 /sys/fs/cgroup/a/cpu.max"},
		{"version 1, whose path is the host's", map[string]string{
			"proc/self/status": "Cpus_allowed_list:\t0-7\n", "proc/self/cgroup": "4:cpu,cpuacct:/docker/abc\n3:cpuset:/docker/abc\n",
			"proc/self/mountinfo":                        "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro,relatime - cgroup cgroup rw,cpu,cpuacct\n33 31 0:30 /docker/abc /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n",
			"sys/fs/cgroup/cpuset/cpuset.cpus":           "0-3\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "200000\n", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
		}, "0-3 2 /sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us"},
		{"version 1 without a quota", map[string]string{
			"proc/self/cgroup": "1:cpu:/\n", "proc/self/mountinfo": "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
		}, "0-7 0 "},
		{"mounted at the root, and nonsense", map[string]string{
			"proc/self/cgroup": "0::/../../a\n::\nx\n", "proc/self/mountinfo": "1 1 0:1 / / rw - cgroup2 c rw\n1 - \n", "a/cpu.max": "nonsense\n", "cpu.max": "100000\n",
		}, "0-7 1 /cpu.max"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Root(t.TempDir())
			for name, text := range c.files {
				write(t, r, name, text)
			}
			online, _ := ParseCPUs("0-7")
			l := r.tree().limits()
			if got := fmt.Sprintf("%s %g %s", l.Usable(online), l.Quota, l.From); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestRelate(t *testing.T) {
	at := func(path string, node int) PCI {
		parts := strings.Fields(path)
		a, _ := ParseAddress(parts[len(parts)-1])
		return PCI{Address: a, NUMA: node, Path: parts}
	}
	gpu := at("pci0000:15 0000:15:01.0 0000:16:00.0 0000:17:01.0 0000:1b:00.0", 0)
	for _, c := range []struct {
		to   PCI
		want Relation
	}{
		{gpu, Same},
		{at("pci0000:15 0000:15:01.0 0000:16:00.0 0000:17:00.0 0000:18:00.0", 0), PIX},
		{at("pci0000:15 0000:15:01.0 0000:16:00.0 0000:17:02.0 0000:19:00.0 0000:1a:00.0 0000:1c:00.0", 0), PXB},
		{at("pci0000:15 0000:15:02.0 0000:20:00.0", 0), PHB},
		{at("pci0000:30 0000:30:01.0 0000:31:00.0", 0), NODE},
		{at("pci0000:30 0000:30:01.0 0000:31:00.0", 1), SYS},
		{at("pci0000:30 0000:30:01.0 0000:31:00.0", -1), SYS},
		{PCI{NUMA: -1}, SYS},
	} {
		if got := Relate(gpu, c.to); got != c.want || Relate(c.to, gpu) != c.want {
			t.Errorf("to %v: %v, want %v", c.to.Path, got, c.want)
		}
	}
	if a, b := at("0000:00:05.0", -1), at("0000:00:06.0", -1); Relate(a, b) != SYS {
		t.Error("two whose place is not known are related")
	}
}

func TestBelow(t *testing.T) {
	for dir, want := range map[string]string{
		"sys/devices/pci0000:00/0000:00:03.0/virtio2/net/eth0":                     "pci0000:00 0000:00:03.0",
		"sys/devices/LNXSYSTM:00/VMBUS:00/47505500/pci0001:00/0001:00:00.0":        "pci0001:00 0001:00:00.0",
		"sys/devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/nvme/nvme0": "pci0000:00 0000:00:0e.0 pci10000:e0 10000:e0:06.0",
		"sys/devices/platform/soc/1c08000.pcie/pci0000:00/0000:00:00.0":            "pci0000:00 0000:00:00.0",
		"sys/devices/virtual/net/lo":                                               "",
		"sys/devices/pci0000:5d/0000:5d:00.0/infiniband/mlx5_0":                    "pci0000:5d 0000:5d:00.0",
		"": "",
	} {
		if got := strings.Join(below(dir), " "); got != want {
			t.Errorf("%s is %q, want %q", dir, got, want)
		}
	}
}

func TestNatural(t *testing.T) {
	names := []string{"mlx5_10", "mlx5_2", "rdmap79s0", "mlx5_1", "mlx5_02", "ib", "rdmap113s0"}
	slices.SortFunc(names, natural)
	if got := strings.Join(names, " "); got != "ib mlx5_1 mlx5_2 mlx5_02 mlx5_10 rdmap79s0 rdmap113s0" && got != "ib mlx5_1 mlx5_02 mlx5_2 mlx5_10 rdmap79s0 rdmap113s0" {
		t.Error(got)
	}
}

// What is no PCI address, or class, is told of wherever it stands.
func TestMalformed(t *testing.T) {
	r := expanded(t, described(t, "workstation-1gpu"))
	for name, text := range map[string]string{
		"sys/bus/pci/devices/zzzz:00:00.0/class": "0x030200", "sys/bus/pci/devices/0000:02:00.8/class": "0x030200", "sys/bus/pci/devices/0000:03:00.0/class": "banana",
		"proc/driver/nvidia/gpus/00000000:0g:00.0/information": "Model: x", "sys/class/infiniband/mlx5_0/node_type": "1: CA",
	} {
		write(t, r, name, text+"\n")
	}
	if err := os.Symlink("../../../devices/pci0000:00/0000:0x:00.0", filepath.Join(string(r), "sys/class/infiniband/mlx5_0/device")); err != nil {
		t.Fatal(err)
	}
	m := probed(t, r)
	for _, want := range []string{
		"sys/bus/pci/devices: \"zzzz:00:00.0\" is no PCI address", "sys/bus/pci/devices: \"0000:02:00.8\" is no PCI address", "sys/bus/pci/devices/0000:03:00.0/class: \"banana\" is no PCI class",
		"proc/driver/nvidia/gpus: \"00000000:0g:00.0\" is no PCI address", "sys/class/infiniband/mlx5_0/device: \"0000:0x:00.0\" is no PCI address",
	} {
		if !slices.ContainsFunc(m.Unknown, func(u string) bool { return strings.HasPrefix(u, want) }) {
			t.Errorf("nothing says %s: %q", want, m.Unknown)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{
		"0-3,8", "0000:1b:00.0", "400 Gb/sec (4X NDR)", "4: ACTIVE", "32.0 GT/s PCIe", "Model: \t\t X\nDevice Minor: 3\n", "simd_count 1216\n",
		"0::/a\n4:cpu:/b\n", "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n", "DeviceFileMinor: 30\n", "max 100000", "../../../devices/pci0000:00/0000:00:03.0",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if set, err := ParseCPUs(s); err == nil {
			again, err := ParseCPUs(set.String())
			if err != nil || !slices.Equal(set, again) || !slices.IsSorted(set) {
				t.Errorf("%q is %v, which is written %q", s, set, set)
			}
		}
		if a, err := ParseAddress(s); err == nil && a != (Address{}) {
			if again, err := ParseAddress(a.String()); err != nil || again != a {
				t.Errorf("%q is %v, and again %v, %v", s, a, again, err)
			}
		}
		if gbps, lanes, _ := rate(s); gbps < 0 || lanes < 0 || lanes > 16 {
			t.Errorf("%q: %g in %d lanes", s, gbps, lanes)
		}
		if v := speed(s); v < 0 || v > 1000 {
			t.Errorf("%q: %g", s, v)
		}
		if c := parseCard(s); c.minor < -1 || c.minor > maxMinor {
			t.Errorf("%q: %+v", s, c)
		}
		if n, ok := capability(s); ok && (n < 0 || n > maxMinor) {
			t.Errorf("%q: %d", s, n)
		}
		if parseMax(s) < 0 {
			t.Errorf("%q is a negative quota", s)
		}
		word(s)
		parseProperties(s)
		parseCgroups(s)
		parseCgroupMounts(s)
		addressIn(s)
		natural(s, "mlx5_0")
	})
}

// A tree in which one file is anything at all.
func FuzzProbe(f *testing.F) {
	names := []string{
		"proc/self/cgroup", "proc/self/mountinfo", "proc/self/status", "proc/driver/nvidia/version", "proc/driver/nvidia/gpus/0000:01:00.0/information", "proc/cpuinfo",
		"sys/devices/system/cpu/online", "sys/devices/system/node/node0/cpulist", "sys/devices/system/node/node0/meminfo", "sys/bus/pci/devices/0000:01:00.0/class",
		"sys/bus/pci/devices/0000:01:00.0/numa_node", "sys/class/net/enp5s0/speed", "sys/class/kfd/kfd/topology/nodes/1/properties", "sys/class/infiniband/a/ports/1/rate",
		"sys/class/infiniband/a/ports/1/gids/0", "sys/class/infiniband_verbs/uverbs0/ibdev", "proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access",
	}
	root := machineRoot(f, "workstation-1gpu")
	f.Add(uint8(0), "0::/a\n")
	f.Add(uint8(12), "simd_count 10\nlocation_id 256\ndrm_render_minor 128\n")
	f.Fuzz(func(t *testing.T, which uint8, text string) {
		tr := root.tree()
		tr.bytes = func(name string, limit int) ([]byte, error) {
			if strings.HasSuffix(name, names[int(which)%len(names)]) {
				return []byte(text)[:min(limit, len(text))], nil
			}
			return readBytes(name, limit)
		}
		m := probe(tr)
		if len(m.Affinity()) != len(m.GPUs) || len(m.Unknown) > maxNotes+1 {
			t.Errorf("%+v", m)
		}
		m.Platform()
		m.GIDIndex()
	})
}
