package platforms

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/test/stage"
)

var everything = flag.Bool("all", false, "play also what takes long, or frameworks that are large")

// patience is how long a play may take; the machine may be busy with much else.
const patience = 8 * time.Minute

func TestMain(m *testing.M) { stage.Main(m, 3) }

// TestPlays plays the jobs of the examples: each pod is a machine, on which its command runs with the environment, the files and the name that
// it would have. All that may be another is where GPUs are none: then a node has one worker.
func TestPlays(t *testing.T) {
	muster := stage.Build(t)
	for _, e := range all {
		if e.play == nil || e.play.long && !*everything {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			e.run(t, muster)
		})
	}
}

// A play is what of an example's job is not in its manifest.
type play struct {
	long   bool
	python string                 // with which framework; "": Debian's PyTorch
	nproc  int                    // workers on a node; 0: 1
	files  map[string]string      // what an image has at a path: one of ours
	links  map[string]string      // and what links
	says   func(nth int) []string // what a pod says, if not what together.py does
	env    []string               // what an image has
	check  []string               // a command that has nothing to say of what is in its place
	byIP   bool                   // that the platform tells addresses, and no names
	stale  int                    // how often a name leads first to where nobody is any more
	parks  bool                   // pods stay when the training is over, until they are told to end
	served []int                  // pods that end when they are told to, after the others
}

// nameserver is its address on each stage.
const nameserver = "10.77.0.254"

// vacant is an address at which nobody is.
const vacant = "10.77.0.253"

// TestStaleNames plays a job whose pods were made anew: for a while all names lead to where nobody is any more, as caches of DNS have it.
func TestStaleNames(t *testing.T) {
	if !*everything {
		return
	}
	for _, e := range all {
		if e.name == "volcano-job" {
			again := *e.play
			again.stale = 5
			e.play = &again
			e.run(t, stage.Build(t))
		}
	}
}

func (e example) run(t *testing.T, muster string) {
	s := stage.Open(t, 1)
	s.Switch.Network("ip", "addr add "+nameserver+"/24 dev br0\n")
	names := serveDNS(t, s.Switch.PID(), nameserver)
	pods := e.pods(t, &cluster{ip: func(_ string, nth int) string { return fmt.Sprintf("10.77.0.%d", nth+1) }})
	for i, p := range pods {
		m := s.Add(p.Hostname, fmt.Sprint("pod", i)) // interfaces have short names
		if m.Addr != p.IP {
			t.Fatalf("%s has %s, not %s", p.Name, m.Addr, p.IP)
		}
		for _, name := range p.names {
			names.add(name+"."+p.Namespace+".svc.cluster.local", p.IP, sometime())
		}
	}
	if e.play.stale > 0 {
		names.moveAll(vacant, e.play.stale)
	}
	programs := map[*pod]*stage.Program{}
	for _, i := range rand.Perm(len(pods)) { // in no order, as they are created
		programs[pods[i]] = e.start(t, s.Machines()[i], pods[i], muster)
	}
	over := func() bool {
		for i, p := range pods {
			switch {
			case slices.Contains(e.play.served, i):
			case e.play.parks && !strings.Contains(programs[p].Said(), parked), !e.play.parks && programs[p].Running():
				return false
			}
		}
		return true
	}
	if !s.Await(patience, over) {
		t.Errorf("not all have ended in %v", patience)
	}
	for i, p := range pods {
		if e.play.parks || slices.Contains(e.play.served, i) { // whoever deletes the job, or its cleanPodPolicy
			stop(t, programs[p])
		}
	}
	if !s.Await(patience, s.Over) {
		t.Error("who serves does not end")
	}
	if names.asked() == 0 && !e.play.byIP {
		t.Error("nobody looked for a name")
	}
	if e.play.stale > 0 && !names.moved() {
		t.Error("nobody was told an old address, and then the new one")
	}
	for i, p := range pods {
		want := 0
		if slices.Contains(e.play.served, i) {
			want = 128 + int(syscall.SIGTERM)
		}
		if code := programs[p].Code(); code != want {
			t.Errorf("%s %s", p.Name, programs[p].Ending())
		}
		for _, want := range e.says(i) {
			if said := programs[p].Said(); !strings.Contains(said, want) {
				t.Errorf("%s does not say %q, but\n%s", p.Name, want, said)
			}
		}
	}
}

// parked is in what an agent says that stays.
const parked = "; this agent stays until "

// stop tells a container to end, as kubelet does: its first process.
func stop(t *testing.T, p *stage.Program) {
	t.Helper()
	first, err := proc.Root("/proc").Children(p.First())
	if err == nil && len(first) == 1 {
		err = syscall.Kill(first[0], syscall.SIGTERM)
	}
	if err != nil || len(first) != 1 {
		t.Errorf("%d processes in a container, %v", len(first), err)
	}
}

// says is what the worker of a pod tells of itself: all have added up the numbers of all.
func (e example) says(nth int) []string {
	if e.play.says != nil {
		return e.play.says(nth)
	}
	return together(len(e.ranks), e.ranks[nth])
}

// together is what testdata/together.py says of these ranks of n.
func together(n int, ranks ...int) (lines []string) {
	for _, r := range ranks {
		lines = append(lines, fmt.Sprintf("rank %d of %d: together %d", r, n, n*(n-1)/2))
	}
	return lines
}

// furnish makes an image of what this machine has, over which lie the pod's own files; then the program is at its place in it.
const furnish = `
dir=$1 muster=$2
mkdir $dir/layers
mount -t tmpfs layers $dir/layers
mkdir $dir/layers/own $dir/layers/work $dir/root
mount -t overlay pod -o lowerdir=/,upperdir=$dir/layers/own,workdir=$dir/layers/work $dir/root
for d in dev sys; do mount --rbind /$d $dir/root/$d; done
rm -f $dir/root/etc/resolv.conf $dir/root/etc/hosts $dir/root/etc/hostname
mkdir -p $dir/root/usr/local/bin
rm -f $dir/root/usr/local/bin/python*
: > $dir/root/usr/local/bin/muster
mount --bind $muster $dir/root/usr/local/bin/muster
cp -r $3/. $dir/root/
`

// contained makes a command the first process of a container, with which all others end.
const contained = `mount -t proc proc $1/proc; exec chroot "$@"`

// image makes a machine's image: what this one has, and what the pod's is to have.
func (e example) image(t *testing.T, m *stage.Machine, p *pod, muster string) {
	files := t.TempDir()
	put := func(name, text string, mode os.FileMode) {
		path := filepath.Join(files, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range p.Files {
		put(name, text, 0o644)
	}
	put("/etc/hosts", p.hosts(), 0o644)
	put("/etc/hostname", p.Hostname+"\n", 0o644)
	put("/etc/resolv.conf", fmt.Sprintf("nameserver %s\nsearch %s.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n", nameserver, p.Namespace), 0o644)
	if !p.bare {
		put("/run/secrets/kubernetes.io/serviceaccount/namespace", p.Namespace, 0o644)
	}
	for name, file := range e.play.files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		put(name, string(text), mode(t, file))
	}
	if said := m.Ask("sh", "-euc", furnish, "sh", m.Dir, muster, files); said != "" {
		t.Fatalf("%s: %s", p.Name, said)
	}
	for _, path := range slices.Sorted(maps.Keys(e.play.links)) {
		if said := m.Ask("ln", "-sf", e.play.links[path], m.Dir+"/root"+path); said != "" {
			t.Fatalf("%s: %s", p.Name, said)
		}
	}
	for _, argv := range p.inits {
		if said := m.Ask(append([]string{"unshare", "--pid", "--mount", "--fork", "sh", "-euc", `exec >/dev/null; ` + contained, "sh", m.Dir + "/root"}, argv...)...); said != "" {
			t.Fatalf("%s: %q: %s", p.Name, argv, said)
		}
	}
	if e.play.check != nil {
		if said := m.Ask(append([]string{"chroot", m.Dir + "/root"}, e.play.check...)...); said != "" {
			t.Errorf("%q: %s", e.play.check, said)
		}
	}
}

// mode is that of one of our files: scripts are to be run.
func mode(t *testing.T, file string) os.FileMode {
	t.Helper()
	found, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return found.Mode()
}

// start makes a container of a machine, and runs the pod's command in it.
func (e example) start(t *testing.T, m *stage.Machine, p *pod, muster string) *stage.Program {
	e.image(t, m, p, muster)
	argv := []string{"unshare", "--pid", "--fork", "sh", "-euc", contained, "sh", m.Dir + "/root", "env", "-i", "-C", cmp.Or(p.WorkingDir, "/"), "PATH=" + filepath.Dir(e.python(t)) + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
		"HOME=/root", "OMP_NUM_THREADS=1", "CUDA_VISIBLE_DEVICES="}
	if n := e.play.nproc; n >= 0 {
		argv = append(argv, fmt.Sprint("MUSTER_NPROC_PER_NODE=", max(n, 1)))
	}
	argv = append(argv, e.play.env...)
	for _, v := range p.Env {
		argv = append(argv, v[0]+"="+v[1])
	}
	return m.Run(nil, append(argv, p.Command...)...)
}

// python is the one that has the framework.
func (e example) python(t *testing.T) string {
	switch name := e.play.python; name {
	case "":
		return stage.Python(t, "debian")
	case "launchers": // with accelerate
		return stage.Python(t, name)
	}
	return stage.Printed(t, "../interop/python", e.play.python)
}
