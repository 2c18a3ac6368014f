package launcher

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/preflight"
	"github.com/muster-run/muster/topology"
	"github.com/muster-run/muster/topology/fixture"
)

// What a machine lacks is told and kept for the verdict; with strict it takes no part, and the others are told why.
func TestPreflight(t *testing.T) {
	text, err := os.ReadFile("../topology/testdata/machines/dgx-h100.txt")
	if err != nil {
		t.Fatal(err)
	}
	down := fixture.Edit(t, string(text), "port mlx5_0 1 ", "4: ACTIVE", "1: DOWN", "5: LinkUp", "2: Polling")
	down = fixture.Edit(t, down, "port mlx5_3 1 ", "down=0", "down=9")
	down = fixture.Edit(t, down, "port mlx5_6 1 ", "down=0", "down=9")
	root := topology.Root(fixture.Tree(t, down))
	for _, c := range []struct {
		how          string
		notes, found int
		unfit        string
	}{
		{"auto", 2, 3, ""}, {preflightStrict, 1, 3, "hca: mlx5_0: DOWN, Polling: no cable, or nobody at its other end: its GPU sends"}, {preflightOff, 0, 0, ""},
	} {
		t.Run(c.how, func(t *testing.T) {
			p, err := planned(config(t, "", func(at *Config) { at.Nodes, at.Endpoint, at.Root, at.Preflight = 2, "10.0.0.1:29400", root, c.how }))
			if err != nil {
				t.Fatal(err)
			}
			notes := slices.DeleteFunc(p.Notes, func(n string) bool { return !strings.HasPrefix(n, "preflight: ") })
			if len(notes) != c.notes || len(p.Preflight) != c.found || !strings.HasPrefix(p.Unfit, c.unfit) || c.unfit == "" && p.Unfit != "" {
				t.Errorf("notes %q\nfound %q\nunfit %q", notes, p.Preflight, p.Unfit)
			}
			if c.unfit != "" && (p.code() != job.ExitRefused || !strings.Contains(p.Cure, "cable")) {
				t.Errorf("code %d, cure %q", p.code(), p.Cure)
			}
			if c.how == "auto" && (!strings.HasPrefix(notes[0], "preflight: hca: mlx5_0: DOWN") || notes[1] != "preflight: to look at: hca-errors (muster check)") {
				t.Errorf("notes %q", notes)
			}
		})
	}
}

// Clocks are compared when all nodes have joined, those that are told; what was said of a node is not said again of the next world.
func TestClocksOfNodes(t *testing.T) {
	const off, older = time.Hour, time.Duration(0) // an older agent's is not known
	var skewed named
	for _, c := range []struct {
		nodes  string          // of a world, by rank
		clocks []time.Duration // of all but the first
		want   string
	}{
		{"a b c", []time.Duration{1, 1}, ""},
		{"a b c", []time.Duration{1, off}, "the clock of c is 1h0m0s ahead of most"},
		{"a b c d", []time.Duration{1, off, 1}, ""},
		{"a b c d", []time.Duration{1, off, off}, "clocks differ by 1h0m0s: c and d ahead of a and b"},
		{"a b", []time.Duration{1}, ""},
		{"a b c", []time.Duration{older, off}, "the clock of c is 1h0m0s ahead of a"},
		{"a b c", []time.Duration{older, older}, ""},
		{"a b c d", []time.Duration{1, off, older}, "the clock of c is 1h0m0s ahead of most"},
	} {
		var nodes []job.Node
		for name := range strings.FieldsSeq(c.nodes) {
			nodes = append(nodes, job.Node{Name: name, Index: -1, Incarnation: name})
		}
		var k clocks
		got := ""
		for i, ahead := range slices.Backward(c.clocks) {
			e := fleet.Event{Peer: i + 1}
			if ahead != older {
				e.Clock = fleet.Clock{Ahead: ahead, Within: 1}
			}
			found, all := k.join(nodes, e)
			if all != (i == 0) {
				t.Fatalf("%s, %v: all have joined before %d has", c.nodes, c.clocks, i)
			}
			if !all {
				continue
			}
			for _, f := range skewed.fresh(found) {
				got += f.Found
			}
		}
		if got != c.want {
			t.Errorf("%s, %v: %q, want %q", c.nodes, c.clocks, got, c.want)
		}
	}
}

// What nodes have otherwise than others is said when it is new, each thing for itself.
func TestUnlikeNews(t *testing.T) {
	found := func(check string, odd ...string) preflight.Finding {
		f := preflight.Finding{Check: check}
		for _, o := range odd {
			f.Odd = append(f.Odd, job.Node{Incarnation: o})
		}
		return f
	}
	var n named
	for i, c := range []struct {
		found []preflight.Finding
		want  string
	}{
		{nil, ""}, {[]preflight.Finding{found("shm", "b")}, "shm"}, {[]preflight.Finding{found("shm", "b"), found("gpu", "b")}, "gpu"},
		{[]preflight.Finding{found("gpu", "b")}, ""}, {[]preflight.Finding{found("shm", "b"), found("gpu", "c", "b")}, "shm gpu"},
	} {
		var got []string
		for _, f := range n.fresh(c.found) {
			got = append(got, f.Check)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
}
