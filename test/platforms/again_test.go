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

func (e example) madeAgain(t *testing.T, muster string, victim int) {
	s := stage.Open(t, 1)
	s.Switch.Network("ip", "addr add "+nameserver+"/24 dev br0\n")
	names := serveDNS(t, s.Switch.PID(), nameserver)
	pods := e.pods(t, &cluster{ip: func(_ string, nth int) string { return fmt.Sprintf("10.77.0.%d", nth+1) }})
	machines, programs := make([]*stage.Machine, len(pods)), make([]*stage.Program, len(pods))
	run := func(i int, own string) {
		p := pods[i]
		machines[i] = s.Add(p.Hostname, own)
		for _, name := range p.names {
			r := names.add(name+"."+p.Namespace+".svc.cluster.local", machines[i].Addr, 0)
			if before := p.IP; before != machines[i].Addr {
				names.moves(r, before, 5)
			}
		}
		p.IP, p.Command = machines[i].Addr, []string{"muster", "run", "--max-restarts", "1", "--", "sh", "-c", until}
		programs[i] = e.start(t, machines[i], p, muster)
	}
	up := func() (n int) {
		for _, p := range programs {
			n += strings.Count(p.Said(), fmt.Sprintf(" of %d\n", len(pods)))
		}
		return n
	}
	for i := range pods {
		run(i, fmt.Sprint("pod", i))
	}
	if !s.Await(patience, func() bool { return up() >= len(pods) }) {
		t.Fatalf("%d workers of %d", up(), len(pods))
	}
	machines[victim].Die()
	run(victim, "new")
	if !s.Await(patience, func() bool { return up() >= 2*len(pods)-1 }) { // what the one that died said is not counted any more
		t.Fatalf("%d workers of %d, twice but for one", up(), len(pods))
	}
	for i, m := range machines {
		if said := m.Ask("touch", m.Dir+"/root/tmp/over"); said != "" {
			t.Fatalf("%s: %s", pods[i].Name, said)
		}
	}
	for i, p := range programs {
		if e.play.parks {
			s.Await(patience, func() bool { return strings.Contains(p.Said(), parked) })
			stop(t, p)
		}
		if p.Wait(); p.Code() != 0 {
			t.Errorf("%s %s:\n%s", pods[i].Name, p.Ending(), p.Said())
		}
	}
	if victim == 0 && !names.moved() { // the others look for it alone
		t.Error("nobody was told the old address, and then the new one")
	}
}
