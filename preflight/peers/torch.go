package peers

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/muster-run/muster/timerslack"
)

//go:embed reduce.py
var script string

// A Torch makes all-reduces with the user's own PyTorch, as training does: on all GPUs of the node by NCCL, or on its CPUs by Gloo.
type Torch struct {
	Python string
	Env    []string // of its processes
	Host   string   // of the store of PyTorch's protocol
	Port   int
	GPUs   int           // 0: on CPUs
	Each   time.Duration // one all-reduce need not take longer
}

const (
	startTime    = 3 * time.Minute  // for PyTorch to be loaded
	reduceTime   = 30 * time.Second // after which PyTorch gives up what does not begin or end
	giveUpTime   = 45 * time.Second // after which we do
	mostNumbers  = 1 << 24          // 64 MiB
	mostOnGPUs   = 1 << 28
	maxComplaint = 16 << 10
)

// Reduce is a Reducer.
func (t Torch) Reduce(ctx context.Context, at Seat, ready func() error) Outcome {
	all := make([]*reducing, max(t.GPUs, 1))
	for i := range all {
		all[i] = t.start(ctx, at, i)
		defer all[i].end()
	}
	var out Outcome
	for _, p := range all {
		out = out.worse(p.answer(startTime, true))
	}
	if out.Error != "" {
		return out
	}
	if err := ready(); err != nil {
		return Outcome{Error: err.Error()}
	}
	answers := make([]Outcome, len(all))
	var running sync.WaitGroup
	for i, p := range all {
		running.Go(func() {
			_, _ = io.WriteString(p.in, "\n") // who does not read it has ended, and says nothing either
			answers[i] = p.answer(giveUpTime, false)
		})
	}
	running.Wait()
	for _, a := range answers {
		out = out.worse(a)
	}
	return out
}

// worse is what of two processes' outcomes counts for their node: an error, its own before others', else what was slower.
func (o Outcome) worse(p Outcome) Outcome {
	switch {
	case o.Own, o.Error != "" && !p.Own:
		return o
	case p.Error != "", o.Mbps == 0, p.Mbps < o.Mbps && p.Mbps > 0:
		return p
	}
	return o
}

// A reducing is one process.
type reducing struct {
	cmd       *exec.Cmd
	in        io.WriteCloser
	lines     chan string
	complaint bytes.Buffer
	err       error // it could not be started
}

func (t Torch) start(ctx context.Context, at Seat, local int) *reducing {
	gpu, most, each := -1, mostNumbers, max(t.GPUs, 1)
	if t.GPUs > 0 {
		gpu, most = local, mostOnGPUs
	}
	args, err := json.Marshal(map[string]any{
		"host": t.Host, "port": t.Port, "prefix": at.Prefix, "rank": at.Rank*each + local, "size": at.Size * each, "gpu": gpu, "most": most,
		"each": t.Each.Seconds(), "patience": reduceTime.Seconds(),
	})
	p := &reducing{lines: make(chan string, 2), err: err}
	p.cmd = exec.CommandContext(ctx, t.Python, "-c", script, string(args))
	p.cmd.Env = t.Env
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Cancel = func() error { return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }
	p.cmd.Stderr = &capped{b: &p.complaint}
	out, err1 := p.cmd.StdoutPipe()
	in, err2 := p.cmd.StdinPipe()
	if p.err = errors.Join(p.err, err1, err2); p.err == nil {
		p.in, p.err = in, timerslack.Given(p.cmd.Start)
	}
	if p.err != nil {
		close(p.lines)
		return p
	}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			select {
			case p.lines <- s.Text():
			default: // it says two
			}
		}
	}()
	return p
}

// answer is the next thing that a process says. One that says nothing in this time is ended.
func (p *reducing) answer(limit time.Duration, loading bool) Outcome {
	if p.err != nil {
		return Outcome{Own: true, Error: p.err.Error()}
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case line, ok := <-p.lines:
		var o Outcome
		switch {
		case ok && json.Unmarshal([]byte(line), &o) != nil:
			return Outcome{Own: true, Error: fmt.Sprintf("PyTorch's process says %.100q", line)}
		case ok:
			return o
		}
		p.end()
		said := strings.TrimSpace(p.complaint.String())
		return Outcome{Own: true, Error: fmt.Sprintf("PyTorch's process ended (%v): %.200s", p.cmd.ProcessState, said[strings.LastIndexByte(said, '\n')+1:])}
	case <-timer.C:
		_ = p.cmd.Cancel()
		if loading {
			return Outcome{Own: true, Error: fmt.Sprintf("PyTorch is not loaded within %v", limit)}
		}
		return Outcome{Error: fmt.Sprintf("it does not end within %v", limit)}
	}
}

// end ends a process with all that it started.
func (p *reducing) end() {
	if p.err == nil && p.cmd.ProcessState == nil {
		_ = p.cmd.Cancel()
		_ = p.cmd.Wait()
	}
}

// A capped writer keeps the beginning.
type capped struct{ b *bytes.Buffer }

func (c *capped) Write(text []byte) (int, error) {
	c.b.Write(text[:min(len(text), maxComplaint-c.b.Len())])
	return len(text), nil
}
