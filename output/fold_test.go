package output

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// said plays "rank: line" rows to a folder, "..." is a pause of the window, and returns what is shown.
func said(t *testing.T, rows string) string {
	var out lockedBuffer
	synctest.Test(t, func(t *testing.T) {
		to := newTestSink(&out)
		f := newFolder(to.newQueue(noteOf(plain{})), false)
		voices := map[int]*voice{}
		for row := range strings.Lines(rows) {
			var rank int
			if _, err := fmt.Sscanf(row, "%d:", &rank); err != nil {
				time.Sleep(foldWindow + time.Millisecond)
				synctest.Wait()
				continue
			}
			if voices[rank] == nil {
				voices[rank] = f.voice(rank)
			}
			_, text, _ := strings.Cut(row, ": ")
			voices[rank].put([]byte(text))
		}
		f.close()
		if err := to.close(t.Context()); err != nil {
			t.Error(err)
		}
		if f.hidden != 0 || f.size != 0 || len(f.said) != 0 || len(f.byText) != 0 {
			t.Errorf("left: %+v", f)
		}
	})
	return out.String()
}

func TestFold(t *testing.T) {
	for _, c := range []struct{ name, rows, want string }{
		{"one rank", "0: a\n0: a\n0: b\n", "[rank 0] a\n[rank 0] a\n[rank 0] b\n"},
		{"all the same", "0: a\n2: a\n1: a\n3: a\n7: a\n", "[rank 0] a\n[ranks 1-3,7] a\n"},
		{"twice each", "0: a\n0: a\n1: a\n1: a\n2: a\n2: a\n", "[rank 0] a\n[rank 0] a\n[ranks 1-2] a\n[ranks 1-2] a\n"},
		{"own lines between", "0: a\n0: zero\n0: b\n1: a\n1: one\n1: b\n2: a\n2: two\n2: b\n",
			"[rank 0] a\n[rank 0] zero\n[rank 0] b\n[ranks 1-2] a\n[rank 1] one\n[rank 2] two\n[ranks 1-2] b\n"},
		{"another order", "0: a\n0: b\n1: b\n1: a\n", "[rank 0] a\n[rank 0] b\n[rank 1] b\n[rank 1] a\n"},
		{"too late", "0: a\n...\n1: a\n2: a\n", "[rank 0] a\n[rank 1] a\n[rank 2] a\n"},
		{"not held for ever", "0: a\n1: a\n...\n1: b\n2: b\n0: b\n", "[rank 0] a\n[rank 1] a\n[rank 1] b\n[ranks 0,2] b\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := said(t, c.rows); got != c.want {
				t.Errorf("got\n%swant\n%s", got, c.want)
			}
		})
	}
}

// Whatever ranks say, each line is shown once for each, and those of a rank in their order.
func TestFoldKeepsAll(t *testing.T) {
	var rows strings.Builder
	const ranks, lines = 5, 3000
	for i := range lines {
		for r := range ranks {
			text := fmt.Sprintf("line %d", i)
			if (i*r)%7 == 3 {
				text = fmt.Sprintf("line %d of %d", i, r)
			}
			fmt.Fprintf(&rows, "%d: %s\n", (r+i)%ranks, text)
		}
	}
	next := [ranks]int{}
	for line := range strings.Lines(said(t, rows.String())) {
		who, text, _ := strings.Cut(strings.TrimPrefix(line, "["), "] line ")
		var i int
		fmt.Sscanf(text, "%d", &i)
		for _, r := range ranksOf(t, who) {
			if i != next[r] {
				t.Fatalf("%q: rank %d should say line %d", line, r, next[r])
			}
			next[r]++
		}
	}
	if next != [ranks]int{lines, lines, lines, lines, lines} {
		t.Errorf("%v", next)
	}
}

func ranksOf(t *testing.T, who string) (all []int) {
	t.Helper()
	_, list, _ := strings.Cut(who, " ")
	var set Ranks
	if err := set.Set(list); err != nil {
		t.Fatal(err)
	}
	for _, s := range set {
		for r := s.first; r <= s.last; r++ {
			all = append(all, r)
		}
	}
	return all
}

// Nobody else speaks: what waits is shown when the window is over.
func TestFoldTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lockedBuffer
		to := newTestSink(&out)
		f := newFolder(to.newQueue(noteOf(plain{})), false)
		a, b := f.voice(0), f.voice(1)
		a.put([]byte("x\n"))
		synctest.Wait()
		if out.String() != "[rank 0] x\n" {
			t.Errorf("at once: %q", out.String())
		}
		time.Sleep(foldWindow / 2)
		b.put([]byte("x\ny\n"))
		time.Sleep(foldWindow / 2)
		synctest.Wait()
		if out.String() != "[rank 0] x\n[rank 1] x\n" {
			t.Errorf("after the window: %q", out.String())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if out.String() != "[rank 0] x\n[rank 1] x\n[rank 1] y\n" {
			t.Errorf("later: %q", out.String())
		}
		f.close()
		_ = to.close(t.Context())
	})
}
