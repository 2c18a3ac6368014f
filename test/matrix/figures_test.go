package matrix

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// A world is what came of a deed, or should have.
type world struct {
	deed   deed
	size   int
	firsts []record // the first step of each rank; nil: it never came
}

// A figure is how long it took from a deed until the old workers of hosts that were not hit were gone (0: there were
// none), until the last of the new ones was at its beginning, and until all had made a step.
type figure struct{ gone, began, stepped time.Duration }

// figure reads in a book what a deed took.
func (w world) figure(all []record) figure {
	if w.firsts == nil {
		return figure{}
	}
	f := figure{stepped: latest(w.firsts) - w.deed.at}
	old := map[string]bool{}
	for _, r := range all {
		switch worker := fmt.Sprint(r.machine, r.pid); {
		case r.what == "up" && r.at < w.deed.at:
			old[worker] = !w.deed.hits(r.machine)
		case r.what == "up" && slices.ContainsFunc(w.firsts, r.by):
			f.began = max(f.began, r.at-w.deed.at)
		case r.what == "gone" && old[worker] && r.at > w.deed.at && r.at < latest(w.firsts):
			f.gone = max(f.gone, r.at-w.deed.at)
		}
	}
	return f
}

func (d deed) hits(machine string) bool {
	return slices.ContainsFunc(d.hit, func(h *host) bool { return h.Own == machine })
}

// A table has a row for each world that came of a deed, and a column for each launcher.
type table struct {
	mu      sync.Mutex
	rows    []string
	columns []string
	cells   map[[2]string][]figure
}

// add takes what one play of a scene has shown.
func (t *table) add(scene, column string, s *stage) {
	all, err := s.book.workers()
	s.must(err)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cells == nil {
		t.cells = map[[2]string][]figure{}
	}
	for n, w := range s.worlds {
		row := fmt.Sprintf("%s: %s, a world of %d", scene, w.deed.what, w.size)
		if n == 0 {
			continue // nothing was lost yet
		}
		if !slices.Contains(t.rows, row) {
			t.rows = append(t.rows, row)
		}
		if !slices.Contains(t.columns, column) {
			t.columns = append(t.columns, column)
		}
		t.cells[[2]string{row, column}] = append(t.cells[[2]string{row, column}], w.figure(all))
	}
}

// String is the table as Markdown: medians, and in how many plays.
func (t *table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| what was done, and what came of it | %s |\n|---%s|\n", strings.Join(t.columns, " | "), strings.Repeat("|---", len(t.columns)))
	for _, row := range t.rows {
		fmt.Fprintf(&b, "| %s ", row)
		for _, column := range t.columns {
			fmt.Fprintf(&b, "| %s ", summary(t.cells[[2]string{row, column}]))
		}
		b.WriteString("|\n")
	}
	return b.String()
}

// summary is a cell: the medians of the worlds that came, and how many did not.
func summary(all []figure) string {
	came := slices.DeleteFunc(slices.Clone(all), func(f figure) bool { return f.stepped == 0 })
	var text []string
	if len(came) > 0 {
		gone := "–"
		if m := median(came, func(f figure) time.Duration { return f.gone }); m > 0 {
			gone = m.String()
		}
		text = append(text, fmt.Sprintf("%s, %v, %v (n %d)", gone,
			median(came, func(f figure) time.Duration { return f.began }), median(came, func(f figure) time.Duration { return f.stepped }), len(came)))
	}
	if never := len(all) - len(came); never > 0 {
		text = append(text, fmt.Sprintf("none in %v (n %d)", patience, never))
	}
	return cmp.Or(strings.Join(text, "; "), "–")
}

func median(all []figure, of func(figure) time.Duration) time.Duration {
	var each []time.Duration
	for _, f := range all {
		each = append(each, of(f))
	}
	slices.Sort(each)
	middle := each[len(each)/2]
	if middle < time.Second {
		return middle.Round(time.Millisecond)
	}
	return middle.Round(10 * time.Millisecond)
}
