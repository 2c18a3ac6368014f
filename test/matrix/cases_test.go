package matrix

import "golang.org/x/sys/unix"

// A case is one kind of loss.
type scene struct {
	name  string
	torch string // Debian's if empty
	play  func(*stage)
}

var cases = []scene{
	{name: "worker killed", torch: "newest", play: workerKilled},
	{name: "agent killed", play: agentKilled(1)},
	{name: "leader's agent killed", play: agentKilled(0)},
	{name: "agent stopped for a while", play: agentStopped},
	{name: "late node", play: lateNode},
	{name: "machine dies, fixed world", play: fixedWorld((*stage).die)},
	{name: "node cut off, fixed world", play: fixedWorld(func(s *stage, h *host) { s.cut(h) })},
}

// A worker is killed: all start again.
func workerKilled(s *stage) {
	s.add(2)
	s.start("--nnodes 2 --nproc-per-node 2 --max-restarts 1")
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
	s.signal(agent, unix.SIGSTOP)
	s.says(s.hosts[0], "(h1): nothing heard for")
	s.signal(agent, unix.SIGCONT)
	s.goesOn()
	s.finish()
}

// The node that hosts the store comes last.
func lateNode(s *stage) {
	s.add(3)
	s.start("--nnodes 3", s.hosts[1])
	s.says(s.hosts[1], "waiting for the store at h0")
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
		if s.hosts[2].alive() {
			s.ends(s.hosts[2:], 138, "(h0) was lost")
		}
	}
}
