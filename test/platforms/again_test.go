package platforms

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muster-run/muster/test/stage"
)

// replaced are the examples whose pods are made again in the middle of their jobs: those where nodes meet by a name, each in its own way.
var replaced = []string{"pytorchjob-volcano", "volcano-job", "trainjob", "jobset", "indexed-job", "lws", "statefulset"}

// TestPodMadeAgain plays jobs of which a pod's machine dies, and the pod is made again on another one: it has the name that it had, and another address. For a while the
// name still leads to where nobody is any more.
func TestPodMadeAgain(t *testing.T) {
	muster := stage.Build(t)
	for i, name := range replaced {
		nth := slices.IndexFunc(all, func(e example) bool { return e.name == name })
		for victim := range 2 {
			if !*everything && (i != 1 || victim != 0) {
				continue
			}
			t.Run(fmt.Sprintf("%s, pod %d", name, victim), func(t *testing.T) {
				t.Parallel()
				all[nth].madeAgain(t, muster, victim)
			})
		}
	}
}

// until is a worker that goes on until its pod has a file.
const until = `echo "up $RANK of $WORLD_SIZE"; while [ ! -e /tmp/over ]; do sleep 0.1; done`

// TestPodMadeAgainAfterSuccess plays jobs whose platform starts again whatever ends. A pod that is made again beside parked ones waits; when all were made
// again, one after the other, the job begins anew.
func TestPodMadeAgainAfterSuccess(t *testing.T) {
	muster := stage.Build(t)
	for _, e := range all {
		if !e.play.parks || !*everything {
			continue
		}
		for victim := range 2 {
			t.Run(fmt.Sprintf("%s, pod %d", e.name, victim), func(t *testing.T) {
				t.Parallel()
				again := e.open(t, muster)
				again.trains(1)
				again.over()
				again.parked()
				for i := range again.pods {
					i = (victim + i) % len(again.pods)
					again.machines[i].Die()
					again.run(i, fmt.Sprint("new", i))
					said := func() bool { return strings.Contains(again.programs[i].Said(), "agents of it are parked") }
					if last := i == (victim+len(again.pods)-1)%len(again.pods); !last && !again.stage.Await(patience, said) {
						t.Fatalf("%s does not hear that the job is over:\n%s", again.pods[i].Name, again.programs[i].Said())
					}
				}
				again.trains(1)
				again.over()
				again.end()
			})
		}
	}
}

func (e example) madeAgain(t *testing.T, muster string, victim int) {
	r := e.open(t, muster)
	r.trains(1)
	r.machines[victim].Die()
	r.run(victim, "new")
	r.trains(2)
	r.over()
	r.end()
	if victim == 0 && !r.names.moved() { // the others look for it alone
		t.Error("nobody was told the old address, and then the new one")
	}
}

// A rerun is the job of an example whose pods are made again.
type rerun struct {
	*testing.T
	example
	muster   string
	stage    *stage.Stage
	names    *dns
	pods     []*pod
	machines []*stage.Machine
	programs []*stage.Program
}

// open starts all pods.
func (e example) open(t *testing.T, muster string) *rerun {
	s := stage.Open(t, 1)
	s.Switch.Network("ip", "addr add "+nameserver+"/24 dev br0\n")
	r := &rerun{T: t, example: e, muster: muster, stage: s, names: serveDNS(t, s.Switch.PID(), nameserver)}
	r.pods = e.pods(t, &cluster{ip: func(_ string, nth int) string { return fmt.Sprintf("10.77.0.%d", nth+1) }})
	r.machines, r.programs = make([]*stage.Machine, len(r.pods)), make([]*stage.Program, len(r.pods))
	for i := range r.pods {
		r.run(i, fmt.Sprint("pod", i))
	}
	return r
}

// run makes a pod, on a machine of its own.
func (r *rerun) run(i int, own string) {
	p := r.pods[i]
	r.machines[i] = r.stage.Add(p.Hostname, own)
	for _, name := range p.names {
		at := r.names.add(name+"."+p.Namespace+".svc.cluster.local", r.machines[i].Addr, 0)
		if before := p.IP; before != r.machines[i].Addr {
			r.names.moves(at, before, 5)
		}
	}
	p.IP, p.Command = r.machines[i].Addr, []string{"muster", "run", "--max-restarts", "1", "--", "sh", "-c", until}
	r.programs[i] = r.start(r.T, r.machines[i], p, r.muster)
}

// trains waits until so many rounds were begun; what a pod said that died is not counted any more.
func (r *rerun) trains(rounds int) {
	r.Helper()
	up := func() (n int) {
		for _, p := range r.programs {
			n += strings.Count(p.Said(), fmt.Sprintf(" of %d\n", len(r.pods)))
		}
		return n
	}
	if want := rounds*len(r.pods) - (rounds - 1); !r.stage.Await(patience, func() bool { return up() >= want }) {
		r.Fatalf("%d workers, not %d", up(), want)
	}
}

// over lets the training end well.
func (r *rerun) over() {
	for i, m := range r.machines {
		if said := m.Ask("touch", m.Dir+"/root/tmp/over"); said != "" {
			r.Fatalf("%s: %s", r.pods[i].Name, said)
		}
	}
}

// parked waits until all pods are.
func (r *rerun) parked() {
	for _, p := range r.programs {
		if !r.stage.Await(patience, func() bool { return strings.Contains(p.Said(), parked) }) {
			r.Fatalf("it does not stay:\n%s", p.Said())
		}
	}
}

// end ends all pods, which have succeeded.
func (r *rerun) end() {
	if r.play.parks {
		r.parked()
	}
	for i, p := range r.programs {
		if r.play.parks {
			stop(r.T, p)
		}
		if p.Wait(); p.Code() != 0 {
			r.Errorf("%s %s:\n%s", r.pods[i].Name, p.Ending(), p.Said())
		}
	}
}
