package rendezvous

import (
	"context"

	"github.com/muster-run/muster/job"
)

// This file is what a node remembers that is in no world, and waits beside one. When it looks again, other worlds may have followed, and the job may
// be over: it ends with the job, and does not begin it anew, also where its agent died meanwhile, and another one goes on.

// A Standing is a world beside which a node stood by; the zero value is none.
type Standing struct {
	Life       string `json:"life"` // of the store
	Generation int    `json:"generation"`
	Nonce      string `json:"nonce"`
	Twin       string `json:"twin,omitempty"` // the member under whose index this node came, for that one lives; "": none does
}

// stand notes that this node stands by beside a world. twin is the member of it whose index this node has; "": none is known that lives.
func (n *node) stand(w *world, twin string) {
	if n.runsAnother(w) { // how that ends is no end of this node's job
		return
	}
	_, life := n.lives().above()
	s := Standing{life, w.Generation, w.Nonce, twin}
	if twin == "" && n.Stood.Generation == s.Generation && n.Stood.Nonce == s.Nonce {
		s.Twin = n.Stood.Twin
	}
	if s == n.Stood {
		return
	}
	n.Stood = s
	if n.Stands != nil {
		n.Stands(s)
	}
}

// lives is the part of the store that is of this life of it.
func (n *node) lives() shelf {
	lives, _ := n.meeting.above()
	return lives
}

// stood is the end of the job with the world of a generation, where this node stood by beside that, or one before it; nil: it did not. Who only serves the
// store has served all worlds in it.
func (n *node) stood(ctx context.Context, last int, v *job.Verdict) error {
	switch serves := n.Unfit != "" && !n.declines; {
	case serves:
	case !n.spec.Standby() && n.Stood.Twin == "":
		return nil
	default:
		if known, err := n.remembers(ctx, last); !known || err != nil {
			return err
		}
	}
	return &Ended{Verdict: *brief(v), Twin: n.Stood.Twin}
}

// remembers reports whether the world of a generation followed from that beside which this node stood by, or is that one. A store that came back empty may
// have been told of it.
func (n *node) remembers(ctx context.Context, last int) (bool, error) {
	s := n.Stood
	if s.Generation == 0 || s.Generation > last {
		return false, nil
	}
	if _, life := n.lives().above(); s.Life == life {
		return true, nil
	}
	then, err := n.outcome(ctx, n.lives().meeting(s.Generation))
	return err == nil && then != nil && then.World != nil && then.World.Nonce == s.Nonce, err
}
