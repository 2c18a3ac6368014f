package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// A table has a column for each launcher and the rows of the scenes that were played.
type table struct {
	launchers []launcher
	rows      []row
	cells     [][][]cell // of each row, for each launcher, of each play
}

// measure plays a scene: each launcher in turn, until each had its runs.
func (t *table) measure(o options, s scene, dir, worker string) error {
	plays := make([][][]cell, len(t.launchers)) // for each launcher, of each play, of each row
	for i := range max(o.runs, o.peers) {
		for k, l := range t.launchers {
			if i >= l.runs || l.plain && (s.job.nodes > 1 || s.job.tee) || s.heavy && l.slow && (!o.full || i > 0) {
				continue
			}
			fmt.Fprintf(os.Stderr, "%-10s %-16s %d\r", s.name, l.name, i+1)
			r, err := begin(l, s.job, dir, worker, startTime)
			if err != nil {
				return err
			}
			plays[k] = append(plays[k], s.play(r))
			r.end()
		}
	}
	for n, row := range s.rows {
		cells := make([][]cell, len(t.launchers))
		for k := range plays {
			for _, play := range plays[k] {
				cells[k] = append(cells[k], play[n])
			}
		}
		t.rows, t.cells = append(t.rows, row), append(t.cells, cells)
	}
	return nil
}

// String is the table as Markdown: medians, lowest to highest, number of plays.
func (t *table) String() string {
	lines := [][]string{{"what", "limit"}}
	for _, l := range t.launchers {
		lines[0] = append(lines[0], l.name)
	}
	for n, row := range t.rows {
		line := []string{row.what, row.bar}
		for _, cells := range t.cells[n] {
			line = append(line, summary(cells))
		}
		lines = append(lines, line)
	}
	return aligned(lines)
}

func aligned(lines [][]string) string {
	width := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, text := range line {
			width[i] = max(width[i], len([]rune(text)))
		}
	}
	var b strings.Builder
	for n, line := range lines {
		for i, text := range line {
			fmt.Fprintf(&b, "| %-*s ", width[i], text)
		}
		b.WriteString("|\n")
		if n == 0 {
			for i := range line {
				b.WriteString("|" + strings.Repeat("-", width[i]+2))
			}
			b.WriteString("|\n")
		}
	}
	return b.String()
}

func summary(cells []cell) string {
	if len(cells) == 0 {
		return "not measured"
	}
	if cells[0].text != "" {
		return words(cells)
	}
	slices.SortFunc(cells, func(a, b cell) int { return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.bytes, b.bytes)) })
	low, middle, high := cells[0], cells[len(cells)/2], cells[len(cells)-1]
	if low.time == never {
		return fmt.Sprintf("never (in %v, n %d)", patience, len(cells))
	}
	return fmt.Sprintf("%v (%v–%v, n %d)", middle, low, high, len(cells))
}

// words counts equal texts.
func words(cells []cell) string {
	count := map[string]int{}
	for _, c := range cells {
		count[c.text]++
	}
	if len(count) == 1 {
		return fmt.Sprintf("%s (n %d)", cells[0].text, len(cells))
	}
	var all []string
	for text, n := range count {
		all = append(all, fmt.Sprintf("%s: %d", text, n))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// String shows three digits.
func (c cell) String() string {
	switch {
	case c.text != "":
		return c.text
	case c.bytes > 0:
		return digits(float64(c.bytes)/(1<<20)) + " MiB"
	case c.time == never:
		return "never"
	case c.time < time.Second:
		return digits(float64(c.time)/float64(time.Millisecond)) + " ms"
	}
	return digits(c.time.Seconds()) + " s"
}

func digits(x float64) string {
	switch {
	case x < 10:
		return fmt.Sprintf("%.2f", x)
	case x < 100:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}
