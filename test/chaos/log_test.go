package chaos

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/test/stage"
)

var (
	logFile = flag.String("log", "", "`FILE` that keeps what was played: another run goes on from there")
	total   = flag.Duration("total", time.Hour, "`TIME` of laps in all, for -log")
	page    = flag.String("page", "", "`FILE` whose table is made from the log")
)

// An entry is a line of the log: a fault, or the lap in which those before it were.
type entry struct {
	At      string  `json:"at"`
	Seed    uint64  `json:"seed"`
	Fault   string  `json:"fault,omitempty"`
	On      string  `json:"on,omitempty"`
	Noticed float64 `json:"noticed,omitempty"` // seconds until somebody said so
	Again   float64 `json:"again,omitempty"`   // seconds until every rank had made more steps
	Said    string  `json:"said,omitempty"`

	Lap    float64 `json:"lap,omitempty"` // seconds of the job
	Faults int     `json:"faults,omitempty"`
	Rounds int     `json:"rounds,omitempty"`
	Steps  int     `json:"steps,omitempty"`
	Wrong  bool    `json:"wrong,omitempty"` // it does not count
}

// TestLaps plays lap after lap, until all in the log are an hour. `make chaos` may be interrupted, and goes on where it was.
func TestLaps(t *testing.T) {
	if *logFile == "" {
		return
	}
	for !t.Failed() {
		so := readLog(t, *logFile)
		if *page != "" {
			writeTable(t, *page, so)
		}
		fmt.Printf("chaos: %s\n", sum(so))
		if played(so) >= *total {
			return
		}
		s := someSeed()
		if *seed != 0 {
			s = *seed + uint64(len(laps(so)))
		}
		var l *lap
		t.Run(fmt.Sprint("seed ", s), func(t *testing.T) {
			l = openLap(t, stage.Build(t), stage.Python(t, *torch), s)
			l.play(*most, 10*time.Minute)
		})
		appendLog(t, *logFile, l.entries(s))
	}
}

// entries are the lap's lines of the log.
func (l *lap) entries(seed uint64) (lines []entry) {
	for _, a := range l.all {
		lines = append(lines, entry{At: stamp(a.wall), Seed: seed, Fault: a.Fault, On: a.On, Noticed: seconds(a.Noticed), Again: seconds(a.Again), Said: a.Said})
	}
	s := l.book.standing()
	return append(lines, entry{At: stamp(l.began), Seed: seed, Lap: seconds(l.long), Faults: len(l.all), Rounds: len(l.rounds) + 1, Steps: s.step, Wrong: l.t.Failed()})
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

func readLog(t *testing.T, file string) (all []entry) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%s: %v: %s", file, err, lines.Text())
		}
		all = append(all, e)
	}
	return all
}

// appendLog adds a lap at once, so that one which was interrupted is none, and several may be played side by side.
func appendLog(t *testing.T, file string, all []entry) {
	t.Helper()
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	lines.SetEscapeHTML(false)
	for _, e := range all {
		if err := lines.Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = f.Write(text.Bytes())
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// laps are those that count.
func laps(all []entry) []entry {
	return slices.DeleteFunc(slices.Clone(all), func(e entry) bool { return e.Fault != "" || e.Wrong })
}

func played(all []entry) time.Duration {
	var s float64
	for _, e := range laps(all) {
		s += e.Lap
	}
	return time.Duration(s * float64(time.Second))
}

// sum is the log in a sentence.
func sum(all []entry) string {
	var faults, rounds, steps int
	for _, e := range laps(all) {
		faults, rounds, steps = faults+e.Faults, rounds+e.Rounds, steps+e.Steps
	}
	return fmt.Sprintf("%.1f minutes in %d laps: %d faults, %d rounds, %d steps", played(all).Minutes(), len(laps(all)), faults, rounds, steps)
}

// summary is the log as a table. What was in laps that do not count is not in it.
func summary(all []entry) string {
	counts := map[uint64]bool{}
	for _, e := range laps(all) {
		counts[e.Seed] = true
	}
	noticed, again := map[string][]float64{}, map[string][]float64{}
	for _, e := range all {
		if e.Fault != "" && counts[e.Seed] {
			noticed[e.Fault], again[e.Fault] = append(noticed[e.Fault], e.Noticed), append(again[e.Fault], e.Again)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s.\n\n| fault | times | told after, s: median, most | training again after, s: median, most | what follows |\n|---|---|---|---|---|\n", sum(all))
	for _, f := range faults {
		if n := len(again[f.name]); n > 0 {
			fmt.Fprintf(&b, "| %s | %d | %s | %s | %s |\n", f.name, n, spread(noticed[f.name]), spread(again[f.name]), f.then)
		}
	}
	return b.String() + "\n" // a table ends with an empty line
}

func spread(all []float64) string {
	all = slices.Sorted(slices.Values(all))
	most := all[len(all)-1]
	if most == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f, %.1f", all[len(all)/2], most)
}

var table = regexp.MustCompile(`(?s)<!-- log -->\n.*<!-- end -->`)

func writeTable(t *testing.T, file string, all []entry) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, table.ReplaceAllLiteral(text, []byte("<!-- log -->\n"+summary(all)+"<!-- end -->")), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The page's table is that of the log beside it.
func TestPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/chaos.md")
	if err != nil {
		t.Fatal(err)
	}
	if all := readLog(t, "../../docs/chaos.log"); !strings.Contains(string(text), "<!-- log -->\n"+summary(all)+"<!-- end -->") {
		t.Errorf("docs/chaos.md does not have the table of docs/chaos.log:\n%s", summary(all))
	}
}
