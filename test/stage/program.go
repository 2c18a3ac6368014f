package stage

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/muster-run/muster/proc"
)

// A Program is what was started on a machine: an agent, or whatever else.
type Program struct {
	On *Machine

	cmd  *exec.Cmd
	rest []byte        // of a line that is not yet said to its end
	done chan struct{} // closed when it has ended
}

// Run starts a program on a machine, with more in its environment.
func (m *Machine) Run(env []string, argv ...string) *Program {
	s := m.stage
	s.t.Helper()
	p := &Program{On: m, cmd: m.Command(whole, argv...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = (*voice)(p), (*voice)(p), append(m.env(), env...)
	s.must(p.cmd.Start())
	s.programs = append(s.programs, p)
	go func() {
		_ = p.cmd.Wait() // its state says more
		if len(p.rest) > 0 {
			_, _ = (*voice)(p).Write([]byte("\n"))
		}
		close(p.done)
		s.Ring()
	}()
	return p
}

// voice adds what a program says to what is said on its stage.
type voice Program

func (v *voice) Write(b []byte) (int, error) {
	all := bytes.Split(append(v.rest, b...), []byte("\n"))
	last := len(all) - 1
	v.rest = slices.Clone(all[last])
	var lines []Line
	for _, l := range all[:last] {
		lines = append(lines, Line{(*Program)(v), time.Now(), string(l)})
	}
	v.On.stage.add(lines...)
	return len(b), nil
}

// Program is what runs on a machine, or was the last to run there.
func (m *Machine) Program() *Program {
	m.stage.t.Helper()
	for _, p := range slices.Backward(m.stage.programs) {
		if p.On == m {
			return p
		}
	}
	m.stage.t.Fatalf("nothing was started on %s", m.Own)
	return nil
}

// Running reports whether it has not ended.
func (p *Program) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Ending says how it stands with a program.
func (p *Program) Ending() string {
	if p.Running() {
		return "still runs"
	}
	return "ended with " + p.cmd.ProcessState.String()
}

// Code is its exit code; -1: it has none.
func (p *Program) Code() int {
	if p.Running() {
		return -1
	}
	return p.cmd.ProcessState.ExitCode()
}

// Said is what it said until now, but for a line that has no end yet.
func (p *Program) Said() string {
	var text strings.Builder
	for _, l := range p.On.stage.Lines() {
		if l.By == p {
			text.WriteString(l.Text + "\n")
		}
	}
	return text.String()
}

// First is its first process, as we know it.
func (p *Program) First() int {
	p.On.stage.t.Helper()
	children, err := proc.Root("/proc").Children(p.cmd.Process.Pid)
	if err != nil || len(children) != 1 {
		p.On.stage.t.Fatalf("the program on %s has %d processes, %v", p.On.Own, len(children), err)
	}
	return children[0]
}

// Wait waits for its end.
func (p *Program) Wait() { <-p.done }
