package launcher

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/job"
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

// Clocks are compared when all nodes have told theirs, and not where one does not.
func TestClocksOfAllNodes(t *testing.T) {
	var k clocks
	tells := func(peer int, ahead time.Duration) fleet.Event {
		return fleet.Event{Peer: peer, Clock: fleet.Clock{Ahead: ahead, Within: 1}}
	}
	if k.joined(3, tells(2, time.Hour)) || !k.joined(3, tells(1, 0)) || k.of[2].Ahead != time.Hour {
		t.Errorf("%+v", k)
	}
	if k = (clocks{}); k.joined(3, fleet.Event{Peer: 2}) || k.joined(3, tells(1, 0)) {
		t.Errorf("a node that does not tell: %+v", k)
	}
}
