// Package docs types what the pages have a reader type, and looks whether that comes of it which they say.
package docs

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/test/stage"
)

// patience bounds what is typed. Most of it takes less than a second; the demo's training takes minutes where the machine is busy with much else.
const patience = 25 * time.Minute

func TestMain(m *testing.M) { stage.Main(m, 4) }

// A scene is where lines of a page are typed: machines that have what they need, in a network of their own.
type scene struct {
	page   string   // "": all pages that have no scene of their own for a line
	hosts  []string // their names; none: host0. All type each line, at once
	python string   // as test/python knows it; "": Debian's
	gives  string   // what else is there, as a script for each host
	lines  []line   // in the order in which they are typed
}

// A line is what one command, or several that begin alike, are played by. A script may call the command by the name "typed".
type line struct {
	text  string   // how it begins on the page
	where []string // what is meant → what it is here, in pairs
	how   string   // a script; "": typed
	code  int      // the exit code
	says  string   // an expression for what is said, besides what the page shows
	shows string   // how a block of the page begins that is said as well
}

// usual is what pages leave out.
var usual = []string{" … train.py", " --nproc-per-node 2 train.py", " …", " train.py"}

// prelude is what every script here begins with. A job is there, and trains, when job returns, and its end can be read where its begin was; agent
// is its agent's process. A script that fails leaves nothing on its machine, which has processes of its own: what it left would keep its output open.
const prelude = `
trap '[ $? = "$CODE" ] || kill -9 -1 2>/dev/null || :' EXIT
cd "$SCRATCH"
agent() { muster status --json | sed -n 's/^  "pid": \([0-9]*\),/\1/p'; }
job() {
	mkfifo -m 600 began
	{ code=0; muster run "$@" train.py stay || code=$?; echo "exit $code"; echo >began; } >job.log 2>&1 &
	read -r <began
	! grep -q '^exit' job.log || { cat job.log; exit 99; }
}
`

// Everything that a page has one type belongs to a scene, or is held against something else that says whether it is right; so does what it shows.
func TestKnown(t *testing.T) {
	commands, blocks := read(t)
	for _, c := range commands {
		if _, _, ok := find(c); ok {
			continue
		}
		e, ok := other(c)
		if !ok {
			t.Errorf("%s:%d: nothing plays %q: add it to a scene of that page in test/docs/scenes_test.go, or, if it cannot be typed in a test, to elsewhere_test.go with the reason", c.page, c.at, c.text)
		} else if e.check != nil {
			if why := e.check(c); why != "" {
				t.Errorf("%s:%d: %s: %s", c.page, c.at, c.text, why)
			}
		}
	}
	for _, b := range blocks {
		if b.within || slices.ContainsFunc(scenes, func(s scene) bool { return slices.ContainsFunc(s.lines, b.of(s.page)) }) {
			continue
		}
		if why := aside(b); why != "" {
			t.Errorf("%s:%d: %q: %s", b.page, b.at, b.lines[0], why)
		}
	}
}

// of is whether a line of a page's scene says what the block shows.
func (b shown) of(page string) func(line) bool {
	return func(l line) bool {
		return b.page == page && l.shows != "" && strings.HasPrefix(strings.TrimSpace(b.lines[0]), l.shows)
	}
}

// What is typed does what the page says, and says what it shows.
func TestTyped(t *testing.T) {
	commands, blocks := read(t)
	plays := make([][][]typed, len(scenes))
	for i := range scenes {
		plays[i] = make([][]typed, len(scenes[i].lines))
	}
	for _, c := range commands {
		if i, j, ok := find(c); ok && !slices.ContainsFunc(plays[i][j], func(o typed) bool { return o.text == c.text }) {
			plays[i][j] = append(plays[i][j], c)
		}
	}
	for i, s := range scenes {
		t.Run(fmt.Sprintf("%s-%d", cmp.Or(strings.ReplaceAll(strings.TrimSuffix(s.page, ".md"), "/", "."), "all"), i), func(t *testing.T) {
			t.Parallel()
			s.play(t, plays[i], blocks)
		})
	}
}

// find is the scene and the line for a command: the one that has most of it, of its own page's before all others.
func find(c typed) (scene, line int, found bool) {
	best := -1
	for i, s := range scenes {
		for j, l := range s.lines {
			if n := 2 * len(l.text); (s.page == c.page || s.page == "") && begins(c.text, l.text) {
				if s.page == c.page {
					n++
				}
				if n > best {
					scene, line, found, best = i, j, true, n
				}
			}
		}
	}
	if _, instead := other(c); found && instead && scenes[scene].lines[line].text == named {
		return 0, 0, false
	}
	return scene, line, found
}

// begins reports whether a command begins with these words. Those that only name a command are not the beginning of any other.
func begins(command, words string) bool {
	if words == named {
		return names.MatchString(command)
	}
	rest, here := strings.CutPrefix(command, words)
	return here && (rest == "" || !names.MatchString(words) && (rest[0] == ' ' || !letters.MatchString(words)))
}

// letters is text that ends within a word.
var letters = regexp.MustCompile(`\w$`)

// play types the lines of a scene.
func (s scene) play(t *testing.T, plays [][]typed, blocks []shown) {
	st := stage.Open(t, 1)
	hosts := s.hosts
	if len(hosts) == 0 {
		hosts = []string{"host0"}
	}
	var machines []*stage.Machine
	for i, name := range hosts {
		machines = append(machines, st.Add(name, fmt.Sprintf("m%d", i)))
	}
	env := s.furnish(t, machines)
	if s.gives != "" {
		if _, ok := on(t, machines, env, s.gives, 0); !ok {
			t.Fatal("what the scene has before")
		}
	}
	for j, l := range s.lines {
		if l.text == ours {
			l.play(t, typed{page: s.page, text: ":"}, machines, env, blocks)
		} else if len(plays[j]) == 0 {
			t.Errorf("no page has %q (any more): take it out of the scene, or make it what the page has", l.text)
		}
		for _, c := range plays[j] {
			l.play(t, c, machines, env, blocks)
		}
	}
}

// furnish gives machines what every scene has: the programs, and a small training in the directory where lines are typed.
func (s scene) furnish(t *testing.T, machines []*stage.Machine) (env []string) {
	dir := filepath.Join(filepath.Dir(machines[0].Dir), "bin")
	script, err := os.ReadFile("testdata/train.py")
	if err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	for name, path := range map[string]string{"muster": stage.Build(t), "kubectl": stage.File(t, "testdata/kubectl")} {
		if err == nil {
			err = os.Symlink(path, filepath.Join(dir, name))
		}
	}
	for _, m := range machines {
		if err == nil {
			err = os.WriteFile(filepath.Join(m.Dir, "train.py"), script, 0o644)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	python := filepath.Dir(stage.Python(t, cmp.Or(s.python, "debian")))
	return []string{"PATH=" + dir + ":" + python + ":" + os.Getenv("PATH"), "TOP=" + stage.File(t, top), "BIN=" + stage.Build(t)}
}

// play types a line, on all machines at once.
func (l line) play(t *testing.T, c typed, machines []*stage.Machine, env []string, blocks []shown) {
	text := strings.NewReplacer(append(slices.Clone(l.where), usual...)...).Replace(c.text)
	if l.text == named {
		text += " --help"
	}
	how := l.how
	if how == "" {
		how = "typed"
	}
	said, ok := on(t, machines, env, fmt.Sprintf("typed() {\n%s \"$@\"\n}\n%s", text, how), l.code)
	where := fmt.Sprintf("%s:%d: %s", c.page, c.at, text)
	if !ok {
		t.Fatalf("%s\nis not what it was", where)
	}
	if !regexp.MustCompile("(?m)" + l.says).MatchString(said) {
		t.Errorf("%s\nsays nothing like %q:\n%s", where, l.says, said)
	}
	want := c.shown
	if l.shows != "" {
		i := slices.IndexFunc(blocks, func(b shown) bool { return b.of(c.page)(l) })
		if i < 0 {
			t.Fatalf("%s shows no block that begins with %q", c.page, l.shows)
		}
		want = append(slices.Clone(want), blocks[i].lines...)
	}
	lines := strings.Split(said, "\n")
	for _, w := range want {
		if !slices.ContainsFunc(lines, func(l string) bool { return like(w, l) }) {
			t.Errorf("%s\nsays nothing like what the page shows: %q, but\n%s", where, w, said)
		}
	}
}

// on runs a script on all machines at once, and returns what they said. When it fails on one, the others need not go on.
func on(t *testing.T, machines []*stage.Machine, env []string, script string, code int) (said string, ok bool) {
	t.Helper()
	var programs []*stage.Program
	ended := make(chan *stage.Program, len(machines))
	for i, m := range machines {
		p := m.Run(append(slices.Clone(env), fmt.Sprint("NODE=", i), fmt.Sprint("CODE=", code)), "bash", "-euc", prelude+script)
		programs = append(programs, p)
		go func() { p.Wait(); ended <- p }()
	}
	wrong := ""
	late := time.After(patience)
	for left := len(programs); left > 0; {
		select {
		case p := <-ended:
			if left--; p.Code() == code || wrong != "" {
				continue
			}
			wrong = fmt.Sprintf("exit code %d, not %d, on %s:\n%s\n%s", p.Code(), code, p.On.Name, script, p.Said())
		case <-late:
			wrong = fmt.Sprintf("has not ended after %v:\n%s", patience, script)
		}
		for _, m := range machines {
			m.Die()
		}
	}
	if wrong != "" {
		t.Error(wrong)
	}
	for _, p := range programs {
		said += p.Said()
	}
	return said, wrong == ""
}
