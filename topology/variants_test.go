package topology

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-run/muster/topology/fixture"
)

// What is wrong with a machine changes the facts about it that it should, and no others.
func TestVariants(t *testing.T) {
	const port0 = "port mlx5_0 1 "
	for _, c := range []struct {
		name, machine string
		text          func(t testing.TB, text string) string
		root          func(t testing.TB, r Root)
		want          []string // of the lines that change: what they say in full, or with … their beginning
	}{
		{
			name: "an adapter is down", machine: "dgx-h100",
			text: func(t testing.TB, s string) string {
				return fixture.Edit(t, s, port0, "4: ACTIVE", "1: DOWN", "5: LinkUp", "2: Polling", "400 Gb/sec (4X NDR)", "10 Gb/sec (4X SDR)")
			},
			want: []string{
				"+gpu 0 near NODE [mlx5_3 mlx5_4 mlx5_5], cpus 0-55,112-167", "-gpu 0 near PXB [mlx5_0]…",
				"+hca mlx5_0: DOWN Polling, usable false DOWN, Polling: no cable, or nobody at its other end", "-hca mlx5_0: ACTIVE…",
				"+hca mlx5_0: rate 10 4X SDR…", "-hca mlx5_0: rate 400 4X NDR…",
				"-platform dgx, transport ib, compute [mlx5_0…", "+platform dgx, transport ib, compute [mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_9 mlx5_10 mlx5_11]",
			},
		},
		{
			name: "no subnet manager", machine: "dgx-a100",
			text: func(t testing.TB, s string) string {
				return fixture.Edit(t, s, port0, "4: ACTIVE", "2: INIT", "lid=0x20", "lid=0xffff", "sm_lid=0x1", "sm_lid=0x0")
			},
			want: []string{
				"+gpu 0 near PXB [mlx5_1]…", "-gpu 0 near PXB [mlx5_0 mlx5_1]…", "+gpu 1 near PXB [mlx5_1]…", "-gpu 1 near PXB [mlx5_0 mlx5_1]…",
				"+hca mlx5_0: INIT LinkUp, usable false INIT: the link is up, but no subnet manager has set the port up", "-hca mlx5_0: ACTIVE…",
				"+hca mlx5_0: rate 200 4X HDR, lid ffff sm 0", "-hca mlx5_0: rate 200 4X HDR, lid 20 sm 1",
				"-platform dgx, transport ib, compute [mlx5_0…", "+platform dgx, transport ib, compute [mlx5_1 mlx5_2 mlx5_3 mlx5_6 mlx5_7 mlx5_8 mlx5_9]",
			},
		},
		{
			name: "half the lanes", machine: "dgx-h100",
			text: func(t testing.TB, s string) string {
				return fixture.Edit(t, s, port0, "400 Gb/sec (4X NDR)", "200 Gb/sec (2X NDR)")
			},
			want: []string{"+hca mlx5_0: rate 200 2X NDR…", "-hca mlx5_0: rate 400 4X NDR…"},
		},
		{
			name: "half the lanes of an older card", machine: "dgx-a100",
			text: func(t testing.TB, s string) string {
				return fixture.Edit(t, s, port0, "200 Gb/sec (4X HDR)", "100 Gb/sec (2X HDR)")
			},
			want: []string{"+hca mlx5_0: rate 100 2X HDR…", "-hca mlx5_0: rate 200 4X HDR…"},
		},
		{
			name: "half the speed", machine: "dgx-h100",
			text: func(t testing.TB, s string) string {
				return fixture.Edit(t, s, port0, "400 Gb/sec (4X NDR)", "200 Gb/sec (4X HDR)")
			},
			want: []string{"+hca mlx5_0: rate 200 4X HDR…", "-hca mlx5_0: rate 400 4X NDR…"},
		},
		{
			name: "storage's adapters are newer than those for training", machine: "dgx-h100",
			text: func(t testing.TB, s string) string {
				for _, n := range []string{"1", "7"} {
					s = fixture.Edit(t, s, "port mlx5_"+n+" 1 ", "200 Gb/sec (4X HDR)", "800 Gb/sec (4X XDR)")
				}
				return s
			},
			want: []string{"+hca mlx5_1: rate 800 4X XDR…", "-hca mlx5_1: rate 200 4X HDR…", "+hca mlx5_7: rate 800 4X XDR…", "-hca mlx5_7: rate 200 4X HDR…"},
		},
		{
			name: "a kernel that is older than the cards", machine: "dgx-h100",
			text: func(t testing.TB, s string) string {
				for _, n := range []int{0, 3, 4, 5, 6, 9, 10, 11} {
					s = fixture.Edit(t, s, fmt.Sprintf("port mlx5_%d 1 ", n), "400 Gb/sec (4X NDR)", "10 Gb/sec (4X SDR)")
				}
				return s
			},
			want: oldKernel(),
		},
		{
			name: "a counter at its end", machine: "dgx-h100",
			text: func(t testing.TB, s string) string { return fixture.Edit(t, s, port0, "down=0", "down=255") },
		},
		{
			name: "a GPU with half its lanes, at half their speed", machine: "dgx-h100",
			text: func(t testing.TB, s string) string {
				return fixture.Edit(t, s, "pci 0000:43:00.0", "cur=32.0/16", "cur=16.0/8")
			},
			want: []string{"+gpu 1 link 16 GT/s x8 degraded true", "-gpu 1 link 32 GT/s x16 degraded false"},
		},
		{
			name: "another container's GPU, shown by CDI", machine: "dgx-h100",
			root: func(t testing.TB, r Root) { remove(t, r, "dev/nvidia3") },
			want: []string{
				"+gpu 3 0000:61:00.0 /dev/nvidia3 GPU-0000d6a1-0003-4003-8003-000019f4099a: visible false no /dev/nvidia3 in this container", "-gpu 3 0000:61:00.0…",
				"+hidden \"\", slots 7", "-hidden \"\", slots 8",
			},
		},
		{
			name: "another container's GPU, hidden by nvidia-container-cli", machine: "dgx-h100",
			root: func(t testing.TB, r Root) {
				remove(t, r, "dev/nvidia3")
				remove(t, r, "proc/driver/nvidia/gpus/0000:61:00.0")
			},
			want: []string{
				"+gpu 3 0000:61:00.0  : visible false this container was not given it", "-gpu 3 0000:61:00.0…", "+hidden \"\", slots 7", "-hidden \"\", slots 8",
			},
		},
		{
			name: "an adapter whose device is not in the container", machine: "dgx-a100",
			root: func(t testing.TB, r Root) { remove(t, r, "dev/infiniband/uverbs6") },
			want: []string{
				"+gpu 4 near PXB [mlx5_7]…", "-gpu 4…", "+gpu 5 near PXB [mlx5_7]…", "-gpu 5…",
				"+hca mlx5_6: ACTIVE LinkUp, usable false no /dev/infiniband/uverbs6 in this container", "-hca mlx5_6: ACTIVE LinkUp, usable true…",
				"-platform…", "+platform dgx, transport ib, compute [mlx5_0 mlx5_1 mlx5_2 mlx5_3 mlx5_7 mlx5_8 mlx5_9]",
			},
		},
		{
			name: "GIDs of other network namespaces", machine: "roce-8xa800-4nic",
			text: func(t testing.TB, s string) string { return fixture.PodGIDs(s) },
			want: append([]string{"+gid index 7 true", "-gid index 3 true"}, gidChanges()...),
		},
		{
			name: "no DMI", machine: "dgx-h100",
			root: func(t testing.TB, r Root) { remove(t, r, "sys/class/dmi") },
			want: []string{"-dmi…", "+dmi {Vendor: Product: Family: Version: BoardVendor: Board: ChassisVendor: ChassisTag: BIOS:}",
				"-platform dgx…", "+platform generic, transport ib, compute [mlx5_0 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_9 mlx5_10 mlx5_11]"},
		},
		{
			name: "a small cpuset", machine: "dgx-h100",
			root: func(t testing.TB, r Root) {
				write(t, r, "proc/self/status", "Name:\tmuster\nCpus_allowed_list:\t8-15,56-63\nMems_allowed_list:\t0-1\n")
				write(t, r, "proc/self/cgroup", "0::/kubepods/pod1\n")
				write(t, r, "sys/fs/cgroup/kubepods/pod1/cpuset.cpus.effective", "8-15\n")
				write(t, r, "sys/fs/cgroup/kubepods/pod1/cpu.max", "max 100000\n")
				write(t, r, "sys/fs/cgroup/kubepods/cpu.max", "1600000 100000\n")
			},
			want: []string{"+limits {CPUs:8-15,56-63 Nodes:0-1 Set:8-15 Quota:16 From:/sys/fs/cgroup/kubepods/cpu.max Memory:0 Tasks:0 MemoryFrom: TasksFrom:}, usable 8-15",
				"-limits {CPUs: Nodes: Set: Quota:0 From: Memory:0 Tasks:0 MemoryFrom: TasksFrom:}, usable 0-223"},
		},
		{
			name: "AMD's compute driver is open to the container", machine: "mi300x-8gpu-baremetal",
			text: func(t testing.TB, s string) string { return s + "\nfile dev/kfd \"\"\n" },
			want: append([]string{"-hidden \"the machine has 8 accelerators…", "+hidden \"\", slots 8"}, kfdChanges()...),
		},
		{
			name: "a rack's worth of Hyper-V above the host bridges", machine: "azure-nd96isr-h100-v5",
			root: func(t testing.TB, r Root) { underVMBus(t, r) },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := described(t, c.machine)
			if c.text != nil {
				text = c.text(t, text)
			}
			r := expanded(t, text)
			if c.root != nil {
				c.root(t, r)
			}
			compare(t, change(probed(t, machineRoot(t, c.machine)), probed(t, r)), c.want)
		})
	}
}

// compare holds lines against what they should be; … stands for any end.
func compare(t *testing.T, got, want []string) {
	t.Helper()
	left := slices.Clone(want)
	for _, g := range got {
		i := slices.IndexFunc(left, func(w string) bool {
			start, open := strings.CutSuffix(w, "…")
			return g == w || open && strings.HasPrefix(g, start)
		})
		if i < 0 {
			t.Errorf("also changed: %s", g)
			continue
		}
		left = slices.Delete(left, i, i+1)
	}
	for _, w := range left {
		t.Errorf("did not change: %s", w)
	}
}

func remove(t testing.TB, r Root, name string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(string(r), name)); err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, r Root, name, text string) {
	t.Helper()
	file := filepath.Join(string(r), name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func gidChanges() (all []string) {
	for i := range 5 {
		all = append(all, fmt.Sprintf("-hca mlx5_bond_%d: gids [{0 …", i), fmt.Sprintf("+hca mlx5_bond_%d: gids [{4 …", i))
	}
	return all
}

// An adapter for training stays one though all but a few of its kind are down, and storage's are newer.
func TestMostDown(t *testing.T) {
	s := described(t, "dgx-h100")
	for _, n := range []string{"1", "7"} {
		s = fixture.Edit(t, s, "port mlx5_"+n+" 1 ", "200 Gb/sec (4X HDR)", "800 Gb/sec (4X XDR)")
	}
	for _, n := range []string{"0", "3", "4", "5", "6", "9"} {
		s = fixture.Edit(t, s, "port mlx5_"+n+" 1 ", "4: ACTIVE", "1: DOWN")
	}
	if got := Names(probed(t, expanded(t, s)).Compute()); !slices.Equal(got, []string{"mlx5_10", "mlx5_11"}) {
		t.Error(got)
	}
}

func oldKernel() (all []string) {
	for _, n := range []int{0, 3, 4, 5, 6, 9, 10, 11} {
		all = append(all, fmt.Sprintf("-hca mlx5_%d: rate 400 4X NDR…", n), fmt.Sprintf("+hca mlx5_%d: rate 10 4X SDR…", n))
	}
	return all
}

func kfdChanges() (all []string) {
	for i := range 8 {
		all = append(all, fmt.Sprintf("-gpu %d …", i), fmt.Sprintf("+gpu %d …", i))
	}
	return all
}

// underVMBus moves the host bridges to where Hyper-V has them.
func underVMBus(t testing.TB, r Root) {
	t.Helper()
	above := "sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00"
	bridges, err := filepath.Glob(filepath.Join(string(r), "sys/devices/pci*"))
	if err != nil || len(bridges) == 0 {
		t.Fatal("no host bridges", err)
	}
	if err := os.MkdirAll(filepath.Join(string(r), above), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, b := range bridges {
		if err := os.Rename(b, filepath.Join(string(r), above, filepath.Base(b))); err != nil {
			t.Fatal(err)
		}
	}
	err = filepath.Walk(filepath.Join(string(r), "sys"), func(name string, info os.FileInfo, err error) error {
		if err != nil || info.Mode()&os.ModeSymlink == 0 {
			return err
		}
		target, err := os.Readlink(name)
		if err != nil {
			return err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(strings.Replace(name, above, "sys/devices", 1)), target)
		}
		target = strings.Replace(target, "sys/devices/pci", above+"/pci", 1)
		target, err = filepath.Rel(filepath.Dir(name), target)
		if err != nil {
			return err
		}
		_ = os.Remove(name)
		return os.Symlink(target, name)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A GID of another network namespace answers EINVAL, as the kernel has it and no tree can.
func TestGIDsThatCannotBeRead(t *testing.T) {
	tr := machineRoot(t, "roce-8xa800-4nic").tree()
	foreign := func(name string) bool {
		index := filepath.Base(name)
		return strings.Contains(name, "gid_attrs/types/") && (index == "2" || index == "3")
	}
	tr.bytes = func(name string, limit int) ([]byte, error) {
		if foreign(name) {
			return nil, syscall.EINVAL
		}
		return readBytes(name, limit)
	}
	m := probe(tr)
	if i, ok := m.GIDIndex(); !ok || i != 1 {
		t.Errorf("GID index %d, %t; want 1, the only RoCE v2 entry that can be read", i, ok)
	}
	if len(m.Unknown) > 0 || m.Transport() != "roce" {
		t.Errorf("transport %s, unknown %q", m.Transport(), m.Unknown)
	}
}

// Whatever one file answers, the machine is read, and what is not known is said.
func TestFilesThatCannotBeRead(t *testing.T) {
	r := machineRoot(t, "dgx-a100")
	whole := probed(t, r)
	for _, c := range []struct {
		name  string
		err   error
		bytes string
		noted bool
	}{
		{"EIO", syscall.EIO, "", true}, {"EACCES", syscall.EACCES, "", true}, {"ENODEV", syscall.ENODEV, "", false},
		{"empty", nil, "", false}, {"not UTF-8", nil, "\xff\xfe4: ACTIVE\x1b[31m\n", false}, {"huge", nil, strings.Repeat("1 ", maxText), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := r.tree()
			tr.bytes = func(name string, limit int) ([]byte, error) {
				if strings.HasSuffix(name, "mlx5_0/ports/1/state") {
					return []byte(c.bytes)[:min(limit, len(c.bytes))], c.err
				}
				return readBytes(name, limit)
			}
			m := probe(tr)
			if len(m.HCAs) != len(whole.HCAs) || len(m.GPUs) != len(whole.GPUs) {
				t.Fatalf("%d adapters and %d GPUs are left", len(m.HCAs), len(m.GPUs))
			}
			p := m.HCAs[0].Ports[0]
			if p.Usable || p.Why == "" || strings.ContainsFunc(p.Why, func(r rune) bool { return r < ' ' || r == 0xfffd && c.name != "not UTF-8" }) {
				t.Errorf("port %+v", p)
			}
			if noted := len(m.Unknown) == 1 && strings.Contains(m.Unknown[0], "mlx5_0/ports/1/state"); noted != c.noted {
				t.Errorf("unknown: %q", m.Unknown)
			}
		})
	}
}

// Nothing of a machine: files that all fail, a root that is empty, and one that is none.
func TestNoMachine(t *testing.T) {
	tr := machineRoot(t, "dgx-h100").tree()
	tr.bytes = func(string, int) ([]byte, error) { return nil, io.ErrUnexpectedEOF }
	if m := probe(tr); len(m.Unknown) != maxNotes+1 {
		t.Errorf("%d notes: %q", len(m.Unknown), m.Unknown)
	}
	m := probed(t, Root(t.TempDir()))
	if len(m.GPUs)+len(m.HCAs)+len(m.Nodes)+len(m.Unknown) > 0 || m.Platform() != "generic" || m.Transport() != "none" {
		t.Errorf("an empty tree is %+v", m)
	}
	if _, err := Probe("/no/such/root"); err == nil || !strings.Contains(err.Error(), "/no/such/root") {
		t.Errorf("a root that is none: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	write(t, Root(filepath.Dir(file)), "file", "")
	if _, err := Probe(Root(file)); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a root that is a file: %v", err)
	}
}

// A pipe, a directory, a loop of links in the place of a file neither stop nor break a probe.
func TestOddFiles(t *testing.T) {
	r := expanded(t, described(t, "workstation-1gpu"))
	replace := func(name string, with func(path string) error) {
		t.Helper()
		remove(t, r, name)
		if err := with(filepath.Join(string(r), name)); err != nil {
			t.Fatal(err)
		}
	}
	replace("sys/class/dmi/id/sys_vendor", func(p string) error { return syscall.Mkfifo(p, 0o644) })
	replace("sys/class/dmi/id/product_name", func(p string) error { return os.Mkdir(p, 0o755) })
	replace("sys/class/dmi/id/board_name", func(p string) error { return os.Symlink("board_name", p) })
	replace("sys/devices/system/node", func(p string) error { return syscall.Mkfifo(p, 0o644) })
	write(t, r, "sys/class/net/bad\xff\x1bname/type", "1\n")
	m := probed(t, r)
	if len(m.GPUs) != 1 || !m.GPUs[0].Visible || m.DMI.Vendor != "" || len(m.Nodes) > 0 {
		t.Errorf("%+v", m)
	}
	if text := strings.Join(m.Unknown, "\n"); !strings.Contains(text, "product_name") || !strings.Contains(text, "board_name") || !strings.Contains(text, `"bad\xff\x1bname"`) {
		t.Errorf("unknown: %s", text)
	}
}
