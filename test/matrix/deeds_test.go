package matrix

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	machines "github.com/muster-run/muster/test/stage"
)

// What a case does to a job, and what it waits for. Each deed is noted, for a world is right only if its workers began after it.

// A deed is what was done to a job, when, and to which of its hosts.
type deed struct {
	what string
	at   time.Duration
	hit  []*host
}

// done notes that something is about to be done.
func (s *stage) done(what string, hit ...*host) { s.last = deed{what, machines.Now(), hit} }

// start starts the job's program with flags on some hosts; none named: on all.
func (s *stage) start(flags string, hosts ...*host) {
	s.t.Helper()
	if hosts == nil {
		hosts = s.hosts
	}
	s.done("start")
	for _, h := range hosts {
		h.run(s.kit.line(s, strings.Fields(flags))...)
	}
}

// store serves a store on a host, without an agent, until end; there is none where the job meets in an etcd.
func (s *stage) store(h *host) (end func()) {
	s.t.Helper()
	if s.aside != nil {
		return func() {}
	}
	p := h.run(s.kit.muster, "store", "serve", "--port", "29400")
	s.says(h, "29400")
	return p.end
}

// kill kills a process of a host.
func (s *stage) kill(h *host, pid int) {
	s.t.Helper()
	s.done("kill", h)
	s.signal(pid, syscall.SIGKILL)
}

// killNode kills both processes of muster on a host, and with them its workers.
func (s *stage) killNode(h *host) {
	s.t.Helper()
	s.done("node killed", h)
	first, agent := h.first(), h.agent()
	s.signal(first, syscall.SIGKILL)
	s.signal(agent, syscall.SIGKILL)
	h.Program().Wait()
}

// signal sends a signal, which changes no world.
func (s *stage) signal(pid int, sig syscall.Signal) {
	s.t.Helper()
	s.must(syscall.Kill(pid, sig))
}

// die ends a machine: not a word comes from it any more, not even that its connections are closed.
func (s *stage) die(h *host) {
	s.t.Helper()
	s.done("machine dies", h)
	s.sever(h)
	h.Die()
}

// crash ends all processes of a host at once. The kernel closes their connections.
func (s *stage) crash(h *host) {
	s.t.Helper()
	s.done("all is killed", h)
	h.Die()
}

// cut cuts some hosts off from all others.
func (s *stage) cut(some ...*host) {
	s.t.Helper()
	s.done("cut off", some...)
	s.sever(some...)
}

// sever drops every packet between some hosts and all others.
func (s *stage) sever(some ...*host) {
	s.t.Helper()
	var cut []*machines.Machine
	for _, h := range some {
		cut = append(cut, h.Machine)
	}
	s.Cut(cut...)
}

// hush drops what agents tell each other, and nothing of what their workers do.
func (s *stage) hush() {
	s.t.Helper()
	s.done("agents cut off")
	ports := strings.Join(s.agentPorts(), ", ")
	s.Drop(fmt.Sprintf("tcp dport { %s }", ports), fmt.Sprintf("tcp sport { %s }", ports))
}

// reset has the kernel end every connection between agents.
func (s *stage) reset() {
	s.t.Helper()
	s.done("connections reset")
	var ended int
	for _, port := range s.agentPorts() {
		for _, h := range s.hosts {
			out, _ := h.Command("-n", "ss", "-HKtn", "state", "established", "( sport = :"+port+" or dport = :"+port+" )").CombinedOutput() // also of what it cannot end
			ended += strings.Count(string(out), "10.77.")
		}
	}
	if ended < 2*(len(s.hosts)-1) {
		s.t.Errorf("%d ends of connections were reset", ended)
	}
}

// agentPorts are those to which the agent of rank 1 is connected.
func (s *stage) agentPorts() []string {
	s.t.Helper()
	h, _ := s.worker(1)
	out, err := h.Command("-n", "ss", "-Htnp", "state", "established").CombinedOutput()
	if err != nil {
		s.t.Fatalf("ss: %v: %s", err, out)
	}
	ports := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); strings.Contains(line, `"muster"`) {
			ports[f[3][strings.LastIndex(f[3], ":")+1:]] = true
		}
	}
	if len(ports) == 0 {
		s.t.Fatalf("the agent of %s has no connection: %s", h.Own, out)
	}
	return slices.Sorted(maps.Keys(ports))
}

// heal lets all packets pass again.
func (s *stage) heal() {
	s.t.Helper()
	s.done("heal")
	s.Heal()
}

// world waits for a world of n workers, all of which began after the last deed.
func (s *stage) world(n int) {
	s.t.Helper()
	s.worlds = append(s.worlds, world{deed: s.last, size: n})
	w := &s.worlds[len(s.worlds)-1]
	s.until(fmt.Sprintf("a new world of %d", n), func() bool {
		w.firsts = s.book.world(n, s.last.at)
		return w.firsts != nil
	})
}

// goesOn waits until each worker of the last world has made three more steps. None may have begun since the last deed.
func (s *stage) goesOn() {
	s.t.Helper()
	from := machines.Now()
	ups := s.book.find(func(r record) bool { return r.what == "up" })
	world := ups[len(ups)-ups[len(ups)-1].size:]
	s.until("three more steps of each worker", func() bool {
		for _, up := range world {
			steps := s.book.find(func(r record) bool { return r.what == "stepped" && r.at > from && r.by(up) })
			if len(steps) < 3 {
				return false
			}
		}
		return true
	})
	if again := s.book.find(func(r record) bool { return r.what == "up" && r.at > s.last.at }); len(again) > 0 {
		s.t.Errorf("a worker began anew: %v", again[0])
	}
}

// says waits until the program on a host has said something.
func (s *stage) says(h *host, text string) {
	s.t.Helper()
	s.until(fmt.Sprintf("%q on %s", text, h.Own), func() bool { return strings.Contains(h.Program().Said(), text) })
}

// allSay waits until the programs on all hosts have said something.
func (s *stage) allSay(text string) {
	s.t.Helper()
	for _, h := range s.hosts {
		s.says(h, text)
	}
}

// ends waits for the end of the program on some hosts, with a code and a sentence that has some phrases.
func (s *stage) ends(hosts []*host, code int, phrases ...string) {
	s.t.Helper()
	for _, h := range hosts {
		p := h.Program()
		s.until(fmt.Sprintf("the end of %s", h.Own), func() bool { return !p.Running() })
		if got := p.Code(); got != code {
			s.t.Errorf("%s %s, not %d", h.Own, p.Ending(), code)
		}
		said := strings.TrimSpace(p.Said())
		last := said[strings.LastIndex(said, "\n")+1:]
		for _, phrase := range phrases {
			if !strings.Contains(last, phrase) {
				s.t.Errorf("the last words of %s have no %q: %s", h.Own, phrase, last)
			}
		}
	}
}

// finish lets the training come to its end, on all hosts that there are, or those named.
func (s *stage) finish(hosts ...*host) {
	s.t.Helper()
	if !s.kit.ends {
		return
	}
	if hosts == nil {
		hosts = s.hosts
	}
	s.must(os.WriteFile(filepath.Join(s.Dir, "finish"), nil, 0o644))
	s.ends(hosts, 0)
}
