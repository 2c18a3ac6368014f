package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/muster-run/muster/test/golden"
)

// A conformance is docs/pid1.md: one row for each case, which names the tests that try it. What tini and dumb-init come to beside muster
// is in the row, too, and is compared with what they do.
type conformance struct {
	path  string
	mu    sync.Mutex
	lines []string
}

// A row is one case. Its last four columns are what comes of it with muster run, muster init, tini and dumb-init, if they are there.
type row struct {
	of       *conformance
	line     int
	cells    []string
	measured []string
}

func readTable(t *testing.T) *conformance {
	t.Helper()
	path := filepath.Join("..", "..", "docs", "pid1.md")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return &conformance{path: path, lines: strings.Split(string(b), "\n")}
}

// rows returns every case.
func (c *conformance) rows() (all []row) {
	for i, line := range c.lines {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.Contains(line, "`Test") {
			continue
		}
		cells = cells[1 : len(cells)-1]
		for n := range cells {
			cells[n] = strings.TrimSpace(cells[n])
		}
		r := row{of: c, line: i, cells: cells}
		if len(cells) == 7 {
			r.measured = cells[3:]
		}
		all = append(all, r)
	}
	return all
}

// row returns the case that test tries.
func (c *conformance) row(t *testing.T, test string) row {
	t.Helper()
	all := c.rows()
	i := slices.IndexFunc(all, func(r row) bool { return slices.Contains(r.tests(), test) && r.measured != nil })
	if i < 0 {
		t.Fatalf("%s has no row for %s", c.path, test)
	}
	return all[i]
}

// tests are the names in the third column.
func (r row) tests() []string {
	return strings.Fields(strings.ReplaceAll(strings.ReplaceAll(r.cells[2], ",", " "), "`", ""))
}

// tags are those that fit what the row says.
func (r row) tags() []string {
	switch {
	case r.measured == nil:
		return []string{"run", "init", "both", "impossible in Go"}
	case r.measured[0] == lacks:
		return []string{"init"}
	case r.measured[1] == lacks:
		return []string{"run"}
	}
	return []string{"both"}
}

// check compares what came with what the row says, or writes it there: for the originals, and for muster under its own name.
func (r row) check(t *testing.T, i initUnderTest, want, got string) {
	t.Helper()
	if golden.Update() && !strings.HasPrefix(i.name, "muster as") {
		r.cells[3+i.column] = got
		r.of.mu.Lock()
		defer r.of.mu.Unlock()
		r.of.lines[r.line] = "| " + strings.Join(r.cells, " | ") + " |"
		return
	}
	if got != want {
		t.Errorf("%s comes to %q; %s says %q", i.name, got, r.of.path, want)
	}
}

func (c *conformance) write(t *testing.T) {
	if golden.Update() {
		if err := os.WriteFile(c.path, []byte(strings.Join(c.lines, "\n")), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// Each case has a tag and tests that exist, and each scene has its case.
func TestCases(t *testing.T) {
	known := testNames(t)
	for _, s := range scenes() {
		known["TestInits/"+s.name] = false
	}
	for _, s := range runScenes() {
		known["TestRuns/"+s.name] = false
	}
	for _, r := range readTable(t).rows() {
		if !slices.Contains(r.tags(), r.cells[1]) {
			t.Errorf("%s: the tag is %q, not one of %q", r.cells[0], r.cells[1], r.tags())
		}
		for _, test := range r.tests() {
			if _, ok := known[test]; !ok {
				t.Errorf("%s: there is no test %s", r.cells[0], test)
			}
			known[test] = true
		}
	}
	for test, listed := range known {
		if !listed && strings.Contains(test, "/") {
			t.Errorf("%s is no row of docs/pid1.md", test)
		}
	}
}

// testNames returns the tests of the whole house.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		for _, found := range testFunc.FindAllSubmatch(code, -1) {
			names[string(found[1])] = false
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

var testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
