package launcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-run/muster/evidence"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher/gpus"
	"github.com/muster-run/muster/preflight"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/report"
)

// This file is the look at this node's machine while the job runs. What changes is told to all nodes, and ends nothing: training may go on, or
// end by itself, and then people know what came before.

// How often one looks. Counters and links of GPUs are asked of firmware, and each answer of nvidia-smi takes a second of a processor.
const (
	portsEach    = 5 * time.Second
	countersEach = 30 * time.Second
	memoryEach   = 5 * time.Minute
)

// What is kept and told of it.
const (
	maxAiling   = 64  // words that are kept
	maxAilments = 16  // that are told at once
	maxAilment  = 400 // bytes of one
)

// ailing: the look at this node's machine has something to say, or the leader, of all nodes.
type ailing struct {
	What []job.Evidence
	Of   int // 0, or allNodes
}

const allNodes = -1

// health looks at the machine through all rounds of this agent.
type health struct {
	begin func() *preflight.Monitor
	gpus  *gpus.Meter // by which nvidia-smi is asked in this round; nil: there are none that can be asked
	mute  atomic.Bool // there is no nvidia-smi

	free chan struct{}      // holds one while nobody looks: a look that firmware holds outlives the round that began it
	m    *preflight.Monitor // of who looks; nil: nobody has

	meter bool // somebody may ask for what the machine counts

	mu    sync.Mutex
	said  []string       // the last words
	found map[string]int // findings of each kind: "warn hca-errors"
	meted job.Meters     // of the last look
}

// watched is what r's machine is looked at with; nil: nothing of it may break, or nobody wants that.
func (r *round) watched() *health {
	if r.health == nil && r.c.Preflight != preflightOff && len(r.plan.machine.Slots()) > 0 {
		r.health = &health{begin: func() *preflight.Monitor { return preflight.NewMonitor(r.c.Root, r.plan.machine) }, free: make(chan struct{}, 1), meter: r.c.Metrics != nil}
		r.health.free <- struct{}{}
		r.desk.looksAt(r.health)
	}
	if r.health != nil {
		r.health.gpus = r.newGPUs()
	}
	return r.health
}

// close ends it, unless a look is held.
func (h *health) close() {
	if h == nil {
		return
	}
	select {
	case <-h.free:
		if h.m != nil {
			h.m.Close()
		}
	default:
	}
}

// run looks until ctx is done.
func (h *health) run(ctx context.Context, tell func(context.Context, any)) {
	if _, ok := h.look(ctx, func() []preflight.Finding {
		if h.m == nil {
			h.m = h.begin()
			h.read()
		}
		return nil
	}); !ok {
		return
	}
	ports, counters, memory := time.NewTicker(portsEach), time.NewTicker(countersEach), time.NewTicker(memoryEach)
	defer ports.Stop()
	defer counters.Stop()
	defer memory.Stop()
	asked := h.gpus
	for {
		var look func() []preflight.Finding
		select {
		case <-ctx.Done():
			return
		case <-ports.C:
			look = func() []preflight.Finding { return slices.Concat(h.m.Ports(), h.m.Kernel()) }
		case <-counters.C:
			look = func() []preflight.Finding {
				h.read()
				return slices.Concat(h.m.Counters(), h.m.Lanes())
			}
		case <-memory.C:
			if asked == nil || h.mute.Load() {
				continue
			}
			look = func() []preflight.Finding {
				return h.m.Memory(func(args ...string) (string, error) {
					text, err := asked.Ask(ctx, append([]string{"nvidia-smi"}, args...))
					if none := new(proc.StartError); errors.As(err, &none) {
						h.mute.Store(true)
					}
					return text, err
				})
			}
		}
		found, ok := h.look(ctx, look)
		if what := h.ailments(found); ok && len(what) > 0 {
			tell(ctx, ailing{What: what})
		}
	}
}

// read reads what the machine counts, for those who ask.
func (h *health) read() {
	if !h.meter {
		return
	}
	now := h.m.Meters()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.meted = now
}

// meters is what the machine counted at the last look.
func (h *health) meters() job.Meters {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.meted
}

// counted is how often each kind of thing was found: "warn hca-errors".
func (h *health) counted() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.found)
}

// look waits for a look, but not beyond the round.
func (h *health) look(ctx context.Context, look func() []preflight.Finding) ([]preflight.Finding, bool) {
	select {
	case <-h.free:
	case <-ctx.Done():
		return nil, false
	}
	found := make(chan []preflight.Finding, 1)
	go func() {
		defer func() { h.free <- struct{}{} }()
		found <- look()
	}()
	select {
	case all := <-found:
		return all, true
	case <-ctx.Done():
		return nil, false
	}
}

// ailments are findings as they are told.
func (h *health) ailments(found []preflight.Finding) (what []job.Evidence) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.found == nil {
		h.found = map[string]int{}
	}
	for _, f := range found {
		h.found[f.Result.String()+" "+f.Check]++
	}
	for _, f := range found[:min(len(found), maxAilments)] {
		what = append(what, job.Evidence{Kind: f.Check, Text: report.Line(f.String(), maxAilment)})
		h.said = append(h.said, time.Now().UTC().Format(time.TimeOnly)+" "+f.String())
	}
	h.said = h.said[max(0, len(h.said)-maxAiling):]
	return what
}

// evidence is what was said, for who looks at a standstill.
func (h *health) evidence() []evidence.Given {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.said) == 0 {
		return nil
	}
	return []evidence.Given{{Name: "health.txt", What: "what of the machine broke during the job", Text: strings.Join(h.said, "\n") + "\n"}}
}

// ailing is any node's: people see what is wrong with a machine, on all nodes. The leader passes on what members say.
func (s *state) ailing(node int, what []job.Evidence) (todo []any) {
	what, who := what[:min(len(what), maxAilments)], "the nodes are not alike"
	if node != allNodes {
		who = nodeName(s.Nodes, node)
	}
	s.Ailing = slices.Clone(s.Ailing)
	for _, a := range what {
		text := fmt.Sprintf("%s: %s", who, report.Line(a.Text, maxAilment))
		s.Ailing = append(s.Ailing, text)
		todo = append(todo, say{text})
	}
	s.Ailing = s.Ailing[max(0, len(s.Ailing)-maxAiling):]
	switch {
	case s.leads():
		todo = append(todo, tell{everyone, news{Kind: newsHealth, Ailing: what, Of: node}})
	case node == s.Self:
		todo = append(todo, tell{0, news{Kind: newsHealth, Ailing: what}})
	}
	return todo
}

// ails takes news of another node's machine: a member's own, or what the leader passes on.
func (s *state) ails(from int, n news) []any {
	switch {
	case s.leads():
		return s.ailing(from, n.Ailing)
	case from == 0 && n.Of >= allNodes && n.Of < len(s.Nodes) && n.Of != s.Self:
		return s.ailing(n.Of, n.Ailing)
	}
	return nil
}
