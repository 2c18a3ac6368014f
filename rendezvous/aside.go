package rendezvous

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous/store"
)

// This file is about nodes on which no worker can run. They take no place in any world, and say why. One that hosts the store stands by
// until the job is over. Any other only leaves its record.

// forever is for how long such a node takes no place, in the eyes of a release that knows of no other reason.
const forever = 100 * 365 * 24 * time.Hour

// Decline tells those who meet in s, or will, that spec's node takes no part in the job, and why. It does not wait for anybody.
func Decline(ctx context.Context, s store.Store, spec job.Spec, why string) error {
	if err := complete(spec); err != nil {
		return fmt.Errorf("rendezvous: %w", err)
	}
	n := &node{store: s, spec: spec, Options: Options{Unfit: why}, declines: true}
	for {
		if err := n.decline(ctx); !errors.Is(err, errAgain) {
			return err
		}
	}
}

// decline leaves this node's record in the current meeting.
func (n *node) decline(ctx context.Context) error {
	past, err := n.arrive(ctx)
	if err != nil {
		return fmt.Errorf("rendezvous: %w", err)
	}
	if past != nil {
		n.seen = max(n.seen, n.generation, past.Moved-1)
		return errAgain
	}
	defer n.withdraw(ctx)
	return n.enter(ctx)
}

// declines is what people read of a node on which no worker can run.
func (t ticket) declines() string { return fmt.Sprintf("%v cannot run workers: %s", t.record, t.Unfit) }

// unfit are the nodes that said that they cannot run workers, and did not come again as another process. fit is how many others are here.
func (l *leader) unfit() (unfit []ticket, fit int) {
	if len(l.declined) == 0 {
		return nil, l.here
	}
	all := slices.Concat(l.declined, l.living())
	slices.SortFunc(all, func(a, b ticket) int { return cmp.Compare(a.number, b.number) })
	kept, _ := distinct(all)
	for _, t := range kept {
		if t.Unfit != "" {
			unfit = append(unfit, t)
		}
	}
	return unfit, len(kept) - len(unfit)
}

// reasons are what nodes say that cannot run workers.
func reasons(unfit []ticket) (all []string) {
	for _, t := range unfit[:min(len(unfit), maxDoubts)] {
		all = append(all, t.declines())
	}
	return all
}

// vain is the refusal of a first meeting that can come to no world without those who cannot run workers, when one of them stays to say so. Who
// is here is told when nobody else is expected, or some time has passed; who comes later, in a meeting of its own.
func (l *leader) vain() *outcome {
	stays := slices.ContainsFunc(l.guests, func(g *guest) bool { return g.Stays })
	all := l.spec.Nodes + l.spec.Spares
	if !stays || l.before.world != nil || all-len(l.declined) >= l.spec.Fewest() {
		return nil
	}
	unfit, fit := l.unfit()
	told := len(unfit) + fit
	switch {
	case all-len(unfit) >= l.spec.Fewest(), told < all && fit == 0:
		l.invain = time.Time{}
		return nil
	case l.invain.IsZero():
		l.invain = time.Now()
	}
	if told < all && time.Since(l.invain) < silent {
		return nil
	}
	why := fmt.Sprintf("%s; the job needs %d nodes", names(reasons(unfit), len(unfit)), l.spec.Fewest())
	return &outcome{Refused: why, Told: told}
}

// unlike finds nodes that are not as the first one, where that was not found out as they came: by a leader who takes no part.
func (l *leader) unlike(tickets []ticket) error {
	if l.self.Unfit == "" {
		return nil
	}
	for _, t := range tickets {
		if why := contradiction(tickets[0].record, t.record); why != nil {
			return why
		}
	}
	return nil
}

// terms are those of a world of these nodes. A leader who takes no part may not know what they train with.
func (l *leader) terms(tickets []ticket) job.Terms {
	terms := l.spec.Terms
	if l.self.Unfit != "" {
		terms = tickets[0].Terms
	}
	terms.Program = program(tickets)
	return terms
}
