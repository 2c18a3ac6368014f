package matrix

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Worlds that meet again when one of their nodes is lost, or another one comes.

// elastic are the flags of a job that goes on with fewer nodes, and takes in whoever comes.
const elastic = " --last-call 2s --join-policy now"

// A container is killed: its connections tell.
func containerKilled(s *stage) {
	s.add(3)
	s.start("--nnodes 2:3 --max-restarts 3" + elastic)
	s.world(3)
	s.crash(s.hosts[2])
	s.world(2)
	s.finish(s.hosts[:2]...)
}

// The first process of a node is killed. Its agent lives to tell.
func firstProcessKilled(s *stage) {
	s.add(2)
	s.start("--nnodes 1:2" + elastic)
	s.world(2)
	s.kill(s.hosts[1], s.hosts[1].first())
	s.world(1)
	s.finish(s.hosts[0])
}

// The machine of group rank 0 dies, which leads; the store is elsewhere.
func leaderDies(s *stage) {
	s.add(3)
	s.start("--nnodes 2:3" + s.elsewhere() + elastic)
	s.world(3)
	s.die(s.hosts[0])
	s.world(2)
	s.finish(s.hosts[1:]...)
}

// The same, and while nobody knows yet what became of it, a worker is killed, and its peers fail of that: it may all have come of the loss.
func leaderDiesThenAWorker(s *stage) {
	s.add(3)
	s.start("--nnodes 2:3" + s.elsewhere() + elastic)
	s.world(3)
	s.die(s.hosts[0])
	s.says(s.hosts[1], "(h0): nothing heard for")
	s.kill(s.worker(1))
	s.world(2)
	s.finish(s.hosts[1:]...)
}

// The same as the first, when a member's agent has been replaced before: the new one knows the world, and the way to the store.
func leaderDiesAfterAnHeir(s *stage) {
	s.add(3)
	s.start("--nnodes 2:3" + s.elsewhere() + elastic)
	s.world(3)
	s.kill(s.hosts[1], s.hosts[1].agent())
	s.says(s.hosts[1], "took over from an agent that died")
	s.goesOn()
	s.die(s.hosts[0])
	s.world(2)
	if times := strings.Count(s.hosts[1].Program().Said(), "took over from an agent"); times != 1 {
		s.t.Errorf("h1: agents took over %d times", times)
	}
	s.finish(s.hosts[1:]...)
}

// The container of group rank 0 is killed; the store is elsewhere.
func leaderKilled(s *stage) {
	s.add(3)
	s.start("--nnodes 2:3" + s.elsewhere() + elastic)
	s.world(3)
	s.crash(s.hosts[0])
	s.world(2)
	s.finish(s.hosts[1:]...)
}

// The machine that hosts the store dies, and nothing comes in its place: those who are left cannot meet, and say so.
func storeDies(s *stage) {
	s.add(3)
	s.start("--nnodes 2:3 --rdzv-timeout 10s" + elastic)
	s.world(3)
	s.die(s.hosts[0])
	s.ends(s.hosts[1:], 138, "(h0) was lost", "the store at h0:29400 was away for")
}

// Both processes of the store's host are killed, and it is started again at once: its store knows of no world, and the last call is short. Meanwhile the
// others' workers are slow to stop.
func hostRestarted(indices ...int) func(*stage) {
	return func(s *stage) {
		s.add(len(indices))
		for i, h := range s.hosts {
			h.deaf = true
			s.start(fmt.Sprintf("--nnodes 1:3 --node-rank %d%s", indices[i], elastic), h)
		}
		s.world(3)
		h := s.hosts[0]
		s.killNode(h)
		s.start(fmt.Sprintf("--nnodes 1:3 --node-rank %d%s", indices[0], elastic), h)
		s.world(3)
		s.finish()
	}
}

// A pod is replaced, the one that hosts the store or another: the same name and index, another address.
func podReplaced(victim int) func(*stage) {
	return func(s *stage) {
		s.add(2)
		flags := []string{"--nnodes 2 --max-restarts 1 --node-rank 0", "--nnodes 2 --max-restarts 1 --node-rank 1"}
		for i, h := range s.hosts {
			s.start(flags[i], h)
		}
		s.world(2)
		left := s.hosts[1-victim]
		s.die(s.hosts[victim])
		again := s.connect(fmt.Sprint("h", victim))
		s.start(flags[victim], again)
		s.world(2)
		s.finish(again, left)
	}
}

// One node is cut off, and keeps running, with a worker that does not heed TERM. The others wait until it is gone all the
// same. The node comes back when it can.
func nodeCutOff(s *stage) {
	s.add(3)
	s.hosts[2].deaf = true
	s.start("--nnodes 2:3" + elastic)
	s.world(3)
	s.cut(s.hosts[2])
	s.world(2)
	s.heal()
	s.world(3)
	s.finish()
}

// The same with the node that leads, of a job for which one node is enough: on either side there would be enough for a world.
func leaderCutOffAmongMore(s *stage) {
	s.add(3)
	s.hosts[0].deaf = true
	s.start("--nnodes 1:3" + elastic + s.elsewhere())
	s.world(3)
	s.cut(s.hosts[0])
	s.world(2)
	s.heal()
	s.world(3)
	s.finish()
}

// The agents do not hear each other, for longer than the node time-out, and all the while the training advances: nobody is given
// up, and no worker notices. When a rank stands still then, they are as any that are cut off.
func agentsCutOff(s *stage) {
	s.add(3)
	s.start("--nnodes 2:3" + elastic)
	s.world(3)
	s.hush()
	s.allSay("its workers still take part in collectives: it is waited for")
	s.goesOn()
	s.heal()
	s.allSay("heard again")
	s.goesOn()
	s.hush()
	_, first := s.worker(0)
	s.signal(first, unix.SIGSTOP)
	s.allSay("was lost: silent for")
	s.heal()
	s.world(3)
	s.finish()
}

// The network falls into two halves. Only the one with the store can meet; when the other finds it again, all go on.
func twoHalves(s *stage) {
	s.add(4)
	s.start("--nnodes 2:4" + elastic)
	s.world(4)
	s.cut(s.hosts[2:]...)
	s.world(2)
	s.heal()
	s.world(4)
	s.finish()
}

// An agent stands still for longer than the node time-out. Its node was given up, and comes back when it goes on.
func agentStoppedForLong(s *stage) {
	s.add(3)
	s.start("--nnodes 2:3" + elastic)
	s.world(3)
	h := s.hosts[2]
	s.done("agent stopped", h)
	agent := h.agent()
	s.signal(agent, unix.SIGSTOP)
	s.world(2)
	s.done("agent continued")
	s.signal(agent, unix.SIGCONT)
	s.world(3)
	s.finish()
}

// An agent stands still until its node is given up, and goes on while the others wait for the end of its workers: it is in the next world
// with both of them, and not in the place of one.
func agentBackAtTheFence(s *stage) {
	s.add(3)
	s.start("--nnodes 2:3" + elastic)
	s.world(3)
	before := s.seats(0)
	h := s.hosts[2]
	s.done("agent stopped", h)
	agent := h.agent()
	s.signal(agent, unix.SIGSTOP)
	s.says(s.hosts[0], "(h2) was lost: silent for")
	s.signal(agent, unix.SIGCONT)
	s.world(3)
	if after := s.seats(1); !slices.Equal(after, before) {
		s.t.Errorf("the next world is %q, and was %q", after, before)
	}
	s.finish()
}

// Two nodes begin, two more come, one of them dies.
func scale(s *stage) {
	s.add(4)
	flags := "--nnodes 2:4 --max-restarts 3" + elastic
	s.start(flags, s.hosts[:2]...)
	s.world(2)
	s.start(flags, s.hosts[2:]...)
	s.world(4)
	s.die(s.hosts[3])
	s.world(3)
	s.finish(s.hosts[:3]...)
}

// A spare takes the place of a machine that dies. Another one is not needed, and ends with the job.
func spare(s *stage) {
	s.add(4)
	s.start("--nnodes 2 --spares 2")
	s.world(2)
	lost, _ := s.worker(1)
	s.die(lost)
	s.world(2)
	s.finish(others(s.hosts, lost)...)
}

// A spare takes the place of a node that is cut off, and whose agent cannot stop its worker, for it stands still itself. The
// node comes back as a spare.
func spareForCutOff(s *stage) {
	s.add(3)
	s.start("--nnodes 2 --spares 1")
	s.world(2)
	lost, _ := s.worker(1)
	agent := lost.agent()
	s.cut(lost)
	s.signal(agent, unix.SIGSTOP)
	s.world(2)
	s.signal(agent, unix.SIGCONT)
	s.heal()
	s.says(lost, "generation 2 of this job has been running")
	s.goesOn()
	s.finish()
}

func others(hosts []*host, lost *host) (left []*host) {
	for _, h := range hosts {
		if h != lost {
			left = append(left, h)
		}
	}
	return left
}
