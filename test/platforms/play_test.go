package platforms

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/test/stage"
)

var everything = flag.Bool("all", false, "play also what takes long, or frameworks that are large")

// patience is how long a play may take; the machine may be busy with much else.
const patience = 4 * time.Minute

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
	long  bool
	files map[string]string // what an image has at a path: one of ours
}

// nameserver is its address on each stage.
const nameserver = "10.77.0.254"

func (e example) run(t *testing.T, muster string) {
	s := stage.Open(t, 1)
	s.Switch.Network("ip", "addr add "+nameserver+"/24 dev br0\n")
	names := serveDNS(t, s.Switch.PID(), nameserver)
	pods := e.pods(t, &cluster{ip: func(_ string, nth int) string { return fmt.Sprintf("10.77.0.%d", nth+1) }})
	for _, p := range pods {
		m := s.Add(p.Hostname, p.Hostname)
		if m.Addr != p.IP {
			t.Fatalf("%s has %s, not %s", p.Name, m.Addr, p.IP)
		}
		for _, name := range p.names {
			names.add(name+"."+p.Namespace+".svc.cluster.local", p.IP, sometime())
		}
	}
	programs := map[*pod]*stage.Program{}
	for _, i := range rand.Perm(len(pods)) { // in no order, as they are created
		programs[pods[i]] = e.start(t, s.Machines()[i], pods[i], muster)
	}
	if !s.Await(patience, s.Over) {
		t.Errorf("not all have ended in %v", patience)
	}
	if names.asked() == 0 {
		t.Error("nobody looked for a name")
	}
	for i, p := range pods {
		if code := programs[p].Code(); code != 0 {
			t.Errorf("%s %s", p.Name, programs[p].Ending())
		}
		if want, said := e.says(i), programs[p].Said(); !strings.Contains(said, want) {
			t.Errorf("%s does not say %q, but\n%s", p.Name, want, said)
		}
	}
}

// says is what the worker of a pod tells of itself: all have added up the numbers of all.
func (e example) says(nth int) string {
	n := len(e.ranks)
	return fmt.Sprintf("rank %d of %d: together %d", e.ranks[nth], n, n*(n-1)/2)
}

// furnish makes an image of what this machine has, over which lie the pod's own files; then the program is at its place in it.
const furnish = `
dir=$1 muster=$2 python=$3
mkdir $dir/layers
mount -t tmpfs layers $dir/layers
mkdir $dir/layers/own $dir/layers/work $dir/root
mount -t overlay pod -o lowerdir=/,upperdir=$dir/layers/own,workdir=$dir/layers/work $dir/root
for d in dev proc sys; do mount --rbind /$d $dir/root/$d; done
rm -f $dir/root/etc/resolv.conf $dir/root/etc/hosts $dir/root/etc/hostname
mkdir -p $dir/root/usr/local/bin
ln -sf $python $dir/root/usr/local/bin/python
ln -sf $python $dir/root/usr/local/bin/python3
: > $dir/root/usr/local/bin/muster
mount --bind $muster $dir/root/usr/local/bin/muster
cp -r $4/. $dir/root/
`

// start makes a container of a machine, and runs the pod's command in it.
func (e example) start(t *testing.T, m *stage.Machine, p *pod, muster string) *stage.Program {
	files := t.TempDir()
	put := func(name, text string) {
		path := filepath.Join(files, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range p.Files {
		put(name, text)
	}
	put("/etc/hosts", p.hosts())
	put("/etc/hostname", p.Hostname+"\n")
	put("/etc/resolv.conf", fmt.Sprintf("nameserver %s\nsearch %s.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n", nameserver, p.Namespace))
	put("/run/secrets/kubernetes.io/serviceaccount/namespace", p.Namespace)
	for name, file := range e.play.files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		put(name, string(text))
	}
	if said := m.Ask("sh", "-euc", furnish, "sh", m.Dir, muster, stage.Python(t, "debian"), files); said != "" {
		t.Fatalf("%s: %s", p.Name, said)
	}
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/root", "OMP_NUM_THREADS=1", "MUSTER_NPROC_PER_NODE=1"}
	for _, v := range p.Env {
		env = append(env, v[0]+"="+v[1])
	}
	return m.Run(nil, slices.Concat([]string{"chroot", m.Dir + "/root", "env", "-i", "-C", cmp.Or(p.WorkingDir, "/")}, env, p.Command)...)
}
