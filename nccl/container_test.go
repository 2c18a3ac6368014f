package nccl

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree makes files; one whose text begins with -> is a link.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := strings.CutPrefix(text, "->"); link {
			err = os.Symlink(target, file)
		} else {
			err = os.WriteFile(file, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// library is a shared object with nothing but some constants.
func library(t testing.TB, constants string) string {
	t.Helper()
	const names = "\x00.rodata\x00.names\x00"
	var b bytes.Buffer
	for _, v := range []any{
		elf.Header64{
			Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}, Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64),
			Version: uint32(elf.EV_CURRENT), Ehsize: 64, Shoff: uint64(64 + len(constants) + len(names)), Shentsize: 64, Shnum: 3, Shstrndx: 2,
		},
		[]byte(constants + names), elf.Section64{},
		elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: 64, Size: uint64(len(constants))},
		elf.Section64{Name: 9, Type: uint32(elf.SHT_STRTAB), Off: uint64(64 + len(constants)), Size: uint64(len(names))},
	} {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// Which NCCL a worker would load, and what says so.
func TestVersion(t *testing.T) {
	const site = "/opt/venv/lib/python3.12/site-packages"
	rccl := library(t, "RCCL version : 2.22.3-HEAD:1a2b3c\x00")
	wheel := map[string]string{site + "/nvidia/nccl/lib/libnccl.so.2": "", site + "/nvidia_nccl_cu12-2.27.3.dist-info/METADATA": "", "/opt/venv/bin/python": ""}
	const user = "/root/.local/lib/python3.11/site-packages"
	users, home := map[string]string{
		user + "/nvidia/nccl/lib/libnccl.so.2": "", user + "/nvidia_nccl_cu12-2.19.3.dist-info/METADATA": "", "/usr/bin/python3": "->python3.11", "/usr/bin/python3.11": "", "/usr/bin/python3.10": "",
		"/venv/bin/python": "->../../usr/bin/python3.11", "/venv/pyvenv.cfg": "home = /usr/bin\ninclude-system-site-packages = false\n",
		"/open/bin/python": "->../../usr/bin/python3.11", "/open/pyvenv.cfg": "include-system-site-packages = true\n",
	}, map[string]string{"HOME": "/root"}
	system := map[string]string{"/usr/lib/x86_64-linux-gnu/libnccl.so.2": "->libnccl.so.2.18.5", "/usr/lib/x86_64-linux-gnu/libnccl.so.2.18.5": ""}
	both := map[string]string{"/hpcx/libnccl.so.2": "->libnccl.so.2.21.5", "/hpcx/libnccl.so.2.21.5": ""}
	for name, text := range wheel {
		both[name] = text
	}
	for _, c := range []struct {
		name       string
		files      map[string]string
		env        map[string]string
		python     string
		want, from string
	}{
		{name: "nothing"},
		{name: "a wheel", files: wheel, python: "/opt/venv/bin/python", want: "2.27.3", from: site + "/nvidia_nccl_cu12-2.27.3.dist-info"},
		{name: "a wheel in PYTHONPATH", files: wheel, env: map[string]string{"PYTHONPATH": "relative:" + site}, want: "2.27.3", from: site + "/nvidia_nccl_cu12-2.27.3.dist-info"},
		{name: "a wheel of the user's, of this Python", files: users, env: home, python: "/usr/bin/python3", want: "2.19.3", from: user + "/nvidia_nccl_cu12-2.19.3.dist-info"},
		{name: "a wheel of the user's, of another Python", files: users, env: home, python: "/usr/bin/python3.10"},
		{name: "a wheel of another Python's in the same place", python: "/usr/bin/python3.10", files: map[string]string{
			"/usr/bin/python3.10": "", "/usr/lib/python3.9/site-packages/nvidia/nccl/lib/libnccl.so.2": "", "/usr/lib/python3.9/site-packages/nvidia_nccl_cu12-2.19.3.dist-info/METADATA": "",
		}},
		{name: "a wheel of the user's, not to be seen", files: users, env: map[string]string{"HOME": "/root", "PYTHONNOUSERSITE": "1"}, python: "/usr/bin/python3"},
		{name: "a wheel of the user's, in a virtual environment", files: users, env: home, python: "/venv/bin/python"},
		{name: "a wheel of the user's, in one that sees the system's", files: users, env: home, python: "/open/bin/python", want: "2.19.3", from: user + "/nvidia_nccl_cu12-2.19.3.dist-info"},
		{name: "the system's", files: system, python: "/usr/bin/python3", want: "2.18.5", from: "/usr/lib/x86_64-linux-gnu/libnccl.so.2"},
		{name: "LD_LIBRARY_PATH", files: both, env: map[string]string{"LD_LIBRARY_PATH": "/none:/hpcx"}, want: "2.21.5", from: "/hpcx/libnccl.so.2"},
		{name: "a wheel goes before LD_LIBRARY_PATH", files: both, env: map[string]string{"LD_LIBRARY_PATH": "/hpcx"}, python: "/opt/venv/bin/python", want: "2.27.3", from: site + "/nvidia_nccl_cu12-2.27.3.dist-info"},
		{name: "LD_PRELOAD goes before all", files: both, env: map[string]string{"LD_PRELOAD": "/x.so /hpcx/libnccl.so.2"}, python: "/opt/venv/bin/python", want: "2.21.5", from: "/hpcx/libnccl.so.2"},
		{name: "a directory of ldconfig's", files: map[string]string{"/etc/ld.so.conf.d/nccl.conf": "# NCCL\n/opt/nccl/lib\n", "/opt/nccl/lib/libnccl.so.2": "->libnccl.so.2.30.7", "/opt/nccl/lib/libnccl.so.2.30.7": ""}, want: "2.30.7", from: "/opt/nccl/lib/libnccl.so.2"},
		{name: "RCCL in PyTorch's wheel", python: "/opt/venv/bin/python", want: "2.22.3", from: site + "/torch/lib/librccl.so",
			files: map[string]string{"/opt/venv/bin/python": "", site + "/torch/lib/librccl.so": rccl}},
		{name: "RCCL of ROCm's", want: "2.22.3", from: "/opt/rocm/lib/librccl.so.1",
			files: map[string]string{"/opt/rocm/lib/librccl.so.1": "->librccl.so.1.0.60400", "/opt/rocm/lib/librccl.so.1.0.60400": rccl}},
		{name: "a file that is no library", files: map[string]string{"/usr/lib/libnccl.so.2": "NCCL version 2.19.3+cuda12.3"}, from: "/usr/lib/libnccl.so.2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Look(tree(t, c.files), env(c.env), c.python, "")
			want, _ := ParseVersion(c.want)
			if got.Version != want || got.From != c.from {
				t.Errorf("%v from %q, want %s from %q", got.Version, got.From, c.want, c.from)
			}
		})
	}
}

// The version stands somewhere in a stream, also where two reads meet.
func TestBanner(t *testing.T) {
	for text, want := range map[string]Version{"RCCL version : 2.22.3-HEAD:1a2b3c": {2, 22, 3}, "RCCL version 2.18.3+hip6.0": {2, 18, 3}} {
		if got := banner(strings.NewReader("RCCL version %s\x00" + text + "\n")); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	const text = "NCCL version 2.26.2+cuda12.4"
	for _, before := range []int{0, 1, 100, 256<<10 - 50, 256<<10 - 20, 256<<10 - 1, 256 << 10, 600 << 10} {
		for _, after := range []int{0, 1, 300 << 10} {
			b := bytes.Repeat([]byte("NCCL version %d."), before/16+1)[:before]
			b = append(append(b, "\x00"+text+"\x00"...), make([]byte, after)...)
			if got := banner(bytes.NewReader(b)); got != (Version{2, 26, 2}) {
				t.Errorf("after %d bytes, before %d: %v", before, after, got)
			}
		}
	}
	if got := banner(strings.NewReader("NCCL version 2.x, NCCL version 2")); got != (Version{}) {
		t.Errorf("%v", got)
	}
}

// A library has it among its constants, as this test itself does.
func TestInside(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := container{root: "/", getenv: env(nil)}
	if got := c.inside(self); got.Major != 2 {
		t.Errorf("%v", got)
	}
	if _, known := c.loads(self); !known {
		t.Error("what it loads is not known")
	}
}

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]Version{
		"2.26.2": {2, 26, 2}, "2.26": {2, 26, 0}, "2.26.2+cuda12.4": {2, 26, 2}, "2.26.2.post1": {2, 26, 2}, "550.40.07": {550, 40, 7},
		"": {}, "2": {}, "x.1": {}, "2..3": {}, "99999999.1": {},
	} {
		if got, err := ParseVersion(text); got != want || (err == nil) != (want != Version{}) {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
}

// Which files NCCL reads, and what it reads in them.
func TestFiles(t *testing.T) {
	files := map[string]string{
		"/etc/nccl.conf":   "# a comment\nNCCL_DEBUG=WARN\r\nNCCL_DEBUG=INFO\n NCCL_IB_TC=1\nNCCL_IB_SL =5\nNCCL_SOCKET_IFNAME==eth0 \nno line\n" + strings.Repeat("x", 2000) + "=1\n",
		"/root/.nccl.conf": "NCCL_ALGO=Ring", "/my.conf": "NCCL_PROTO=LL",
	}
	at := func(v string, set map[string]string) string {
		version, _ := ParseVersion(v)
		var names []string
		for _, f := range (container{root: tree(t, files), getenv: env(set)}).conf(version) {
			names = append(names, f.Name)
		}
		return strings.Join(names, " ")
	}
	for _, c := range []struct {
		version string
		env     map[string]string
		want    string
	}{
		{"", map[string]string{"HOME": "/root"}, "/root/.nccl.conf /etc/nccl.conf"},
		{"", map[string]string{"HOME": "/root", "NCCL_CONF_FILE": "/my.conf"}, "/my.conf /etc/nccl.conf"},
		{"2.22.3", map[string]string{"HOME": "/root", "NCCL_CONF_FILE": "/my.conf"}, "/root/.nccl.conf /etc/nccl.conf"},
		{"2.23.4", map[string]string{"HOME": "/root", "NCCL_CONF_FILE": "/gone"}, "/etc/nccl.conf"},
		{"", nil, "/etc/nccl.conf"},
	} {
		if got := at(c.version, c.env); got != c.want {
			t.Errorf("%s %v: %s, want %s", c.version, c.env, got, c.want)
		}
	}
	files["/etc/passwd"] = fmt.Sprintf("root:x:99999:0:root:/none:/bin/sh\nann:x:%d:0:Ann:/home/ann:/bin/sh\n", os.Getuid())
	files["/home/ann/.nccl.conf"] = "NCCL_ALGO=Tree"
	if got := at("", map[string]string{"HOME": "/root"}); got != "/home/ann/.nccl.conf /etc/nccl.conf" {
		t.Errorf("where /etc/passwd has another home than HOME: %s", got)
	}
	got := parseConf(files["/etc/nccl.conf"])
	if len(got) != 2 || got["NCCL_DEBUG"] != "WARN" || got["NCCL_SOCKET_IFNAME"] != "=eth0 " {
		t.Errorf("%q", got)
	}
}

// What else is looked for: plugins, profiles, topologies.
func TestLook(t *testing.T) {
	root := tree(t, map[string]string{
		"/opt/amazon/ofi-nccl/lib/libnccl-net.so": "", "/usr/local/gib/scripts/nccl.conf": "NCCL_IB_TC=52\n", "/var/lib/tcpxo/lib64/nccl-env-profile.sh": "",
		"/job/here.xml": "", "/job/my.conf": "NCCL_PROTO=LL\n", "/job/ucx.conf": "# a comment\nUCX_NET_DEVICES = mlx5_0:1\n",
		"/var/run/nvidia-topologyd/virtualTopology.xml": "", "/etc/nccl.conf": "NCCL_TOPO_FILE=/opt/microsoft/ndv5/topo.xml\n",
	})
	got := Look(root, env(nil), "", "/job")
	if len(got.Plugins) != 1 || got.Profile == nil || got.Profile.Values["NCCL_IB_TC"] != "52" || got.Script == "" || !got.Mapped || got.Missing != "/opt/microsoft/ndv5/topo.xml" {
		t.Errorf("%+v", got)
	}
	if got := Look(root, env(map[string]string{"NCCL_TOPO_FILE": "/etc/nccl.conf"}), "", "/job"); got.Missing != "" {
		t.Errorf("missing: %s", got.Missing)
	}
	for name, missing := range map[string]bool{"here.xml": false, "../etc/nccl.conf": false, "etc/nccl.conf": true} { // from the workers' directory
		if got := Look(root, env(map[string]string{"NCCL_TOPO_FILE": name}), "", "/job"); (got.Missing != "") != missing {
			t.Errorf("missing of %s: %q", name, got.Missing)
		}
	}
	if got := Look(root, env(map[string]string{"NCCL_CONF_FILE": "my.conf"}), "", "/job").Files; len(got) != 2 || got[0].Values["NCCL_PROTO"] != "LL" {
		t.Errorf("a file of the workers' directory: %+v", got)
	}
	if got := Look(root, env(nil), "", "/job").UCX; len(got) != 1 || got[0].Values["UCX_NET_DEVICES"] != "mlx5_0:1" {
		t.Errorf("UCX's: %+v", got)
	}
	if err := os.Mkdir(filepath.Join(root, "etc/ld.so.conf"), 0o755); err != nil { // a directory, and a pipe would be the same
		t.Fatal(err)
	}
	if got := Look(root, env(nil), "/no/python", ""); got.Version != (Version{}) {
		t.Errorf("%+v", got)
	}
}

// Whatever stands in a file, a name has one value, in one line.
func FuzzConf(f *testing.F) {
	f.Add("NCCL_DEBUG=WARN\n#X=1\n")
	f.Add("=\n==\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		for name, value := range parseConf(text) {
			if name == "" || strings.ContainsAny(name, "=\n") || strings.Contains(value, "\n") || !strings.Contains(text, name+"="+value) {
				t.Errorf("%q: %q", name, value)
			}
		}
	})
}

func FuzzVersion(f *testing.F) {
	f.Add("2.26.2+cuda12.4")
	f.Fuzz(func(t *testing.T, text string) {
		v, err := ParseVersion(text)
		if again, err2 := ParseVersion(v.String()); err == nil && (err2 != nil || again != v) {
			t.Errorf("%q: %v, and again %v", text, v, again)
		}
	})
}
