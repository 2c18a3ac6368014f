package main

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/report"
)

// The status on a terminal is as wide and high as that, its first line has the colour of all, and a line that says what is wrong has its own.
func TestScreen(t *testing.T) {
	zero, at := 0, time.Unix(1700000000, 0)
	s := report.Status{Job: "j", Phase: report.Running, Since: at, Node: &zero, World: 40, Message: strings.Repeat("é", 200)}
	for rank := range 40 {
		s.Nodes = append(s.Nodes, report.StatusNode{Name: "gpu", Place: "rack"})
		s.Ranks = append(s.Ranks, report.StatusRank{Rank: rank, Node: rank, State: report.RankRuns})
	}
	for i := range 40 {
		s.Nodes[i].Done = true // each is worth a line
	}
	lines := func(colours bool) []string {
		text := screen(s, at, 24, 60, colours)
		if !strings.HasPrefix(text, "\x1b[?7l\x1b[H\x1b[K") || !strings.HasSuffix(text, "\n\x1b[J\x1b[?7h") {
			t.Errorf("%q", text)
		}
		return strings.Split(strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(text, "\x1b[?7l\x1b[H"), "\n\x1b[J\x1b[?7h"), "\x1b[K", ""), "\n")
	}
	plain := lines(false)
	if len(plain) != 23 || !strings.HasPrefix(plain[22], "and 26 more lines: muster status") {
		t.Errorf("%d lines, and the last is %q", len(plain), plain[len(plain)-1])
	}
	for _, line := range plain {
		if n := len([]rune(line)); n > 60 || strings.Contains(line, "\x1b") {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	if got := lines(true)[0]; !strings.HasPrefix(got, "\x1b[1;32mjob j: running") {
		t.Errorf("all is well: %q", got)
	}
	s.Ranks[1].State = report.RankStraggles
	if got := lines(true)[0]; !strings.HasPrefix(got, "\x1b[1;33m") {
		t.Errorf("one is slow: %q", got)
	}
	s.Ranks[2].State = report.RankHung
	got := strings.Join(lines(true), "\n")
	if !strings.HasPrefix(got, "\x1b[1;31m") || !strings.Contains(got, "\x1b[31m2     gpu   done   rack   2 hung\x1b[m") {
		t.Errorf("one hangs: %q", got)
	}
}

// A sentence is there to its end, however narrow the terminal is, and in its colour; a row of a table is one line.
func TestScreenIsNarrow(t *testing.T) {
	zero, at := 0, time.Unix(1700000000, 0)
	s := report.Status{Job: "j", Phase: report.Stopping, Since: at, Node: &zero, World: 2, Nodes: []report.StatusNode{{Name: "a-node-with-a-long-name-of-its-own"}, {Name: "b"}},
		Causes: []string{"rank 1 on b was killed, and what it said last is " + strings.Repeat("unbroken", 8)}}
	for columns := 2; columns < 120; columns++ {
		var told []string
		for _, line := range strings.Split(strings.ReplaceAll(screen(s, at, 500, columns, true), "\x1b[K", ""), "\n") {
			if text, colour := strings.CutPrefix(line, "\x1b[31m"); colour {
				text = strings.TrimSuffix(text, "\x1b[m")
				if told = append(told, text); len([]rune(text)) > columns {
					t.Errorf("%d columns: %q", columns, text)
				}
			}
		}
		if got := strings.ReplaceAll(strings.Join(told, ""), " ", ""); got != strings.ReplaceAll("went wrong: "+s.Causes[0], " ", "") {
			t.Errorf("%d columns: %q", columns, got)
		}
	}
	if text := screen(s, at, 24, 30, false); !strings.Contains(text, "\x1b[K0     a-node-with-a-long-name…\n") {
		t.Errorf("%q", text)
	}
}
