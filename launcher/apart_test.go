package launcher

import (
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-run/muster/heartbeat/page"
	"github.com/muster-run/muster/horovod"
)

func TestApart(t *testing.T) {
	used, unused := []page.Lane{{Entered: 1}}, []page.Lane{{}} // of some recorders, which know of groups before they are used
	in := page.Snapshot{PID: 7, Grouped: true, World: 4, Optimizer: 9, Lanes: used}
	idle, blind := page.Snapshot{PID: 7, Grouped: true, World: 4, Optimizer: 3}, page.Snapshot{PID: 7, Grouped: true, World: 4, Optimizer: 3, Lanes: unused}
	sends := blind
	sends.Lanes = []page.Lane{{Mixed: true}}
	unknown := page.Snapshot{PID: 7, Grouped: true, World: 4, Optimizer: 9, Mute: "no recorder and no sequence number"}
	single := page.Snapshot{PID: 7, Grouped: true, World: 1}
	lone := page.Snapshot{PID: 7, World: 4, Optimizer: 3}
	spawner, joined := page.Snapshot{PID: 7, World: 4, Spawned: true}, in
	joined.Spawned = true
	for name, c := range map[string]struct {
		size int
		all  []page.Snapshot
		want []string
	}{
		"worlds in workers":              {4, []page.Snapshot{spawner, spawner}, []string{"what rank 2 (pid 7) started by torch.multiprocessing is a process group of its own, without the others of the job's 4 ranks"}},
		"a world in one worker":          {4, []page.Snapshot{spawner, {PID: 7, World: 4}}, nil},
		"worlds besides that of all":     {4, []page.Snapshot{joined, joined}, nil},
		"a world in the only worker":     {1, []page.Snapshot{spawner}, nil},
		"together":                       {4, []page.Snapshot{in, in}, nil},
		"a group of one":                 {4, []page.Snapshot{in, single}, []string{"rank 3 (pid 7) is in a process group of 1, but the job has 4 ranks"}},
		"both alone":                     {4, []page.Snapshot{lone, lone}, []string{"rank 2 has made 3 steps"}},
		"a group that nobody uses":       {4, []page.Snapshot{idle, idle}, []string{"rank 2 has made 3 steps"}},
		"the same, which is recorded":    {4, []page.Snapshot{blind, blind}, []string{"rank 2 has made 3 steps"}},
		"collectives that nobody sees":   {4, []page.Snapshot{unknown, unknown}, nil},
		"sends and receives alone":       {4, []page.Snapshot{sends, sends}, nil},
		"one alone is the script's will": {4, []page.Snapshot{in, lone}, nil},
		"one has not begun":              {4, []page.Snapshot{lone, {}}, nil},
		"a world of one":                 {1, []page.Snapshot{lone}, nil},
		"no steps yet":                   {4, []page.Snapshot{{PID: 7}, {PID: 7, Optimizer: 2}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var a apart
			said := a.note(2, c.size, c.all)
			if len(said) != len(c.want) {
				t.Fatalf("said %q, want %q", said, c.want)
			}
			for i := range said {
				if !strings.Contains(said[i], c.want[i]) {
					t.Errorf("said %q, want %q", said[i], c.want[i])
				}
			}
			other := apart{elsewhere: true}
			if said := other.note(2, c.size, c.all); strings.Contains(strings.Join(said, ""), "train alone") {
				t.Errorf("of workers of another framework it said %q", said)
			}
			if train := len(c.want) > 0 && strings.Contains(c.want[0], "steps"); other.steps != train {
				t.Errorf("of workers of another framework it knows that they train: %v, want %v", other.steps, train)
			}
			if again := a.note(2, c.size, c.all); again != nil {
				t.Errorf("said again: %q", again)
			}
		})
	}
}

// Who trained with the others and destroyed its process group, with all the lanes that were seen of it, did not train alone.
func TestApartAfterwards(t *testing.T) {
	used := page.Snapshot{PID: 7, Grouped: true, World: 4, Optimizer: 1, Lanes: []page.Lane{{Entered: 1}}}
	muted := page.Snapshot{PID: 8, Grouped: true, World: 4, Optimizer: 9, Mute: "no recorder and no sequence number"}
	var a apart
	a.note(2, 4, []page.Snapshot{used, muted})
	after := []page.Snapshot{{PID: 7, World: 4, Optimizer: 30}, {PID: 8, World: 4, Optimizer: 30}}
	if said := a.note(2, 4, after); said != nil || a.steps {
		t.Errorf("%q, %v", said, a.steps)
	}
	unseen := []page.Snapshot{{PID: 27, World: 4, Optimizer: 30, Met: true}, {PID: 28, World: 4, Optimizer: 30, Met: true}}
	if said := a.note(2, 4, unseen); said != nil || a.steps { // whose group came and went between two looks
		t.Errorf("%q, %v", said, a.steps)
	}
	after[0].PID, after[1].PID = 17, 18
	if said := a.note(2, 4, after); len(said) != 1 || !a.steps {
		t.Errorf("of other processes in their place: %q, %v", said, a.steps)
	}
}

// Workers that none of Horovod's rendezvous has seen are told of once, when it is time; those that came are not.
func TestArrivals(t *testing.T) {
	a := &arrivals{file: filepath.Join(t.TempDir(), "empty")}
	if err := a.open(); err != nil {
		t.Fatal(err)
	}
	if said := a.alone(false); said != "" || a.over() {
		t.Errorf("too early: %q", said)
	}
	a.ended(false)
	if a.over() {
		t.Error("a failed worker is told of by its failure")
	}
	if a.ended(true); !a.over() || a.alone(true) == "" || a.alone(true) != "" {
		t.Error("it is to be said once")
	}
	server := httptest.NewServer(&horovod.Server{World: horovod.World{1, 1}})
	defer server.Close()
	told := make(chan string, 2)
	other := &arrivals{at: server.Listener.Addr().String(), tell: func(text string) { told <- text }}
	if said := other.alone(true) + other.alone(true); said != "" || other.open() != nil || <-told != nobodyCame || len(told) > 0 {
		t.Errorf("another node does not say it once, but %q", said)
	}
	came := &arrivals{file: filepath.Join(t.TempDir(), "none")}
	var none *arrivals
	none.ended(true)
	if err := none.open(); came.alone(true) != "" || none.alone(true) != "" || none.over() || err != nil {
		t.Errorf("of those that came, or are not awaited, %q is said, %q, %v", came.alone(true), none.alone(true), err)
	}
}
