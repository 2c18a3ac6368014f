package matrix

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// judge says what went wrong in a case that has come to its end.
func (s *stage) judge() {
	s.t.Helper()
	for _, p := range s.Programs() {
		if p.Running() {
			s.t.Errorf("%s still runs", p.On.Own)
		}
	}
	s.until("the end of every worker", func() bool { return len(s.book.alive()) == 0 })
	s.must(s.book.mark())
	s.until("the end of the book", s.book.marked)
	all, err := s.book.workers()
	s.must(err)
	for _, wrong := range judge(all) {
		s.t.Error(wrong)
	}
	for _, h := range s.hosts {
		if left := h.Processes(); len(left) > 0 {
			s.t.Errorf("left on %s: %+v", h.Own, left)
		}
	}
}

// judge reads a book.
func judge(all []record) (wrong []string) {
	for _, r := range all {
		if r.what == "taken" || strings.HasPrefix(r.what, "outlived") {
			wrong = append(wrong, r.String())
		}
	}
	return append(append(wrong, worlds(all)...), mixed(all)...)
}

// worlds finds rounds that were not one world. Those that made no step were none.
func worlds(all []record) (wrong []string) {
	type place struct{ round, rank int }
	who, size := map[place]record{}, map[int]record{}
	for _, r := range all {
		if r.what != "stepped" {
			continue
		}
		at := place{r.round, r.rank}
		if _, known := who[at]; !known {
			who[at] = r
		}
		if _, known := size[r.round]; !known {
			size[r.round] = r
		}
		if first := who[at]; !first.by(r) {
			wrong = append(wrong, fmt.Sprintf("two have one rank: %v; %v", first, r))
			who[at] = r
		}
		if first := size[r.round]; first.size != r.size || r.rank >= r.size {
			wrong = append(wrong, fmt.Sprintf("not one world: %v; %v", first, r))
		}
	}
	return wrong
}

// mixed finds what a worker did when one of a newer round had begun.
func mixed(all []record) (wrong []string) {
	begun := map[int]record{} // the first of each round
	for _, r := range all {
		if first, known := begun[r.round]; r.what != "gone" && (!known || r.at < first.at) {
			begun[r.round] = r
		}
	}
	for _, r := range all {
		for _, first := range begun {
			if r.what != "gone" && first.round > r.round && r.at > first.at {
				wrong = append(wrong, fmt.Sprintf("after a newer round: %v; %v", first, r))
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

// The oracle finds each fault for which it is there.
func TestOracle(t *testing.T) {
	good := func() []record {
		var all []record
		for i, what := range []string{"up", "stepped", "gone"} {
			for rank := range 2 {
				first := record{machine: fmt.Sprint("m", rank), rank: rank, size: 2, pid: 5, what: what, at: time.Duration(2*i + rank)}
				again := first
				again.round, again.pid, again.at = 1, 6, first.at+10
				all = append(all, first, again)
			}
		}
		return all
	}
	const stepped, again = 4, 5 // rank 0's, in either round
	for name, c := range map[string]struct {
		spoil func([]record)
		want  string
	}{
		"nothing":              {func([]record) {}, ""},
		"a slot used twice":    {func(all []record) { all[0].what = "taken" }, "taken"},
		"an older worker":      {func(all []record) { all[1].what = "outlived:0.m1.0.5" }, "outlived"},
		"two worlds at once":   {func(all []record) { all[stepped].round, all[stepped].at = 1, 20 }, "two have one rank"},
		"two sizes":            {func(all []record) { all[again].size = 3 }, "not one world"},
		"a rank that is none":  {func(all []record) { all[again].rank = 2 }, "not one world"},
		"a step of yesterday":  {func(all []record) { all[stepped].at = 11 }, "after a newer round"},
		"seen late to be gone": {func(all []record) { all[len(all)-2].at = 30 }, ""},
	} {
		all := good()
		c.spoil(all)
		wrong := judge(all)
		if c.want == "" && len(wrong) > 0 || c.want != "" && (len(wrong) == 0 || !strings.Contains(wrong[0], c.want)) {
			t.Errorf("%s: %q, want %q", name, wrong, c.want)
		}
	}
}
