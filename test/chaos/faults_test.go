package chaos

import (
	"regexp"
	"slices"
)

// A fault is a kind of accident, and what is to be said of it.
type fault struct {
	name   string
	weight int // how often it is drawn, beside others
	play   func(*lap, string)
	etcd   bool   // it needs one
	hosted bool   // it needs a node that hosts the store
	cgroup string // controller that it needs
	then   string // what follows
	own    bool   // a script ends by itself, at its checkpoint: after two rounds in a row with the same end there is no third
}

// Those that end nothing are told, and the same workers go on; after the others all nodes meet again in the same number.
var faults = []fault{
	{name: "worker killed", then: anew, weight: 4, play: workerKilled},
	{name: "agent killed", then: goOn, weight: 4, play: agentKilled},
	{name: "container killed", then: anew, weight: 4, play: containerKilled},
	{name: "first process killed", then: anew, weight: 2, play: firstKilled},
	{name: "agent and first process killed", then: anew, weight: 2, play: bothKilled},
	{name: "machine dies", then: anew, weight: 2, play: machineDies},
	{name: "worker stands still", then: goOn, weight: 2, play: workerStands},
	{name: "agent stands still", then: goOn, weight: 2, play: agentStands},
	{name: "agent stands still for long", then: anew, weight: 2, play: agentStandsLong},
	{name: "connections reset", then: goOn, weight: 2, play: connectionsReset},
	{name: "node cut off for a moment", then: goOn, weight: 2, play: cutShort},
	{name: "node cut off", then: anew, weight: 2, play: cutLong(1)},
	{name: "two halves", then: anew, weight: 2, play: cutLong(2)},
	{name: "leader's container killed", then: anew, weight: 2, play: hostKilled(func(*lap) int { return 0 })},
	{name: "store's host killed", hosted: true, then: anew, weight: 2, play: hostKilled(func(l *lap) int { return l.store })},
	{name: "a node's packets are late", then: goOn, weight: 4, play: packetsLate},
	{name: "disk full", then: goOn, weight: 2, play: diskFull},
	{name: "disk full at a checkpoint", then: anew, weight: 2, play: checkpointFull, own: true},
	{name: "agent without descriptors", then: goOn, weight: 2, play: agentFiles},
	{name: "worker without descriptors", then: anew, weight: 2, play: workerFiles, own: true},
	{name: "worker without memory", then: anew, weight: 2, play: workerMemory, own: true},
	{name: "container without memory", then: anew, weight: 2, play: containerMemory, cgroup: "memory"},
	{name: "container without processes", then: goOn, weight: 2, play: containerPIDs, cgroup: "pids"},
	{name: "etcd restarted", then: goOn, weight: 4, play: etcdRestarted, etcd: true},
	{name: "etcd away, and a worker killed", then: anew, weight: 4, play: etcdAway, etcd: true},
}

const (
	goOn = "the same workers go on"
	anew = "all begin anew"
)

// next draws one, and has it happen some steps later.
func (l *lap) next() {
	l.t.Helper()
	var urn []fault
	wanted := regexp.MustCompile(*only)
	for _, f := range faults {
		here := (!f.etcd || l.aside != nil) && (!f.hosted || l.aside == nil) && (f.cgroup == "" || controls(f.cgroup)) && !(f.own && f.name == l.ended)
		if here && wanted.MatchString(f.name) {
			urn = append(urn, slices.Repeat([]fault{f}, f.weight)...)
		}
	}
	if len(urn) == 0 { // none but what may not come twice in a row
		urn = faults[:1]
	}
	f := urn[l.draw.IntN(len(urn))]
	l.trains(12 + l.draw.IntN(20)) // there is a checkpoint since the last one
	f.play(l, f.name)
	if f.then == anew {
		l.ended = f.name
	}
}

func (l *lap) victim() int { return l.draw.IntN(nodes) }

const lost = `node \d \(h\d\) was lost: `

// A worker is killed: all begin again.
func workerKilled(l *lap, fault string) {
	v := l.victim()
	pid := l.worker(v)
	l.befalls(fault, v)
	l.signal(pid, kill)
	l.told(`was killed by SIGKILL.*; restart \d+ of \d+ follows`)
	l.again(`was killed by SIGKILL`)
}

// An agent is killed: another one takes over, and no worker notices.
func agentKilled(l *lap, fault string) {
	v := l.victim()
	pid := l.agent(v)
	l.befalls(fault, v)
	l.signal(pid, kill)
	l.told(`took over from an agent that died`)
	l.goesOn()
}

// A container is killed, its connections tell, and another one comes in its place.
func containerKilled(l *lap, fault string) { hostKilled((*lap).victim)(l, fault) }

func hostKilled(which func(*lap) int) func(*lap, string) {
	return func(l *lap, fault string) { l.replaced(which(l), fault) }
}

func (l *lap) replaced(v int, fault string) {
	l.t.Helper()
	l.befalls(fault, v)
	l.hosts[v].Die()
	l.told(lost)
	l.replace(v)
	l.again(lost)
}

// The first process of a node is killed; its agent lives to tell.
func firstKilled(l *lap, fault string) {
	v := l.victim()
	p := l.hosts[v].Program()
	first := p.First()
	l.befalls(fault, v)
	l.signal(first, kill)
	l.told(lost)
	l.until("the end of its program", func() bool { return !p.Running() })
	l.run(v)
	l.again(lost)
}

// Both processes of a node are killed, and it is started again at once.
func bothKilled(l *lap, fault string) {
	v := l.victim()
	p := l.hosts[v].Program()
	first, agent := p.First(), l.agent(v)
	l.befalls(fault, v)
	l.signal(first, kill)
	l.signal(agent, kill)
	l.until("the end of its program", func() bool { return !p.Running() })
	l.hosts[v].Ask("sh", "-c", "rm -r $TMPDIR/muster-job-*") // nobody was left who could
	l.run(v)
	l.told(lost)
	l.again(lost)
}

// A machine dies without a word, and another one comes in its place.
func machineDies(l *lap, fault string) {
	v := l.victim()
	l.befalls(fault, v)
	l.cut(v)
	l.hosts[v].Die()
	l.told(lost + `silent for`)
	l.Heal()
	l.replace(v)
	l.again(lost)
}

// A worker stands still for a moment, and so do all that wait for it.
func workerStands(l *lap, fault string) {
	v := l.victim()
	pid := l.worker(v)
	l.befalls(fault, v)
	l.signal(pid, stop)
	l.pause()
	l.signal(pid, cont)
	l.goesOn()
}

// An agent stands still until it is suspected, and not longer.
func agentStands(l *lap, fault string) {
	v := l.victim()
	pid := l.agent(v)
	l.befalls(fault, v)
	l.signal(pid, stop)
	l.told(`nothing heard for`)
	l.signal(pid, cont)
	l.goesOn()
}

// An agent stands still until its node was given up. It comes back.
func agentStandsLong(l *lap, fault string) {
	v := l.victim()
	pid := l.agent(v)
	l.befalls(fault, v)
	l.signal(pid, stop)
	l.told(lost + `silent for`)
	l.signal(pid, cont)
	l.again(lost)
}

// Connections between agents are reset: they are made anew, and no worker notices.
func connectionsReset(l *lap, fault string) {
	port := "29400"
	l.befalls(fault)
	for _, h := range l.hosts {
		_, _ = h.Command("-n", "ss", "-HKtn", "state", "established", "( sport = :"+port+" or dport = :"+port+" )").CombinedOutput() // also of what it cannot end
	}
	l.goesOn()
}

// A node is cut off until it is suspected, and not longer.
func cutShort(l *lap, fault string) {
	v := l.victim()
	l.befalls(fault, v)
	l.cut(v)
	l.told(`nothing heard for`)
	l.Heal()
	l.goesOn()
}

// One node is cut off, or two are, until they are given up. They come back.
func cutLong(n int) func(*lap, string) {
	return func(l *lap, fault string) {
		some := l.draw.Perm(nodes)[:n]
		l.befalls(fault, some...)
		l.cut(some...)
		l.told(lost + `silent for`)
		l.Heal()
		l.again(lost)
	}
}

// The etcd is killed and started again: nobody needs it while a world lives.
func etcdRestarted(l *lap, fault string) {
	l.befalls(fault)
	l.killEtcd()
	l.pause()
	l.serve()
	l.goesOn()
}

// A worker is killed while the etcd is away: the nodes meet when it is back.
func etcdAway(l *lap, fault string) {
	v := l.victim()
	pid := l.worker(v)
	l.befalls(fault, v)
	l.killEtcd()
	l.signal(pid, kill)
	l.told(`was killed by SIGKILL.*; restart \d+ of \d+ follows`)
	l.pause()
	l.serve()
	l.again(`was killed by SIGKILL`)
}

func (l *lap) killEtcd() {
	p := l.aside.Program()
	l.signal(p.First(), kill)
	p.Wait()
}
