// Package gpus asks what a node's accelerators do, of a driver that may have died.
package gpus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-run/muster/evidence"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/witness"
)

// A Meter asks nvidia-smi what this node's accelerators do: seldom while training goes on, to learn what they draw then, and more often while
// the workers stand still. Where a driver has died it never ends: then it is killed, and no other is started before it is gone.
type Meter struct {
	start   func(context.Context, proc.Spec) (*proc.Child, error)
	kill    func(ctx context.Context, pids ...int) error
	environ []string
	visible []string // what the workers see of them, by local rank: their numbers or UUIDs

	// Of the asking goroutine.
	stuck    <-chan proc.Exit  // of one that does not end; nil: there is none
	linkless bool              // no NVLink tells what it carries
	failed   int               // times in a row that NVLinks could not be asked
	carried  map[string]uint64 // by UUID, as in the answer before
	told     time.Time         // when that came

	mu    sync.Mutex
	at    time.Time // of the last answer,
	all   []witness.GPU
	err   error
	whose map[int]string    // UUIDs, by local rank, as good answers told
	usual map[string]int    // by UUID, the most watts that each drew while training went on,
	moved map[string]uint64 // and bytes that were seen to move over its NVLinks while the workers stood still
}

const (
	each      = 30 * time.Second
	closer    = 5 * time.Second
	fresh     = 10 * time.Second // what was seen counts for so long
	maxSMI    = 64 << 10         // bytes of an answer
	maxFailed = 3
	linkFloor = 16 << 20 // bytes a second of a GPU's NVLinks below which nothing moves: kernels that wait may ask each other
)

// New is a meter that has not asked yet. start and kill are who runs nvidia-smi, and visible is what the workers see of the accelerators, by local rank.
func New(start func(context.Context, proc.Spec) (*proc.Child, error), kill func(ctx context.Context, pids ...int) error, environ, visible []string) *Meter {
	return &Meter{start: start, kill: kill, environ: environ, visible: visible, usual: map[string]int{}, moved: map[string]uint64{}, whose: map[int]string{}}
}

// Visible is which accelerator each of the workers has, if each has one of its own: the one with its local rank among those that
// can be seen, as PyTorch's scripts have it; nil: that is not known.
func Visible(list string, n, workers int) (visible []string) {
	if list == "" {
		for i := range n {
			visible = append(visible, strconv.Itoa(i))
		}
	} else {
		for one := range strings.SplitSeq(list, ",") {
			visible = append(visible, strings.TrimSpace(one))
		}
	}
	if len(visible) != workers {
		return nil
	}
	return visible
}

// Run asks until ctx is done, or there is no nvidia-smi. quiet reports whether the workers stand still.
func (g *Meter) Run(ctx context.Context, quiet func() bool) {
	last, ticks := time.Now(), time.NewTicker(closer)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		still := quiet()
		if !still && time.Since(last) < each {
			continue
		}
		last = time.Now()
		text, err := g.Ask(ctx, witness.SMI())
		if none := new(proc.StartError); errors.As(err, &none) || ctx.Err() != nil {
			return
		}
		g.note(text, err, !still && !quiet())
		switch {
		case !still: // what they carry then shows nothing
			g.carried = nil
		case err == nil && !g.linkless:
			g.links(g.Ask(ctx, witness.NVLinkSMI()))
		}
	}
}

// links takes in what NVLinks carried. That none tells is an answer, too: they are not asked again in this round, nor when they could not
// be asked a few times in a row.
func (g *Meter) links(text string, err error) {
	if err != nil {
		g.failed++
		g.linkless = g.failed >= maxFailed
		return
	}
	carried, now := witness.NVLinks([]byte(text)), time.Now()
	g.failed, g.linkless = 0, len(carried) == 0
	g.mu.Lock()
	defer g.mu.Unlock()
	for gpu, n := range carried {
		before, known := g.carried[gpu]
		if known && n > before && float64(n-before) > linkFloor*now.Sub(g.told).Seconds() {
			g.moved[gpu] += n - before
		}
	}
	g.carried, g.told = carried, now
}

// Ask runs nvidia-smi once, for a few seconds at the most.
func (g *Meter) Ask(ctx context.Context, argv []string) (string, error) {
	if !g.over() {
		return "", errors.New("nvidia-smi does not end, though it was killed: its driver hangs")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, witness.SMILimit, fmt.Errorf("nvidia-smi does not end within %v", witness.SMILimit))
	defer cancel()
	child, err := g.start(ctx, proc.Spec{Argv: argv, Env: g.environ})
	if err != nil {
		return "", fmt.Errorf("nvidia-smi: %w", err)
	}
	g.stuck = child.Exit
	defer child.Stderr.Close()
	defer child.Stdout.Close()
	defer context.AfterFunc(ctx, func() {
		child.Stdout.Close()
		child.Stderr.Close()
	})()
	text, err := io.ReadAll(io.LimitReader(child.Stdout, maxSMI))
	if ctx.Err() == nil {
		select {
		case <-child.Exit:
			g.stuck = nil
			return string(text), err
		case <-ctx.Done():
		}
	}
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), witness.SMILimit)
	defer stop()
	_ = g.kill(end, child.PID) // the error says that it does not die, as its exit will when it comes
	return "", context.Cause(ctx)
}

// over reports whether the one that was asked last has ended.
func (g *Meter) over() bool {
	select {
	case <-g.stuck:
		g.stuck = nil
	default:
	}
	return g.stuck == nil
}

// note remembers an answer; of one that was given while training went on, what is drawn then.
func (g *Meter) note(text string, err error, trains bool) {
	all, wrong := witness.GPUs([]byte(text))
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at, g.all, g.err = time.Now(), all, errors.Join(err, wrong)
	for _, one := range all {
		if trains {
			g.usual[one.UUID] = max(g.usual[one.UUID], one.Watts)
		}
	}
	for local := range g.visible {
		if i := g.of(local); i >= 0 && g.all[i].Error == "" {
			g.whose[local] = g.all[i].UUID
		}
	}
}

// of is where in the last answer a worker's accelerator stands; -1: nowhere.
func (g *Meter) of(local int) int {
	name := g.visible[local]
	return slices.IndexFunc(g.all, func(one witness.GPU) bool {
		return name == strconv.Itoa(one.Index) || strings.HasPrefix(name, "GPU-") && strings.HasPrefix(one.UUID, name)
	})
}

// See adds to a sight what the worker's accelerator does.
func (g *Meter) See(s *job.Sight, local int) {
	if g == nil || local >= len(g.visible) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	i := g.of(local)
	if i >= 0 && time.Since(g.at) < fresh {
		s.GPU, s.GPUBusy, s.GPUUsual = g.all[i].Watts, g.all[i].Busy, g.usual[g.all[i].UUID]
	}
	s.Wire += g.moved[g.whose[local]] // which never shrinks, also when an answer fails
}

// Evidence is the last answer.
func (g *Meter) Evidence() []evidence.Given {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.at.IsZero() {
		return nil
	}
	text, _ := json.MarshalIndent(g.all, "", " ") // plain values: cannot fail
	if g.err != nil {
		text = []byte(g.err.Error())
	}
	return []evidence.Given{{Name: "gpus.json", What: fmt.Sprintf("nvidia-smi, %v before", time.Since(g.at).Round(time.Second)), Text: string(text)}}
}
