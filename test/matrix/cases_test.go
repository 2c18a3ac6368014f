package matrix

import "golang.org/x/sys/unix"

// A scene is one kind of loss.
type scene struct {
	name  string
	play  func(*stage)
	torch string // Debian's if empty
	both  bool   // torchrun survives it, too
	etcd  often  // whether it is played over etcd, too
}

// often is when a variant of a scene is played.
type often int

const (
	never often = iota
	asked       // with -all
	always
)

var scenes = []scene{
	{name: "worker killed", play: workerKilled, both: true, etcd: asked},
	{name: "agent killed", play: agentKilled(1), etcd: always},
	{name: "leader's agent killed", play: agentKilled(0), etcd: asked},
	{name: "agent stopped for a while", play: agentStopped, etcd: always},
	{name: "connections reset", play: connectionsReset, etcd: asked},
	{name: "late node", play: lateNode, etcd: asked},
	{name: "holder of the first ticket dies", play: firstTicket, etcd: asked},
	{name: "replies to ADD are lost", play: lostReply, etcd: asked},
	{name: "machine dies, fixed world", play: fixedWorld((*stage).die), etcd: asked},
	{name: "node cut off, fixed world", play: fixedWorld(func(s *stage, h *host) { s.cut(h) }), etcd: asked},

	{name: "container killed", play: containerKilled, both: true, etcd: asked},
	{name: "first process killed", play: firstProcessKilled, etcd: asked},
	{name: "leader's container killed", play: leaderKilled, etcd: asked},
	{name: "leader's machine dies", play: leaderDies, etcd: asked},
	{name: "leader's machine dies, then a worker", play: leaderDiesThenAWorker, etcd: asked},
	{name: "member's agent killed, then the leader's machine dies", play: leaderDiesAfterAnHeir, etcd: asked},
	{name: "store's machine dies", play: storeDies},
	{name: "store's pod is replaced", play: podReplaced(0)},
	{name: "member's pod is replaced", play: podReplaced(1)},
	{name: "store's host is back at once", play: hostRestarted(0, 1, 2)},
	{name: "store's host is back at once, and did not lead", play: hostRestarted(2, 0, 1)},
	{name: "node cut off, and healed", play: nodeCutOff, etcd: asked},
	{name: "leader cut off, and healed", play: leaderCutOffAmongMore, etcd: asked},
	{name: "agents cut off, workers not", play: agentsCutOff, torch: "newest", etcd: asked},
	{name: "two halves, and healed", play: twoHalves, etcd: asked},
	{name: "agent stopped for long", play: agentStoppedForLong, etcd: asked},
	{name: "agent stopped, and back at the fence", play: agentBackAtTheFence, etcd: asked},
	{name: "2, 4, 3 nodes", play: scale, both: true, etcd: asked},
	{name: "spare takes over", play: spare, torch: "newest", etcd: asked},
	{name: "spare takes over from a node cut off that stands still", play: spareForCutOff, etcd: asked},

	{name: "etcd member dies", play: etcdMemberDies},
	{name: "leader cut off, and healed, over etcd", play: leaderCutOff},
	{name: "etcd away for 30 s", play: etcdAway},
}

// A worker is killed: all start again.
func workerKilled(s *stage) {
	s.add(2)
	s.start("--nnodes 2 --nproc-per-node 2 --max-restarts 3")
	s.world(4)
	s.kill(s.worker(3))
	s.world(4)
	s.finish()
}

// An agent is killed: another one takes over, and no worker notices.
func agentKilled(victim int) func(*stage) {
	return func(s *stage) {
		s.add(2)
		s.start("--nnodes 2")
		s.world(2)
		h := s.hosts[victim]
		s.kill(h, h.agent())
		s.says(h, "took over from an agent that died")
		s.goesOn()
		s.finish()
	}
}

// An agent stands still for less than the node time-out: nothing happens but that it is suspected.
func agentStopped(s *stage) {
	s.add(2)
	s.start("--nnodes 2")
	s.world(2)
	agent := s.hosts[1].agent()
	s.done("agent stopped", s.hosts[1])
	s.signal(agent, unix.SIGSTOP)
	s.says(s.hosts[0], "(h1): nothing heard for")
	s.signal(agent, unix.SIGCONT)
	s.goesOn()
	s.finish()
}

// Connections between agents are reset, some times over: they are made anew, and no worker notices.
func connectionsReset(s *stage) {
	s.add(3)
	s.start("--nnodes 3")
	s.world(3)
	for range 3 {
		s.reset()
		s.goesOn()
	}
	s.finish()
}

// The node that hosts the store does not come first.
func lateNode(s *stage) {
	s.add(3)
	s.start("--nnodes 3", s.hosts[1])
	if s.aside == nil {
		s.says(s.hosts[1], "waiting for the store at h0")
	} else {
		s.says(s.hosts[1], "1 of 3 nodes here")
	}
	s.start("--nnodes 3", s.hosts[0])
	s.says(s.hosts[1], "2 of 3 nodes here")
	s.start("--nnodes 3", s.hosts[2])
	s.world(3)
	s.finish()
}

// A world that may not change ends on all nodes when one of them is lost. Whoever is cut off sees it the other way round.
func fixedWorld(lose func(*stage, *host)) func(*stage) {
	return func(s *stage) {
		s.add(3)
		s.start("--nnodes 3 --nproc-per-node 1")
		s.world(3)
		lose(s, s.hosts[2])
		s.ends(s.hosts[:2], 138, "(h2) was lost")
		if s.hosts[2].Alive() {
			s.ends(s.hosts[2:], 138, "(h0) was lost")
		}
	}
}

// The node that drew the first ticket, and so closes the round, dies before all have come.
func firstTicket(s *stage) {
	s.add(5)
	end := s.store(s.hosts[0])
	flags := "--nnodes 3 --serve no"
	s.start(flags, s.hosts[1])
	s.says(s.hosts[1], "1 of 3 nodes here (h1)")
	s.start(flags, s.hosts[2])
	s.says(s.hosts[2], "2 of 3 nodes here")
	s.die(s.hosts[1])
	s.start(flags, s.hosts[3:]...)
	s.world(3)
	s.finish(s.hosts[2:]...)
	end()
}

// A node whose counts in the store are done, but whose connection breaks before it learns the sums.
func lostReply(s *stage) {
	s.add(4)
	end := s.store(s.hosts[0])
	before, at := []string{"h0", "29400"}, "h1:29400"
	if s.aside != nil {
		before, at = []string{"etcd", "2379", "/tickets"}, "etcd://h1:2379"
	}
	proxy := s.hosts[1].run(append([]string{"python3", file(s.t, "forgetful.py")}, before...)...)
	s.says(s.hosts[1], "ready")
	s.start("--nnodes 2 --serve no", s.hosts[2])
	s.start("--nnodes 2 --serve no --rdzv-endpoint "+at, s.hosts[3])
	s.world(2)
	s.says(s.hosts[1], " 0 to go")
	s.finish(s.hosts[2:]...)
	end()
	proxy.end()
}
