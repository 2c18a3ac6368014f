package launcher

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/heartbeat"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous"
)

// A company is this node and the others that look on. A nil company is this node alone.
type company struct {
	meeting *meeting
	line    *line
	world   job.World
	rank    int
	reader  heartbeat.Reader
	ranks   map[int][]int // of the job, by node, that were heard of in this round
	left    map[int]bool  // nodes that are not here any more: true, with all their workers; false, as far as is known here
}

const (
	patient   = 1000 * time.Hour // who looks on waits for the others as long as there is something to see
	aloneTime = time.Minute      // of that people hear
	meetPause = 10 * time.Second // between two meetings that come to nothing
)

// findCompany finds the others. It comes back with them, or when ctx ends, and says each new reason for which it does not.
func findCompany(ctx context.Context, c Config, p Plan, say func(string)) *company {
	late := time.AfterFunc(aloneTime, func() {
		say(fmt.Sprintf("this node is observed alone until those that observe the others are met at %s", p.Endpoint))
	})
	defer late.Stop()
	said := ""
	for ctx.Err() == nil {
		with, err := openCompany(ctx, c, p)
		if err == nil {
			return with
		}
		if text := err.Error(); ctx.Err() == nil && text != said {
			said = text
			say("this node is observed alone: " + text)
		}
		select {
		case <-ctx.Done():
		case <-time.After(meetPause):
		}
	}
	return nil
}

func openCompany(ctx context.Context, c Config, p Plan) (*company, error) {
	c.JoinTimeout, c.Log = patient, slog.New(slog.NewTextHandler(io.Discard, nil)) // who waits for whom is the command's affair
	p.Spec.Self.Incarnation = newID()
	m, err := openMeeting(ctx, c, &heritage{Plan: p}, nil)
	if err == nil {
		var l *line
		if l, err = m.world(ctx, rendezvous.Options{LastCall: c.LastCall, Lives: m.lives}, func(Config, *rendezvous.Session) {}); err == nil {
			return &company{meeting: m, line: l, world: m.session.World, rank: m.session.Rank, ranks: map[int][]int{}, left: map[int]bool{}}, nil
		}
	}
	m.close()
	return nil, err
}

// close leaves the others. To be alone is nothing to leave.
func (w *company) close() {
	if w != nil {
		w.line.close()
		w.meeting.close()
	}
}

// leads reports whether this node judges for all that are met, as a node alone does.
func (w *company) leads() bool { return w == nil || w.rank == 0 }

// names are those of the nodes.
func (w *company) names() (all []string) {
	for _, m := range w.world.Members {
		all = append(all, m.Name)
	}
	return all
}

// events is what the others have to say.
func (w *company) events() <-chan fleet.Event {
	if w == nil {
		return nil
	}
	return w.line.events()
}

// newcomers is how many nodes wait to join.
func (w *company) newcomers() <-chan int {
	if w == nil {
		return nil
	}
	return w.meeting.session.Newcomers()
}

// over reports whether nobody is left whom this node looks on with.
func (w *company) over() bool {
	_, leader := w.left[0]
	return leader || len(w.left) == len(w.world.Members)-1
}

// nodesOf are those of who is to blame.
func (w *company) nodesOf(culprits []job.Culprit) (nodes []int) {
	if w == nil {
		return nil
	}
	for node, ranks := range w.ranks {
		blamed := func(c job.Culprit) bool { return slices.Contains(ranks, c.Rank) }
		if slices.ContainsFunc(culprits, blamed) && len(nodes) < maxWays {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// nodeOf is the node of a rank, as far as it was heard of; of one that nobody told of this node.
func (w *company) nodeOf(rank int) int {
	if w == nil {
		return 0
	}
	for node, ranks := range w.ranks {
		if slices.Contains(ranks, rank) {
			return node
		}
	}
	return w.rank
}

// lost reports whether a node is gone, and perhaps not its workers.
func (w *company) lost(node int) bool {
	if w == nil {
		return false
	}
	over, gone := w.left[node]
	return gone && !over
}

// forget drops what was known of a round that is over.
func (w *company) forget() {
	if w != nil {
		w.ranks = map[int][]int{}
	}
}

// told adds to a look what the other nodes say of their ranks.
func (w *company) told(look *heartbeat.Look, now time.Time) {
	if w == nil || w.line.fleet == nil {
		return
	}
	heard := map[int]bool{}
	w.reader.Begin()
	w.line.fleet.Beats(func(node int, text json.RawMessage, at time.Time) {
		var b beat
		if now.Sub(at) > heardAgo || json.Unmarshal(text, &b) != nil || b.Generation != w.world.Generation {
			return
		}
		beats, err := w.reader.Ranks(b.Report)
		if err != nil {
			return
		}
		heard[node] = true
		var ranks []int
		for _, r := range beats {
			ranks = append(ranks, r.Rank)
		}
		w.ranks[node] = append(ranks, b.Ended...)
		look.Beats = append(look.Beats, beats...)
		look.Ended = append(look.Ended, b.Ended...)
	})
	for node, ranks := range w.ranks {
		over, gone := w.left[node]
		switch {
		case heard[node] || gone && !over:
		case gone:
			look.Ended = append(look.Ended, ranks...)
		default:
			look.Unheard = append(look.Unheard, ranks...)
		}
	}
}
