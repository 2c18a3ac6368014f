package output

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/proc"
)

// Each line is one object, and its text is what encoding/json would read.
func TestRecords(t *testing.T) {
	r := recordsOf(proc.Lines{Rank: 5, LocalRank: 1}, `ho"st`, "stderr")
	before := time.Now().Add(-time.Second)
	for text, want := range map[string]string{
		"":                       "",
		"plain":                  "plain",
		`"quotes" \ and < > &`:   `"quotes" \ and < > &`,
		"\t\r\b\x00\x1b[31mred":  "\t\r\b\x00\x1b[31mred",
		"größer ✓ 😀 \u2028":      "größer ✓ 😀 \u2028",
		"a\xff\xfe\xc3(\xe2\x82": "a\uFFFD\uFFFD\uFFFD(\uFFFD\uFFFD",
		"\uFFFD":                 "\uFFFD",
	} {
		for _, out := range []string{string(r.lines(nil, []byte(text+"\nx\n"))), string(r.line(nil, []byte(text), cut)) + "\n"} {
			first, _, _ := strings.Cut(out, "\n")
			var got struct {
				Time               time.Time
				Rank               int
				LocalRank          int `json:"local_rank"`
				Node, Stream, Line string
				Cut, Open          bool
			}
			if err := json.Unmarshal([]byte(first), &got); err != nil || !utf8.ValidString(first) {
				t.Errorf("%q: %v in %s", text, err, first)
			}
			if got.Line != want || got.Rank != 5 || got.LocalRank != 1 || got.Node != `ho"st` || got.Stream != "stderr" || got.Time.Before(before) {
				t.Errorf("%q: %s", text, first)
			}
		}
	}
	for how, want := range map[ending]string{whole: `"x"}`, cut: `"x","cut":true}`, open: `"x","open":true}`} {
		if got := string(r.line(nil, []byte("x"), how)); !strings.HasSuffix(got, want+"\n") {
			t.Errorf("%s", got)
		}
	}
}

func TestLabel(t *testing.T) {
	if got := string(label("rank 1", 1, false)); got != "[rank 1] " {
		t.Errorf("%q", got)
	}
	if got := string(label("ranks 1-3", 1, true)); got != "\x1b[33m[ranks 1-3]\x1b[0m " {
		t.Errorf("%q", got)
	}
}

func TestStreams(t *testing.T) {
	for _, c := range []struct {
		text string
		want string // streams of local ranks 0, 1, 12
	}{
		{"0", "000"}, {"1", "111"}, {"2", "222"}, {"3", "333"},
		{"0:3", "300"}, {"0:1,1:2", "120"}, {"0:0,12:3", "003"},
		{"", "?"}, {"4", "?"}, {"-1", "?"}, {"33", "?"}, {"+1", "?"}, {"0:", "?"}, {":1", "?"}, {"0:4", "?"}, {"0:1,", "?"}, {"x:1", "?"}, {"-1:1", "?"}, {"0:1;1:2", "?"},
	} {
		var s Streams
		got := ""
		if err := s.Set(c.text); err != nil {
			got = "?"
		} else {
			for _, local := range []int{0, 1, 12} {
				n := 0
				for _, stream := range []int{stdout, stderr} {
					if s.has(local, stream) {
						n |= stream
					}
				}
				got += string(rune('0' + n))
			}
		}
		if got != c.want {
			t.Errorf("%q: %s, want %s", c.text, got, c.want)
		}
	}
}

func TestRanks(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"0", "y---"}, {"0,7", "y--y"}, {"1-7", "-yyy"}, {"1-1,2", "-yy-"},
		{"", "?"}, {"a", "?"}, {"2-1", "?"}, {"1-", "?"}, {"-1", "?"}, {"0,", "?"}, {"99999999999", "?"},
	} {
		var r Ranks
		got := ""
		if err := r.Set(c.text); err != nil {
			got = "?"
		} else {
			for _, rank := range []int{0, 1, 2, 7} {
				got += map[bool]string{true: "y", false: "-"}[r.Has(rank)]
			}
		}
		if got != c.want {
			t.Errorf("%q: %s, want %s", c.text, got, c.want)
		}
	}
	if !(Ranks(nil)).Has(3) {
		t.Error("none named are all")
	}
}

// Where a stream goes, by the words of torchrun: a redirected stream leaves the console, a tee'd one does not.
func TestWhere(t *testing.T) {
	for _, c := range []struct {
		redirects, tee, ranks string
		want                  string // of stdout, stderr of local rank 1: f file, c console
	}{
		{"0", "0", "", "c c"}, {"1", "0", "", "f c"}, {"3", "0", "", "f f"}, {"0", "3", "", "fc fc"},
		{"3", "1", "", "fc f"}, {"1:2", "0", "", "c f"}, {"0:3", "0", "", "c c"}, {"0", "1:1", "", "fc c"},
		{"0", "3", "9", "fc fc"}, {"0", "3", "1", "f f"}, {"0", "0", "1", " "},
	} {
		o := Routes{Dir: "/logs"}
		err := errors.Join(o.Redirects.Set(c.redirects), o.Tee.Set(c.tee))
		if c.ranks != "" {
			err = errors.Join(err, o.Ranks.Set(c.ranks))
		}
		if err != nil {
			t.Fatal(err)
		}
		task := job.Task{Rank: 9, LocalRank: 1}
		var got []string
		for _, stream := range []int{stdout, stderr} {
			where := ""
			if o.filed(task, stream) {
				where += "f"
			}
			if o.shown(task, stream) {
				where += "c"
			}
			got = append(got, where)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
