package dialect

import (
	"slices"
	"strings"
	"testing"

	"github.com/muster-run/muster/job"
)

// Whatever stands in a hostfile and in a filter, what is left is of the hostfile, in its order.
func FuzzHostfile(f *testing.F) {
	f.Add("worker-0 slots=4\nworker-1\tslots=03 x\n\n# y\n", "worker-0@worker-1:0,2")
	f.Add("fd00::6 slots=2\n10.0.0.7 slots=0\n", "fd00::6:1")
	f.Add("w slots=4097\n", "w:,")
	f.Fuzz(func(t *testing.T, text, spec string) {
		hosts, err := parseHostfile("hosts", text)
		if err != nil {
			return
		}
		for _, name := range []string{"include", "exclude"} {
			left, err := filter(hosts, said{name: name, value: spec, as: "--" + name})
			if err != nil {
				continue
			}
			for i, h := range left {
				if h.name != hosts[i].name || !slices.IsSorted(h.slots) || slices.ContainsFunc(h.slots, func(s int) bool { return !slices.Contains(hosts[i].slots, s) }) {
					t.Fatalf("%s %s leaves %v of %v", name, spec, left, hosts)
				}
			}
		}
	})
}

// What is wrong with a hostfile is said in a line that people read, however long the file's are.
func TestHostfileHasBounds(t *testing.T) {
	long := strings.Repeat("\x00", 200<<10)
	for name, text := range map[string]string{
		"no slots": long + "\n", "a word": "w slots=" + long + "\n", "twice": long + " slots=1\n" + long + " slots=1\n", "too much": strings.Repeat("# x\n", maxFile/4+1),
	} {
		if _, err := parseHostfile("hosts", text); err == nil || len(err.Error()) > 1<<10 {
			t.Errorf("%s: %.200v", name, err)
		}
	}
	hosts, err := parseHostfile("hosts", strings.Repeat("w", 200<<10)+" slots=1\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range []string{"x", hosts[0].name + ":1", hosts[0].name + ":x", hosts[0].name + ":"} {
		if _, err := filter(hosts, said{name: "include", value: spec, as: "--include"}); err == nil || len(err.Error()) > 1<<10 {
			t.Errorf("%.20s: %.200v", spec, err)
		}
	}
}

// What a file of variables says has names, and no line of it is two.
func FuzzExports(f *testing.F) {
	f.Add("A=1\nexport B = ${A} x\n#\n")
	f.Add("A=$(x)\n")
	f.Add("A=$\n=\n")
	f.Fuzz(func(t *testing.T, text string) {
		env, err := exports(host("h", nil, nil), "file", text, nil)
		if err == nil && slices.ContainsFunc(env, func(v job.Var) bool { return v.Name == "" || strings.ContainsAny(v.Name+v.Value, "\n\x00") }) {
			t.Fatalf("%q", env)
		}
	})
}

// A node is found by what it is called there, and by nothing that only begins alike.
func TestHere(t *testing.T) {
	etc := map[string]string{"/etc/hosts": "127.0.0.1 localhost\n10.0.0.7 node-c.example node-c alias # x\n10.0.0.8 node-d\n"}
	trie := map[string]string{"/proc/net/fib_trie": "|-- 10.0.0.0\n/24 link UNICAST\n|-- 10.0.0.5\n/32 host LOCAL\n"}
	for _, c := range []struct {
		me    string
		files map[string]string
		hosts string
		want  int
	}{
		{"worker-1", nil, "worker-0 worker-1", 1},
		{"worker-1", nil, "worker-0 worker-1.job.svc", 1},
		{"worker-1.job.svc", nil, "worker-0 worker-1", 1},
		{"worker-1", nil, "worker-10 worker-11", -1},
		{"worker-1.a", nil, "worker-1.b", -1},
		{"node-c", etc, "10.0.0.8 10.0.0.7", 1},
		{"node-c", etc, "node-d alias", 1},
		{"node-c", etc, "node-c.other node-c.example", 1}, // the whole name first
		{"node-d", etc, "10.0.0.7 node-c", -1},
		{"x", trie, "10.0.0.0 10.0.0.5", 1},
		{"x", nil, "y localhost", 1},
		{"", nil, "y z", -1},
	} {
		var hosts []slotted
		for name := range strings.FieldsSeq(c.hosts) {
			hosts = append(hosts, slotted{name: name})
		}
		if got := here(host(c.me, nil, c.files), hosts); got != c.want {
			t.Errorf("%s among %s: %d, want %d", c.me, c.hosts, got, c.want)
		}
	}
}
