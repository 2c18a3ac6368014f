package hang

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	another = flag.String("muster", "", "`FILE` to test; else make builds it from what is here")
	floor   = flag.Duration("floor", 6*time.Second, "`TIME` for --hang-floor")
	busy    = flag.Duration("busy", 15*time.Second, "`TIME` for --hang-busy-after")
	aloud   = flag.Bool("aloud", false, "print what agents and workers say as they say it")
	all     = flag.Bool("all", false, "play every scene with each PyTorch, which takes an hour")
)

// patience is how long a scene waits for anything that is to happen; the machine may be busy with much else.
const patience = 4 * time.Minute

// together is how many scenes are played at once: they wait most of the time.
const together = "4"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", together); err != nil {
		panic(err) // of package testing
	}
	os.Exit(m.Run())
}

// A scene is a training, and what is to be said of it.
type scene struct {
	name  string   // as train.py knows it
	class string   // of the hang; "": it is healthy
	old   string   // the class where PyTorch has no recorder, if another
	rank  int      // to blame, or -1
	says  string   // besides, a regular expression
	args  string   // for train.py
	blind bool     // workers have no heartbeats
	mild  bool     // --on-hang dump; and the rank, which is stopped, goes on later
	flags string   // for muster, besides
	keeps bool     // evidence, of which all is looked for
	want  [2]int   // exit codes
	quick []string // by which PyTorch it is played without -all
}

const (
	debian = "1.13"
	newest = "newest"
	fsdp   = "newest, FSDP"
)

// says is how the classes sound.
var says = map[string]string{
	"A":  `has not entered`,
	"B":  `has been in .* and does not go on`,
	"AB": `(has not entered|has been in .* and does not go on)`, // what it said last may be of before it was stopped
	"C":  `the network between them`,
	"D":  `waited for each other in different collectives`,
	"E":  `no rank has been in a collective`,
}

var scenes = []scene{
	{name: "sleep", class: "A", rank: 2, keeps: true, quick: []string{debian}},
	{name: "spin", class: "A", rank: 2, says: "processor"},
	{name: "hold", class: "A", rank: 2, says: "processor", quick: []string{newest}},
	{name: "stop", class: "AB", rank: 2, says: "state T"},
	{name: "stop", class: "AB", rank: 2, mild: true},
	{name: "stop", class: "AB", rank: 2, flags: "--on-hang exclude-node --nnodes 1:2", quick: []string{debian}},
	{name: "stop_inside", class: "B", rank: 2, says: "state T", quick: []string{debian}},
	{name: "fifo", class: "A", rank: 2, says: "/fifo"},
	{name: "fuse", class: "A", rank: 2, says: "/data", quick: []string{debian}},
	{name: "deadlock", class: "A", rank: 2},
	{name: "deadlock", class: "A", rank: 0, quick: []string{newest}}, // on the leader's own node
	{name: "skip_last", class: "A", rank: 2},
	{name: "order", class: "D", old: "C", rank: -1, quick: []string{newest}},
	{name: "mismatch", class: "D", old: "C", rank: -1, says: "broadcast", quick: []string{fsdp}},
	{name: "skip", class: "D", old: "C", rank: -1, says: "barrier"},
	{name: "partition", class: "C", rank: -1, says: "10.79.1", quick: []string{debian}},
	{name: "stall", class: "E", rank: -1, quick: []string{debian}},

	{name: "kill", rank: 2, flags: "--max-restarts 0", want: [2]int{137, 137}, quick: []string{debian}}, // no hang: the others fail of it
	{name: "well", rank: -1, args: "--steps 60"},
	{name: "uneven", rank: -1, args: "--steps 150"},
	{name: "slow", rank: 1, args: "--at 10 --steps 40"},
	{name: "checkpoint", rank: 0, args: "--at 15 --long 4 --steps 80", quick: []string{debian}},
	{name: "upload", rank: 0, args: "--at 15 --long 8 --steps 80"},
	{name: "evaluation", rank: 0, args: "--at 15 --long 8 --steps 80"},
	{name: "evaluation0", rank: 0, args: "--at 15 --long 8 --steps 80"},
	{name: "evaluation0", rank: 0, args: "--at 15 --long 20 --steps 40", blind: true},
	{name: "compile", rank: 0, args: "--at 0 --long 20 --steps 40"},
	{name: "graph", rank: 0, args: "--at 40 --steps 250", quick: []string{newest}},
}

// TestHangs plays the scenes.
func TestHangs(t *testing.T) {
	muster := build(t)
	var book figures
	t.Run("all", func(t *testing.T) {
		for _, c := range scenes {
			for _, torch := range []string{debian, newest, fsdp} {
				if torch == fsdp && c.name == "uneven" { // joins are DDP's
					continue
				}
				if *all || slices.Contains(c.quick, torch) {
					t.Run(c.title()+", "+torch, func(t *testing.T) {
						t.Parallel()
						c.play(t, muster, torch, &book)
					})
				}
			}
		}
	})
	t.Logf("\n%v", &book)
}

func (c scene) title() string {
	switch {
	case c.blind:
		return c.name + " without heartbeats"
	case c.mild:
		return c.name + " for a while"
	case c.flags != "":
		return c.name + " with " + strings.Fields(c.flags)[0]
	case c.class != "" && c.rank == 0:
		return c.name + " of rank 0"
	}
	return c.name
}

// play plays a scene to its end.
func (c scene) play(t *testing.T, muster, torch string, book *figures) {
	s := openStage(t, muster)
	if torch == debian && c.old != "" {
		c.class, c.says = c.old, ""
	}
	argv := c.argv(t, muster, torch)
	for i := range s.nodes {
		s.run(i, c.env(), argv...)
	}
	if c.class != "" {
		c.hangs(s, book.row(c.title(), torch))
	}
	want := c.want
	if c.mild {
		s.wake(c.rank/2, c.pid(s))
		s.until("a word of the false alarm", func(l line) bool { return strings.Contains(l.text, "it was no hang") })
	}
	if c.class == "D" { // which no restart mends
		want = [2]int{74, 74}
	}
	if codes := s.end(); codes != want {
		t.Errorf("exit codes %v, want %v", codes, want)
	}
	c.after(s)
	for _, l := range s.lines {
		if c.class == "" && l.verdict() {
			t.Errorf("of a healthy training it was said: %s", l.text)
		}
		if strings.Contains(l.text, "is deprecated") {
			t.Errorf("PyTorch says, of what muster sets: %s", l.text)
		}
	}
}

// kept is where each node keeps evidence, below its own directory.
const kept = "kept"

// after is what else must be true in the end.
func (c scene) after(s *stage) {
	s.t.Helper()
	switch {
	case c.keeps:
		s.evidence(0, here(s.t, c.name), "node-0-h0", "node-1-h1")
		s.evidence(1, here(s.t, c.name), "node-1-h1")
	case strings.Contains(c.flags, "exclude-node"):
		said, _ := s.find(line.verdict)
		if _, ok := s.find(func(l line) bool { return l.node == 0 && l.step() && l.at.After(said.at) }); !ok {
			s.t.Errorf("node 0 did not train on without node 1")
		}
		if _, ok := s.find(func(l line) bool { return l.node == 1 && strings.Contains(l.text, "left out") }); !ok {
			s.t.Errorf("node 1 was not left out")
		}
	case c.name == "kill":
		if l, ok := s.find(func(l line) bool {
			return strings.Contains(l.text, "muster: rank 2 ") && strings.Contains(l.text, "SIGKILL")
		}); !ok {
			s.t.Errorf("nobody says who was killed: %s", l.text)
		}
	}
}

// evidence looks for what a node has kept of each of these, and, of the second, for the line where the rank to blame was.
func (s *stage) evidence(on int, culprit string, nodes ...string) {
	s.t.Helper()
	for _, node := range nodes {
		files, err := filepath.Glob(filepath.Join(s.dir, s.nodes[on].name, kept, "job", "*", node, "index.json"))
		s.must(err)
		if len(files) == 0 {
			s.t.Errorf("node %d keeps no evidence of %s", on, node)
			continue
		}
		index, err := os.ReadFile(files[0])
		s.must(err)
		if node == "node-1-h1" && !strings.Contains(string(index), culprit) {
			s.t.Errorf("what node %d keeps of %s does not say that the rank to blame is in %s: %s", on, node, culprit, index)
		}
		info, err := os.Stat(files[0])
		s.must(err)
		early, _ := s.find(func(l line) bool { return l.node == 0 && strings.Contains(l.text, "this may be a hang: ") })
		s.t.Logf("node %d had all of %s %.1f s after the suspicion", on, node, info.ModTime().Sub(early.at).Seconds())
	}
}

func (c scene) env() []string {
	if c.blind {
		return []string{"MUSTER_HOOK=off"}
	}
	return nil
}

// argv is the command line of an agent.
func (c scene) argv(t *testing.T, muster, torch string) []string {
	model, build := "ddp", "newest"
	switch torch {
	case fsdp:
		model = "fsdp"
	case debian:
		build = "debian"
	}
	args := c.args
	if args == "" {
		args = "--at 50 --steps 70"
	}
	flags := "--nnodes 2 --nproc-per-node 2 --rdzv-id job --rdzv-endpoint h0:29400 --max-restarts 1"
	line := append([]string{muster, "run"}, strings.Fields(flags)...)
	line = append(line, "--hang-floor", floor.String(), "--hang-busy-after", busy.String())
	if !c.mild && !strings.Contains(c.flags, "--on-hang") {
		line = append(line, "--on-hang", "restart")
	}
	line = append(line, strings.Fields(c.flags)...)
	line = append(line, "--", python(t, build), "-u", script(t), c.name, "--model", model, "--rank", fmt.Sprint(max(c.rank, 0)))
	return append(line, strings.Fields(args)...)
}

// hangs waits for the hang and for what is said of it.
func (c scene) hangs(s *stage, r *row) {
	s.t.Helper()
	began := s.until("the fault", func(l line) bool { return strings.Contains(l.text, "now "+c.name) })
	if c.name == "partition" {
		s.cut()
	}
	said := s.until("a hang", func(l line) bool {
		return l.node == 0 && l.verdict()
	})
	if c.name == "partition" {
		s.heal()
	}
	for _, words := range c.words(s) {
		if !regexp.MustCompile(words).MatchString(said.text) {
			s.t.Errorf("%s; want class %s, %s", said.text, c.class, words)
		}
	}
	early, ok := s.find(func(l line) bool {
		return l.node == 0 && (strings.Contains(l.text, "this may be a hang: ") || strings.Contains(l.text, "slow: "))
	})
	if !ok {
		s.t.Errorf("nobody was suspected before")
	}
	r.set(early.at.Sub(began.at), said.at.Sub(began.at), said.text)
}

// words are what must be said, as regular expressions.
func (c scene) words(s *stage) []string {
	words := []string{says[c.class], c.says}
	if c.rank >= 0 {
		words[0] = fmt.Sprintf(`rank %d \(h%d, local %d, pid %s\) %s`, c.rank, c.rank/2, c.rank%2, c.pid(s), words[0])
	}
	if strings.Contains("ADE", c.class) { // else nobody in particular is to blame, or cannot tell where it is
		words = append(words, regexp.QuoteMeta(here(s.t, c.name)))
	}
	return words
}

// pid is the process of the rank, as its node numbers it.
func (c scene) pid(s *stage) string {
	l, _ := s.find(func(l line) bool { return strings.Contains(l.text, fmt.Sprintf("[rank %d] pid ", c.rank)) })
	_, pid, _ := strings.Cut(l.text, "] pid ")
	return pid
}

// here is where train.py says that it gets stuck.
func here(t *testing.T, scene string) string {
	b, err := os.ReadFile(script(t))
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range strings.Split(string(b), "\n") {
		if strings.HasSuffix(l, "# here: "+scene) {
			return fmt.Sprintf("train.py:%d %s", i+1, scene)
		}
	}
	t.Fatalf("train.py does not say where %s is", scene)
	return ""
}

// build makes the program that is delivered, if no other was named.
func build(t *testing.T) string {
	t.Helper()
	if *another != "" {
		return *another
	}
	path := filepath.Join(t.TempDir(), "muster")
	if out, err := exec.Command("make", "-C", "../..", "build", "BIN="+path).CombinedOutput(); err != nil {
		t.Fatalf("make build: %v: %s", err, out)
	}
	return path
}

// python is the Python with a PyTorch that test/python knows by this name.
func python(t *testing.T, which string) string {
	t.Helper()
	path, err := exec.Command("../python", which).Output()
	if err != nil {
		t.Fatalf("test/python %s: %v", which, err)
	}
	return strings.TrimSpace(string(path))
}

func script(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("scripts/train.py")
	if err != nil {
		t.Fatal(err)
	}
	return path
}
