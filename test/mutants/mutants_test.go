package mutants

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	all   = flag.Bool("all", false, "play every mistake, which takes some minutes")
	only  = flag.String("only", "", "the `NUMBERS` of the only mistakes to play, with commas; none: all")
	seeds = flag.Int("seeds", 24, "simulated jobs for each mistake, at most")
	plays = flag.Int("schedules", 5000, "random losses, and as many random meetings, for each mistake, at most")
	page  = flag.String("page", "", "the `FILE` whose table of mistakes is written anew")
)

// patience is how long a suite may take that passes within seconds: virtual time may have no end.
const patience = 20 * time.Minute

// All mistakes go with the code, and the table of who catches them has each.
func TestList(t *testing.T) {
	mistakes := list(t)
	args := []string{"build", "-overlay", overlay(t, mistakes), "./launcher", "./rendezvous", "./fleet"}
	if t.Failed() {
		return
	}
	build := exec.Command("go", args...)
	build.Dir = "../.."
	if b, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, b)
	}
	b, err := os.ReadFile("../../docs/simulation.md")
	if err != nil {
		t.Fatal(err)
	}
	table := heading.Find(b)
	if !bytes.Contains(table, fmt.Appendf(nil, " of %d ", len(mistakes))) {
		t.Errorf("docs/simulation.md has no table of %d mistakes: make mutants", len(mistakes))
	}
	for _, m := range mistakes {
		if !bytes.Contains(table, []byte(m.row())) {
			t.Fatalf("docs/simulation.md does not say who catches %q: make mutants", m.what)
		}
	}
}

// A suite is tests of random worlds.
type suite struct {
	name, pkg, test string
	seed            *regexp.Regexp // the last that it names has failed
	play            func() []string
	binary          string
}

func suites() []*suite {
	return []*suite{
		{name: "simulation", pkg: "launcher", test: "TestSimulation", seed: regexp.MustCompile(`=== RUN +TestSimulation/seed_(\d+)`),
			play: func() []string { return []string{"-seeds", fmt.Sprint(*seeds)} }},
		{name: "losses", pkg: "launcher", test: "TestRandomLosses", seed: regexp.MustCompile(`seed (\d+) \(-schedule`),
			play: func() []string { return []string{"-schedules", fmt.Sprint(*plays)} }},
		{name: "meetings", pkg: "rendezvous", test: "TestRandomMeetings", seed: regexp.MustCompile(`seed (\d+), `),
			play: func() []string { return []string{"-meetings", fmt.Sprint(*plays)} }},
	}
}

// Of the mistakes nearly all are caught.
func TestMutants(t *testing.T) {
	if !*all {
		t.Skip("make mutants plays them")
	}
	mistakes, all := list(t), suites()
	with := overlay(t, mistakes)
	dir := t.TempDir()
	build := exec.Command("go", "test", "-c", "-vet=off", "-overlay", with, "-o", dir+"/", "./launcher", "./rendezvous")
	build.Dir = "../.."
	if b, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	for _, s := range all {
		s.binary = filepath.Join(dir, s.pkg+".test")
		if by, why := s.catches(t, 0); by != "" {
			t.Fatalf("without a mistake, %s: %s", by, why)
		}
	}
	var rows []string
	caught := 0
	for _, m := range mistakes {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), strconv.Itoa(m.number)) {
			continue
		}
		var by, why string
		for _, s := range all {
			if by, why = s.catches(t, m.number); by != "" {
				caught++
				break
			}
		}
		t.Logf("%d. %s: %s: %s %s", m.number, m.file, m.what, cmp.Or(by, "NOT CAUGHT"), why)
		rows = append(rows, m.row()+cmp.Or(by, "–")+" |\n")
	}
	table := fmt.Sprintf("| %d of %d mistakes are caught | in | by |\n|---|---|---|\n%s", caught, len(rows), strings.Join(rows, ""))
	if *page == "" || *only != "" {
		t.Log("\n" + table)
		return
	}
	write(t, table)
}

// row is the line of a mistake in the table, but for who caught it.
func (m *mistake) row() string { return fmt.Sprintf("| %s | %s | ", m.what, m.file) }

// heading is the table, whatever it says.
var heading = regexp.MustCompile(`(?m)^\| \d+ of \d+ mistakes are caught \|.*\n(\|.*\n)*`)

func write(t *testing.T, table string) {
	b, err := os.ReadFile(*page)
	if err != nil {
		t.Fatal(err)
	}
	if !heading.Match(b) {
		t.Fatalf("%s has no table of mistakes", *page)
	}
	if err := os.WriteFile(*page, heading.ReplaceAllLiteral(b, []byte(table)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// catches plays a suite with a mistake; 0: with none. It returns which world fails, and of what; "": none does.
func (s *suite) catches(t *testing.T, mistake int) (by, why string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, s.binary, append(s.play(), "-test.run", "^"+s.test+"$", "-test.v", "-test.timeout", "1h")...)
	c.Dir, c.Env = "../../"+s.pkg, append(os.Environ(), fmt.Sprint("MUTANT=", mistake), "GOGC=400")
	b, err := c.CombinedOutput()
	if err == nil {
		return "", ""
	}
	by = s.name
	if seed := s.seed.FindAllSubmatch(b, -1); seed != nil {
		by += " " + string(seed[len(seed)-1][1])
	}
	if ctx.Err() != nil {
		return by, "it does not end"
	}
	return by, string(bytes.TrimSpace(complaint.Find(b)))
}

// complaint is what a test says first that fails, but for which seed that is.
var complaint = regexp.MustCompile(`(?m)^ +\w+_test\.go:\d+: +([^s]|s[^e]).*$|^(panic|fatal error): .*$`)
