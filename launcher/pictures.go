package launcher

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/topology"
	"github.com/muster-run/muster/topology/view"
)

// This file is how the leader's status page comes by drawings of the other nodes' machines. Nobody sends one unasked: the leader asks the agent
// of a node when somebody looks at its machine, and keeps the answer. An agent that does not know the question leaves it aside.

const (
	maxPacked   = 64 << 10 // bytes of a drawing on its way,
	maxDrawn    = 2 << 20  // and here
	maxPictures = 64       // of other nodes that are kept, packed
	pictureTime = 5 * time.Second
	askAgain    = 30 * time.Second // after a node did not answer
)

// pictures are drawings of machines: this node's, and those that were asked for. Its zero value draws a machine of which nothing is known.
type pictures struct {
	machine topology.Machine // this node's
	once    sync.Once
	packed  []byte // its drawing
	err     error

	mu   sync.Mutex
	last int              // question
	kept []*picture       // the oldest first
	open map[int]*picture // by the question's number
}

// A picture is one that was asked for.
type picture struct {
	of     string // the agent's incarnation,
	node   int    // and its group rank then
	asked  time.Time
	packed []byte        // valid once
	err    error         // it is
	there  chan struct{} // closed
}

// own is this node's, packed.
func (p *pictures) own() ([]byte, error) {
	p.once.Do(func() {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		p.err = errors.Join(view.SVG(z, p.machine), z.Close())
		if p.packed = b.Bytes(); p.err == nil && len(p.packed) > maxPacked {
			p.err = fmt.Errorf("the drawing has %d bytes packed, more than %d", len(p.packed), maxPacked)
		}
	})
	return p.packed, p.err
}

// draw is a node's machine: of this one if nobody says in which world it is, or which node.
func (p *pictures) draw(ctx context.Context, w *watch, node int) ([]byte, error) {
	if node < 0 || w != nil && node == w.group {
		packed, err := p.own()
		return unpacked(packed, err)
	}
	switch {
	case w == nil:
		return nil, errors.New("no workers run here: it can be asked for when they do")
	case node >= len(w.world.Members):
		return nil, fmt.Errorf("there is no node %d: the world has %d", node, len(w.world.Members))
	case w.group != 0:
		return nil, errors.New("node 0 can ask for it: look there")
	}
	return p.other(ctx, w.world.Members[node].Incarnation, node, func(n news) error { return w.fleet.TellOne(node, n.Kind, n) })
}

// other is another node's, which tell asks.
func (p *pictures) other(ctx context.Context, of string, node int, tell func(news) error) ([]byte, error) {
	got := p.ask(of, node, tell)
	late := time.NewTimer(time.Until(got.asked.Add(pictureTime)))
	defer late.Stop()
	select {
	case <-got.there:
		return unpacked(got.packed, got.err)
	default:
	}
	select {
	case <-got.there:
		return unpacked(got.packed, got.err)
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-late.C:
		return nil, fmt.Errorf("its agent has not sent it within %v: it is of an older version, or busy", pictureTime)
	}
}

// ask is what a node answers, or has answered.
func (p *pictures) ask(of string, node int, tell func(news) error) *picture {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.IndexFunc(p.kept, func(k *picture) bool { return k.of == of }); i >= 0 {
		if was := p.kept[i]; was.packed != nil || time.Since(was.asked) < askAgain {
			return was
		}
		p.drop(i)
	}
	if len(p.kept) >= maxPictures {
		p.drop(0)
	}
	p.last++
	got := &picture{of: of, node: node, asked: time.Now(), there: make(chan struct{})}
	if p.open == nil {
		p.open = map[int]*picture{}
	}
	p.kept, p.open[p.last] = append(p.kept, got), got
	if err := tell(news{Kind: newsPicture, Number: p.last}); err != nil {
		delete(p.open, p.last)
		got.err = err
		close(got.there)
	}
	return got
}

// drop forgets one, for who has the lock. Who waits for it does so in vain.
func (p *pictures) drop(i int) {
	for number, o := range p.open {
		if o == p.kept[i] {
			delete(p.open, number)
		}
	}
	p.kept = slices.Delete(p.kept, i, i+1)
}

// answer is what a node says that was asked.
func (p *pictures) answer() news {
	packed, err := p.own()
	if err != nil {
		return news{Kind: newsPicture, Why: report.Line(err.Error(), 200)}
	}
	return news{Kind: newsPicture, Picture: packed}
}

// take keeps what a node answered.
func (p *pictures) take(from int, n news) {
	p.mu.Lock()
	defer p.mu.Unlock()
	got := p.open[n.Number]
	if got == nil || got.node != from {
		return
	}
	delete(p.open, n.Number)
	switch {
	case len(n.Picture) == 0:
		got.err = fmt.Errorf("its agent says: %s", report.Line(n.Why, 200))
	case len(n.Picture) > maxPacked:
		got.err = fmt.Errorf("its agent sent %d bytes, more than %d", len(n.Picture), maxPacked)
	default:
		got.packed = n.Picture
	}
	close(got.there)
}

// hears takes in what the other agents have to say of drawings; false: that is not what an event is about.
func (p *pictures) hears(e fleet.Event, l *line) bool {
	n, ok := about(e, newsPicture)
	switch {
	case !ok:
		return false
	case e.Peer == 0: // the leader asks
		answer := p.answer()
		answer.Number = n.Number
		l.tell(0, answer)
	default:
		p.take(e.Peer, n)
	}
	return true
}

// drawing is a node's machine for the page; of node -1 this one's.
func (d *desk) drawing(ctx context.Context, node int) ([]byte, error) {
	return d.pictures.draw(ctx, d.now().watch, node)
}

// hears is that of the pictures of a desk; a nil desk has none.
func (d *desk) hears(e fleet.Event, l *line) bool { return d != nil && d.pictures.hears(e, l) }

func unpacked(packed []byte, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("what came is no packed drawing: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(z, maxDrawn+1))
	if err == nil && len(text) > maxDrawn {
		err = fmt.Errorf("it has more than %d bytes", maxDrawn)
	}
	if err != nil {
		return nil, fmt.Errorf("unpack a drawing: %w", err)
	}
	return text, nil
}
