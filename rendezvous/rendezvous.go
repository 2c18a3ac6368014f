// Package rendezvous brings the nodes of a job together in a store until they agree on a world, and decides the ranks.
//
// It uses only the verbs of [store.Store]. Every decision is one key that is set once, so two nodes that
// believe they lead cannot disagree: the first to publish wins and everyone, the other leader too, takes what is there.
// A meeting of n nodes costs O(n) operations: nobody rewrites a shared state, nobody but the leader reads records.
//
// The life of one node:
//
//	    ┌────────────── again: the store came back empty, or the meeting moved on ◄─┐
//	    ▼                                                                          │
//	[arrive] ── learn the store's incarnation, and the first generation that ──────┤
//	    │       has no outcome yet: while a world lives, that is the one after it  │
//	    ▼                                                                          │
//	[enter]  ── draw a ticket, show presence, write the record                     │
//	    │                                                                          │
//	    ├── first to claim the lead ──► [lead] ── reads ticket after ticket; ──────┤
//	    │                                  ▲      publishes the outcome once, when │
//	    │                                  │      the world before is over, or its │
//	    │                                  │      leader silent for the fence      │
//	    ▼                                  │                                       │
//	[follow] ── leader silent for 5 s, and its place claimed                       │
//	    │                                                                          │
//	    ▼                                                                          │
//	outcome: a world with me ► Session · a world without me, a refusal ► error · moved
//
// Every node adds to its presence key each second. A node whose key stands still for 5 s of the
// reader's own clock is gone; clocks of two machines are never compared. In a meeting of more than a thousand
// both are longer: the leader tells the pace.
package rendezvous

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous/store"
)

// Protocol is the version of the records and keys of a meeting. Nodes meet when theirs differ by at most one.
const Protocol = 2

const (
	beat    = time.Second // between two signs of life, where no pace was told
	missed  = 5           // so many of them, and a node is gone
	silent  = missed * beat
	crowded = 1000      // nodes whose signs are as many as a store should hear in a second: more of them slow down,
	slowest = 5 * beat  // at most to this
	linger  = beat / 10 // for a world that is just being published, after we withdrew
)

// Options are what a node may ask for beyond its [job.Spec]. The zero value is ready for use.
type Options struct {
	Timeout     time.Duration // how long to wait for the world, and for no more than the Fence longer where that is over before it begins; 0: until ctx ends. Who stands by waits as long as a world lives
	LastCall    time.Duration // how long to wait for more nodes when the fewest are here
	Seen        int           // the highest generation that this agent has been part of; the next world's is higher
	Led         bool          // the leader of that world lives: it said that this is over
	Previous    *job.World    // the world before, whose order of ranks is kept as far as its nodes come back
	Fence       time.Duration // how long members of the world before may live without hearing its leader; without those the next one waits so long
	NodeTimeout time.Duration // after how much silence they give each other up; 0: job.NodeTimeout
	// Forgets: the store is lost with its host, and comes back empty. Where it knows of no world, fewer nodes than all wait for as long as if there had
	// been one, but for no more than the NodeTimeout and 20 s, and half the Timeout.
	Forgets bool
	// Closed: who was in no world yet only takes the place of a node that was lost. The next world is no larger than the one before.
	Closed bool
	// Policy is what else this node was told of the job, or its leader: see [job.Rules]. Of who was in no world yet LastCall, Fence, Closed and
	// Policy only count where nobody was.
	Policy json.RawMessage
	// NotBefore is when this node may take a place in a world again. Until then it only stands by.
	NotBefore time.Time
	// Stood is the world beside which an agent stood by in whose place this one is, as Stands was told last; the zero value: beside none.
	Stood  Standing
	Stands func(Standing) // hears beside which world this node stands by, before it looks on; nil: nobody does
	// Stays: the platform starts again whatever ends, so that agents of a job which ended well stay. Beside those this node waits for all others to come
	// again, and does not give up as long as they say that they do.
	Stays bool
	// Unfit says why no worker can run on this node; "": they can. Such a node takes no place in any world: it stands by until the job is over.
	Unfit string
	// Lives asks a member of a world that nobody ends, and of which the store hears nothing, whether it is still there: its leader
	// may not reach the store. nil: nobody is asked.
	Lives func(context.Context, job.Node) bool
	// Doubt says why a machine is doubtful, "": it is not. Where there are more nodes than places, those on such machines are spares.
	Doubt    func(job.Machine) string // asked by who leads; nil: none is
	Say      func(string)             // hears who was left for that, or was not, and that a job begins anew which had ended; nil: nobody does
	Past     job.Tally                // what this agent knows of the job's rounds; the world's is the most that anybody knows
	Progress func(Status)             // called by Join when something changed, and each second; nil: nobody looks
}

// Meets reports whether nodes of a job have met in a store, or are about to.
func Meets(ctx context.Context, s store.Store, id string) (bool, error) {
	return s.Check(ctx, jobPath(id)+keyIncarnation)
}

// Join meets the other nodes of spec's job in s and returns when all agree on a world that includes spec.Self.
//
// It ends early with a [*Missing] when time runs out, a [*Refusal] when the nodes contradict each other,
// and an [*Excluded] when the world was made without this node; or with what s or ctx say.
// Join uses s from one goroutine. The caller closes s, after the session has ended.
func Join(ctx context.Context, s store.Store, spec job.Spec, o Options) (*Session, error) {
	if err := complete(spec); err != nil {
		return nil, fmt.Errorf("rendezvous: %w", err)
	}
	begun := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	n := &node{store: s, spec: spec, Options: o, seen: o.Seen}
	if o.Timeout > 0 {
		n.timer = time.AfterFunc(o.Timeout, func() { cancel(context.DeadlineExceeded) })
		n.until = begun.Add(o.Timeout)
		defer n.timer.Stop()
	}
	n.status = Status{Here: []string{spec.Self.String()}, Count: 1, Expected: spec.Nodes, Fewest: spec.Fewest()}
	session, err := n.join(ctx)
	if ctx.Err() != nil && err != nil && !decided(err) {
		err = tooLate(ctx, n.status, time.Since(begun)-n.lingered)
	}
	if err != nil {
		return nil, fmt.Errorf("rendezvous: %w", err)
	}
	return session, nil
}

// complete looks for what makes a meeting impossible; what others must hear of is judged by the leader.
func complete(spec job.Spec) error {
	switch {
	case spec.ID == "":
		return errors.New("the job has no id")
	case spec.Nodes < 1:
		return fmt.Errorf("a world of %d nodes was asked for; give at least 1", spec.Nodes)
	case spec.Fewest() < 1 || spec.Fewest() > spec.Nodes || spec.Spares < 0:
		return fmt.Errorf("a world of %d to %d nodes and %d spares was asked for", spec.Fewest(), spec.Nodes, spec.Spares)
	case spec.Self.Incarnation == "":
		return errors.New("this node has no incarnation")
	}
	return cmp.Or(check(spec.Self), checkMachine(spec.Machine))
}

// decided reports whether the meeting itself ended, however late.
func decided(err error) bool {
	return errors.As(err, new(*Refusal)) || errors.As(err, new(*Excluded)) || errors.As(err, new(*Ended))
}

// tooLate tells the end of patience from being called off.
func tooLate(ctx context.Context, s Status, after time.Duration) error {
	if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("waiting for nodes: %w", cause)
	}
	return &Missing{Status: s, After: after}
}

// A Missing error says that the nodes did not come together in time.
type Missing struct {
	Status Status        // who was here, and who was not
	After  time.Duration // how long this node had waited
	Store  string        // how the store was away to the end, as who knows may add; "": it was there, and nodes were missing
	Lapse  string        // how it was away for a while, as who knows may add; "": it was not for long
}

func (e *Missing) Error() string {
	if e.Store != "" {
		text := fmt.Sprintf("gave up after %v: %s", e.After.Round(100*time.Millisecond), e.Store)
		if e.Status.Running > 0 {
			text += fmt.Sprintf("; before that, %s was running on %s", e.Status.world(), names(e.Status.World, e.Status.Size))
		}
		return text
	}
	text := fmt.Sprintf("gave up after %v: %v", e.After.Round(100*time.Millisecond), e.Status)
	if e.Lapse != "" {
		text += "; " + e.Lapse
	}
	return text
}

// A Refusal says why there can be no world: nodes contradict each other, or too many cannot run workers. Every node of the meeting gets the same one.
type Refusal struct {
	Reason string
	Told   int // how many nodes of the job have heard now that others cannot run workers; 0: that is not the reason
}

func (e *Refusal) Error() string { return e.Reason }

// An Excluded error says that the world was made without this node, or goes on without it.
type Excluded struct {
	Reason   string
	Replaced bool // by another process
	Met      bool // the world is complete; else the meeting goes on
}

func (e *Excluded) Error() string { return e.Reason }

// An Ended error says that the job ended while this node stood by.
type Ended struct {
	Verdict job.Verdict
	Twin    string // the node that another agent was in it, in the place of this one; "": none was
}

func (e *Ended) Error() string {
	if e.Twin != "" {
		return fmt.Sprintf("the job ended without this agent, as another one had the place of %s: %s", e.Twin, e.Verdict.Sentence)
	}
	return "the job ended while this node stood by: " + e.Verdict.Sentence
}
