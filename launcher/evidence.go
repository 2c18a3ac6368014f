package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-run/muster/evidence"
	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/witness"
)

// This file is how evidence of a standstill is kept: on each node in a directory, and its essence on the leader's as well, for the other
// nodes may be gone when somebody looks.

const (
	maxEssence = 256 << 10 // bytes of a node's evidence that go to the leader
	maxWays    = 16        // nodes that send it
	linksTime  = 2 * time.Second
	maxBundles = 16 // of a round
)

// evidenceDir is where evidence is written: where the user said, else beside the log files, else in the run's private directory, which goes
// with the run.
func (c Config) evidenceDir(run string) string {
	dir := filepath.Join(run, "evidence")
	switch {
	case c.Evidence != "":
		dir = c.Evidence
	case c.Output.Dir != "":
		dir = filepath.Join(c.Output.Dir, "evidence")
	}
	if whole, err := filepath.Abs(dir); err == nil { // who reads of it is elsewhere
		dir = whole
	}
	return dir
}

// collect keeps evidence, while the loop goes on.
func (w *watch) collect(d collect) {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.bundles++
	full := w.bundles > maxBundles
	w.mu.Unlock()
	if full {
		return
	}
	w.goes(func() {
		dir, b, err := w.bundle(w.ctx, d.Why)
		if err != nil {
			w.c.Log.Warn(err.Error())
			return
		}
		w.c.Log.Info("evidence is in " + dir + w.passing(dir))
		if w.fleet == nil || w.judge != nil || w.group > maxWays && !slices.Contains(d.Nodes, w.group) {
			return
		}
		if err := w.fleet.TellOne(0, newsEvidence, news{Kind: newsEvidence, Round: w.round, Evidence: essence(b)}); err != nil {
			w.c.Log.Debug(err.Error())
		}
	})
}

// passing says so of evidence that goes with the run.
func (w *watch) passing(dir string) string {
	if w.spare == "" || !strings.HasPrefix(dir, w.spare) {
		return ""
	}
	return " until the job ends; --evidence DIR keeps it"
}

func essence(b evidence.Bundle) json.RawMessage {
	text, _ := json.Marshal(b.Essence(maxEssence)) // plain values: cannot fail
	return text
}

// place names the directory of a node: several may have one name.
func (w *watch) place(node int) string {
	return fmt.Sprintf("node-%d-%s", node, w.world.Members[node].Name)
}

// bundle gathers evidence of this node's workers and writes it down, and returns where.
func (w *watch) bundle(ctx context.Context, why string) (string, evidence.Bundle, error) {
	s := evidence.Scene{Root: "/", Job: w.world.ID, Node: w.place(w.group), Round: w.round, At: time.Now(), Why: why}
	var given sync.WaitGroup
	given.Go(func() { s.Given = w.given(ctx) })
	var traces []trace
	given.Go(func() { traces = w.askTraces(ctx) })
	stacks := w.askStacks(ctx)
	all, _ := proc.Root("/proc").All() // else they have no children
	first := w.world.Members[w.group].First
	given.Wait()
	for _, b := range w.beats() {
		if local := b.Rank - first; local >= 0 && local < len(stacks) {
			s.Workers = append(s.Workers, evidence.Suspect{
				Beat: b, Tree: below(all, b.PID), Stacks: stacks[local], Output: w.tail(local), Recorder: traces[local].text, NoRecorder: traces[local].err,
			})
		}
	}
	b := evidence.Gather(ctx, s)
	for range maxBundles {
		dir, err := w.write(context.WithoutCancel(ctx), b) // what is gathered until the round's end is kept
		if !errors.Is(err, fs.ErrExist) {
			return dir, b, err
		}
		b.At = b.At.Add(time.Second) // another one began in the same second
	}
	return "", b, fmt.Errorf("write evidence: %d others of this moment are in %s already", maxBundles, w.dirs)
}

// write writes evidence down where it belongs. If that is full, or dead, or no place to write, it is kept in the run's directory for as long as
// there is one.
func (w *watch) write(ctx context.Context, b evidence.Bundle) (string, error) {
	dir, err := b.Write(ctx, w.dirs)
	if err == nil || errors.Is(err, fs.ErrExist) || w.spare == "" || w.spare == w.dirs {
		return dir, err
	}
	w.c.Log.Warn(err.Error())
	return b.Write(ctx, w.spare)
}

func below(all []proc.Process, pid int) (pids []int) {
	for _, p := range proc.Below(all, pid) {
		pids = append(pids, p.PID)
	}
	return pids
}

// given is what others know: the machine's links, and on a machine with accelerators NCCL's own watch.
func (w *watch) given(ctx context.Context) (all []evidence.Given) {
	links := make(chan string, 1)
	go func() { // firmware that has died may hold it for a minute
		text, _ := json.MarshalIndent(witness.Links("/"), "", " ")
		links <- string(text)
	}()
	all = append(w.gpus.Evidence(), w.health.evidence()...)
	if w.ras != "" {
		report, err := witness.AskRAS(ctx, w.ras)
		text, _ := json.MarshalIndent(report, "", " ")
		if err != nil {
			text = []byte(err.Error())
		}
		all = append(all, evidence.Given{Name: "ras.json", What: "NCCL's own watch, asked at " + w.ras, Text: string(text)})
	}
	select {
	case text := <-links:
		if text != "null" {
			all = append(all, evidence.Given{Name: "links.json", What: "ports of the machine's RDMA adapters", Text: text})
		}
	case <-ctx.Done():
	case <-time.After(linksTime):
	}
	return all
}

// keepEssence writes down what another node sent, if that has not done so itself in the same directory.
func (w *watch) keepEssence(from int, n news) {
	var b evidence.Bundle
	if w == nil || n.Round != w.round || len(n.Evidence) > 2*maxEssence || json.Unmarshal(n.Evidence, &b) != nil || from >= len(w.world.Members) {
		return
	}
	b.Job, b.Node, b.Round = w.world.ID, w.place(from), w.round
	w.goes(func() {
		_, err := w.write(context.WithoutCancel(w.ctx), b)
		if err != nil && !errors.Is(err, fs.ErrExist) { // the node has all of it in the same directory as we have
			w.c.Log.Warn(err.Error())
		}
	})
}

// about returns news of a kind.
func about(e fleet.Event, kind string) (n news, ok bool) {
	ok = e.Change == fleet.Heard && e.Message.Kind == kind && json.Unmarshal(e.Message.Body, &n) == nil
	return n, ok
}

// dump is `muster ctl dump`: evidence at any time, with the agent's own goroutines.
func (d *desk) dump(ctx context.Context) (any, error) {
	d.c.Console.Stderr().Write(goroutines())
	const said = "the agent's goroutines are on its standard error"
	text, err := d.now().watch.dump(ctx)
	if err != nil {
		return nil, errors.Join(errors.New(said), err)
	}
	return text + "\n" + said, nil
}

// dump keeps evidence of this node's workers, and says where, and where they are.
func (w *watch) dump(ctx context.Context) (text string, err error) {
	var dir string
	var b evidence.Bundle
	done := make(chan struct{})
	if !w.goes(func() {
		defer close(done)
		both, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(w.ctx, cancel)()
		dir, b, err = w.bundle(both, "muster ctl dump")
	}) {
		return "no worker runs", nil
	}
	if <-done; err != nil {
		return "", err
	}
	text = "evidence of this node's workers is in " + dir + w.passing(dir)
	for _, r := range b.Ranks {
		if len(r.Place) > 0 {
			text += fmt.Sprintf("\nrank %d (pid %d): %s", r.Rank, r.PID, strings.Join(r.Place, ", in "))
		}
	}
	return text, nil
}

// suspects are the nodes of who is to blame.
func suspectNodes(w job.World, culprits []job.Culprit) (nodes []int) {
	for _, c := range culprits {
		if n, known := w.MemberOf(c.Rank); known && !slices.Contains(nodes, n) && len(nodes) < maxWays {
			nodes = append(nodes, n)
		}
	}
	return nodes
}
