package torchrun

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/muster-run/muster/rendezvous/store"
)

// ErrClosed is returned when the rendezvous was ended for all nodes, as the first of them to finish does.
var ErrClosed = errors.New("torchrun: the rendezvous is closed")

// ErrDropped is returned to a node that the round goes on without: its heartbeats came too late, or it left.
var ErrDropped = errors.New("torchrun: the node is in no round")

// Limits are how many nodes make a round.
type Limits struct {
	Min, Max int
	LastCall time.Duration // for more than Min nodes; 0: torchrun's 30 s
}

// A Config is what a node brings. Its RunID, Limits and Role must be those of the torchrun nodes.
type Config struct {
	RunID  string
	Desc   Desc // unique in the job; the order of the nodes' descriptions is that of their ranks
	Limits Limits
	Role   string // torchrun's default: "default"
	Slots  int    // workers of this node
	// Layout is that of the nodes' PyTorch. It matters to the node that comes first; later ones take what they find.
	Layout Layout
	// Master is asked when this node has group rank 0: for the address that all workers get as MASTER_ADDR and
	// MASTER_PORT. With Shared a TCPStore must be served there, else rank 0 will host one.
	Master func(context.Context) (host string, port int, err error)
	// Shared says that the agent's TCPStore is the workers' too, as it is from PyTorch 2.4 on unless
	// TORCH_DISABLE_SHARE_RDZV_TCP_STORE is 1. All rounds then have the first one's.
	Shared bool
}

// A Node takes part in a rendezvous of torchrun's agents. It is not safe for concurrent use.
type Node struct {
	c      Config
	st     store.Store
	state  *State
	token  []byte // what the store held when state was read or written
	master address
}

// New returns a node that has not joined yet. The store must be the one that the torchrun nodes call their endpoint.
func New(st store.Store, c Config) *Node {
	if c.Limits.LastCall == 0 {
		c.Limits.LastCall = lastCall
	}
	if c.Role == "" {
		c.Role = "default"
	}
	return &Node{c: c, st: st}
}

func (n *Node) key() string { return "torch.rendezvous." + n.c.RunID }

// Join takes part in the next round and returns it when it is complete and all its nodes know their ranks. If ctx
// ends first, the node withdraws.
func (n *Node) Join(ctx context.Context) (*Round, error) {
	err := n.meet(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = errors.Join(err, n.withdraw(ctx))
		}
		return nil, fmt.Errorf("torchrun: join %s: %w", n.c.RunID, err)
	}
	r := &Round{Number: n.state.Round, Rank: int(n.state.Participants[n.c.Desc]), Nodes: len(n.state.Participants)}
	if err := n.agree(ctx, r); err != nil {
		return nil, fmt.Errorf("torchrun: ranks of %s: %w", n.c.RunID, err)
	}
	return r, nil
}

// meet returns when the node is in a complete round.
func (n *Node) meet(ctx context.Context) error {
	for {
		if err := n.read(ctx); err != nil {
			return err
		}
		did := wait
		err := n.change(ctx, func(s *State, now time.Time) bool {
			did = decide(s, n.c.Desc, n.c.Limits, now)
			return s.apply(did, n.c.Desc, n.c.Limits, now)
		})
		switch {
		case err != nil:
			return err
		case did == leaveForClosed:
			return ErrClosed
		case did == inRound:
			return nil
		case did == wait:
			err = sleep(ctx, look)
		}
		if err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// read fetches the state. The value under the key always is one, or noState, so that reading never waits.
func (n *Node) read(ctx context.Context) error {
	if n.token == nil {
		if _, err := n.st.CompareSet(ctx, n.key(), nil, []byte(noState)); err != nil {
			return err
		}
	}
	value, err := n.st.Get(ctx, n.key())
	if err != nil {
		return err
	}
	return n.adopt(value)
}

func (n *Node) adopt(value []byte) (err error) {
	n.token, n.state = value, newState(n.c.Layout)
	if string(value) != noState {
		n.state, err = Unmarshal(value)
	}
	return err
}

// change changes the state and writes it, again on whatever another node wrote before us. The change says whether there
// is anything to write.
func (n *Node) change(ctx context.Context, f func(*State, time.Time) bool) error {
	for {
		now := time.Now().UTC().Truncate(time.Microsecond)
		n.state.bury(n.c.Limits, now)
		if !f(n.state, now) {
			return nil
		}
		want := n.state.Marshal()
		got, err := n.st.CompareSet(ctx, n.key(), n.token, want)
		if err != nil {
			return err
		}
		if string(got) == string(want) {
			n.token = want
			return nil
		}
		if err := n.adopt(got); err != nil {
			return err
		}
	}
}

// withdraw takes back what the node did to join, though its time is over.
func (n *Node) withdraw(ended context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ended), beat)
	defer cancel()
	return n.Leave(ctx)
}

// Beat says that the node lives, which it must do at least every 15 s, and returns how many nodes wait for a new round.
// torchrun's nodes look every tenth of a second and begin a new round when there are any.
func (n *Node) Beat(ctx context.Context) (waiting int, err error) {
	if err := n.read(ctx); err != nil {
		return 0, fmt.Errorf("torchrun: read the state of %s: %w", n.c.RunID, err)
	}
	err = n.change(ctx, func(s *State, now time.Time) bool {
		_, known := s.Heartbeats[n.c.Desc]
		return known && now.Sub(s.Heartbeats[n.c.Desc]) > beat && s.apply(renew, n.c.Desc, n.c.Limits, now)
	})
	if err != nil {
		return 0, fmt.Errorf("torchrun: keep alive in %s: %w", n.c.RunID, err)
	}
	if _, in := n.state.Participants[n.c.Desc]; !in {
		return 0, ErrDropped
	}
	return len(n.state.WaitList), nil
}

// Leave takes the node out, as it does before it joins a new round. That round begins when all have left the old one.
func (n *Node) Leave(ctx context.Context) error {
	if err := n.read(ctx); err != nil {
		return fmt.Errorf("torchrun: leave %s: %w", n.c.RunID, err)
	}
	err := n.change(ctx, func(s *State, _ time.Time) bool {
		before := len(s.Participants) + len(s.WaitList) + len(s.Redundancy) + len(s.Heartbeats)
		s.drop(n.c.Desc, n.c.Limits)
		return before != len(s.Participants)+len(s.WaitList)+len(s.Redundancy)+len(s.Heartbeats)
	})
	if err != nil {
		return fmt.Errorf("torchrun: leave %s: %w", n.c.RunID, err)
	}
	return nil
}

// Close ends the rendezvous for all nodes and for good. torchrun's nodes do it when their workers have finished.
func (n *Node) Close(ctx context.Context) error {
	err := n.read(ctx)
	if err == nil {
		err = n.change(ctx, func(s *State, _ time.Time) bool {
			open := !s.Closed
			s.Closed = true
			return open
		})
	}
	if err != nil {
		return fmt.Errorf("torchrun: close %s: %w", n.c.RunID, err)
	}
	return nil
}
