package launcher

import (
	"slices"
	"strings"
	"testing"

	"github.com/muster-run/muster/job"
)

// A port that dies on a node is named on all: its own node tells the leader, the leader tells the others, and none stops for it.
func TestAilingIsToldToAll(t *testing.T) {
	const text = "hca: mlx5_3: DOWN, Polling: no cable, or nobody at its other end"
	what := []job.Evidence{{Kind: "hca", Text: text}}
	world := func(self int) state {
		s := state{Self: self, Started: true, Left: 1, Round: 2}
		for _, name := range []string{"a", "b", "c"} {
			s.Nodes = append(s.Nodes, &node{Name: name})
		}
		return s
	}
	said := func(s state, event any) (state, []string, []tell) {
		s, todo := decide(policy{}, s, 1, event)
		var lines []string
		var tells []tell
		for _, d := range todo {
			switch d := d.(type) {
			case say:
				lines = append(lines, d.Text)
			case tell:
				tells = append(tells, d)
			default:
				t.Errorf("%T follows from it", d)
			}
		}
		return s, lines, tells
	}
	want := []string{"node 1 (b): " + text}
	own, lines, tells := said(world(1), ailing{What: what})
	if !slices.Equal(lines, want) || !slices.Equal(own.Ailing, want) || len(tells) != 1 || tells[0].To != 0 {
		t.Fatalf("its own node: %q, %+v", lines, tells)
	}
	n := tells[0].News
	n.Round = 1 // of a round before
	lead, lines, tells := said(world(0), told{1, n})
	if !slices.Equal(lines, want) || !slices.Equal(lead.Ailing, want) || len(tells) != 1 || tells[0].To != everyone || tells[0].News.Of != 1 {
		t.Fatalf("the leader: %q, %+v", lines, tells)
	}
	other, lines, more := said(world(2), told{0, tells[0].News})
	if !slices.Equal(lines, want) || !slices.Equal(other.Ailing, want) || len(more) != 0 {
		t.Fatalf("another node: %q, %+v", lines, more)
	}
	if own, lines, more = said(own, told{0, tells[0].News}); len(lines)+len(more) != 0 || len(own.Ailing) != 1 {
		t.Fatalf("its own node hears of it again: %q", lines)
	}
	if s, lines, more := said(world(0), ailing{what, allNodes}); len(lines) != 1 || lines[0] != "the nodes are not alike: "+text || len(s.Ailing) != 1 || more[0].News.Of != allNodes {
		t.Errorf("of all nodes: %q", lines)
	} else if _, lines, _ := said(world(2), told{0, more[0].News}); len(lines) != 1 {
		t.Errorf("of all nodes, told to one: %q", lines)
	}
	for range 100 {
		lead, _, _ = said(lead, ailing{What: []job.Evidence{{Text: strings.Repeat("x", 10000) + "\x1b[2J\n"}}})
	}
	if len(lead.Ailing) != maxAiling || len(lead.Ailing[0]) > maxAilment+100 {
		t.Errorf("%d words are kept, of %d bytes", len(lead.Ailing), len(lead.Ailing[0]))
	}
	if _, lines, _ := said(world(2), told{0, news{Kind: newsHealth, Ailing: what, Of: 7}}); lines != nil {
		t.Errorf("a node that is none: %q", lines)
	}
}
