package matrix

import (
	"fmt"
	"syscall"

	machines "github.com/muster-run/muster/test/stage"
)

// A host is a machine of a job.
type host struct {
	*machines.Machine
	s    *stage
	deaf bool // its workers ignore TERM
}

// add makes hosts h0, h1 and so on, which can reach each other.
func (s *stage) add(n int) {
	s.t.Helper()
	for range n {
		s.connect(fmt.Sprint("h", len(s.hosts)))
	}
}

// connect makes a host of a name, which from then on means this one.
func (s *stage) connect(name string) *host {
	s.t.Helper()
	h := s.machine(name, fmt.Sprint("m", len(s.hosts)))
	s.hosts = append(s.hosts, h)
	return h
}

// machine makes a host that is none of the job's.
func (s *stage) machine(name, own string) *host {
	s.t.Helper()
	return &host{Machine: s.Add(name, own, s.kit.muster, "init", "--"), s: s}
}

// A program is an agent, or whatever else was started on a host.
type program struct {
	*machines.Program
	s *stage
}

// run starts a program on a host.
func (h *host) run(argv ...string) *program {
	h.s.t.Helper()
	env := []string{"STAGE=" + h.s.Dir, "MACHINE=" + h.Own}
	if h.deaf {
		env = append(env, "DEAF=1")
	}
	return &program{h.Run(env, argv...), h.s}
}

// end kills a program that would serve for ever.
func (p *program) end() {
	p.s.t.Helper()
	p.s.signal(p.First(), syscall.SIGKILL)
	p.Wait()
}

// first is the first process of the program on a host.
func (h *host) first() int {
	h.s.t.Helper()
	return h.Program().First()
}

// agent is the agent of muster on a host.
func (h *host) agent() int {
	h.s.t.Helper()
	pid := h.Agent()
	if pid == 0 {
		h.s.t.Fatalf("%s has no agent", h.Own)
	}
	return pid
}

// seats are the machines of a round's ranks.
func (s *stage) seats(round int) []string {
	var list []string
	for _, up := range s.book.find(func(r record) bool { return r.what == "up" && r.round == round }) {
		if list == nil {
			list = make([]string, up.size)
		}
		list[up.rank] = up.machine
	}
	return list
}

// worker is the process of a rank in the last world.
func (s *stage) worker(rank int) (*host, int) {
	s.t.Helper()
	ups := s.book.find(func(r record) bool { return r.what == "up" && r.rank == rank })
	if len(ups) == 0 {
		s.t.Fatalf("there is no rank %d", rank)
	}
	last := ups[len(ups)-1]
	for _, h := range s.hosts {
		if h.Own == last.machine {
			return h, h.Outside(last.pid)
		}
	}
	panic(last.machine)
}
