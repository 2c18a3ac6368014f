package hang

import (
	"flag"
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

var (
	floor = flag.Duration("floor", 6*time.Second, "`TIME` for --hang-floor")
	busy  = flag.Duration("busy", 15*time.Second, "`TIME` for --hang-busy-after")
	all   = flag.Bool("all", false, "play every scene with each PyTorch, which takes an hour")
)

func TestMain(m *testing.M) { stage.Main(m, 6) }

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
	final int      // and that of a job that may not begin again; without -all it may not, unless this is 0
	quick []string // by which PyTorch it is played without -all
}

const (
	debian = "1.13"
	newest = "newest"
	fsdp   = "newest, FSDP"
	fsdp1  = "2.6, FSDP"        // FullyShardedDataParallel, and no recorder; what is healthy alone
	pipe   = "newest, pipeline" // of sends and receives, and no collective
	batch  = "newest, pipeline in batches"
	pipe1  = "1.13, pipeline"
)

// says is how the classes sound.
var says = map[string]string{
	"A":  `has not entered`,
	"B":  `has been in .* and does not go on`,
	"AB": `(has not entered|has been in .* and does not go on)`, // what it said last may be of before it was stopped
	"C":  `the network between them`,
	"D":  `waited for each other in different collectives`,
	"E":  `no rank has been in a collective`,
	"P":  `has sent and received nothing`, // class A of pipelines
}

var scenes = []scene{
	{name: "sleep", class: "A", rank: 2, keeps: true, quick: []string{debian}},
	{name: "sleep", class: "P", rank: 2, quick: []string{pipe, batch, pipe1}},
	{name: "spin", class: "A", rank: 2, says: "processor"},
	{name: "hold", class: "A", rank: 2, says: "processor", quick: []string{newest}},
	{name: "stop", class: "AB", rank: 2, says: "state T"},
	{name: "stop", class: "AB", rank: 2, mild: true},
	{name: "stop", class: "AB", rank: 2, flags: "--on-hang exclude-node --nnodes 1:2", quick: []string{debian}},
	{name: "stop_inside", class: "AB", rank: 2, says: "state T", final: 138, quick: []string{debian}},
	{name: "fifo", class: "A", rank: 2, says: "/fifo"},
	{name: "fuse", class: "A", rank: 2, says: "/data", quick: []string{debian}},
	{name: "deadlock", class: "A", rank: 2},
	{name: "deadlock", class: "A", rank: 0, final: 75, quick: []string{newest}}, // on the leader's own node
	{name: "skip_last", class: "A", rank: 2},
	{name: "order", class: "D", old: "C", rank: -1, quick: []string{newest}},
	{name: "mismatch", class: "D", old: "C", rank: -1, says: "broadcast", quick: []string{fsdp}},
	{name: "skip", class: "D", old: "C", rank: -1, says: "barrier"},
	{name: "size_differs", class: "D", old: "C", rank: -1, says: `rank 0 in all_reduce of 32 bytes #\d+; ranks 1, 2, 3 through with #`, quick: []string{newest}},
	{name: "partition", class: "C", rank: -1, says: "10.77.1", final: 138, quick: []string{debian}},
	{name: "stall", class: "E", rank: -1, final: 75, quick: []string{debian}},

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
	{name: "ending", rank: 0, args: "--at 10 --long 12 --steps 60", flags: "--hang-busy-after 5m", quick: []string{debian}},
	{name: "graph", rank: 0, args: "--at 40 --steps 250", quick: []string{newest}},
}

const script = "scripts/train.py"

// TestHangs plays the scenes.
func TestHangs(t *testing.T) {
	t.Parallel()
	muster := stage.Build(t)
	var book figures
	t.Cleanup(func() { t.Logf("\n%v", &book) })
	for _, c := range scenes {
		for _, torch := range []string{debian, newest, fsdp, fsdp1, pipe, batch, pipe1} {
			if (c.class == "P") != strings.Contains(torch, "pipeline") {
				continue
			}
			if strings.HasSuffix(torch, "FSDP") && c.name == "uneven" || torch == fsdp1 && (c.class != "" || c.name == "kill") { // joins are DDP's
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
}

func (c scene) title() string {
	switch {
	case c.blind:
		return c.name + " without heartbeats"
	case c.mild:
		return c.name + " for a while"
	case c.flags != "" && c.name != "ending":
		return c.name + " with " + strings.Fields(c.flags)[0]
	case c.class != "" && c.rank == 0:
		return c.name + " of rank 0"
	}
	return c.name
}

// play plays a scene to its end.
func (c scene) play(t *testing.T, muster, torch string, book *figures) {
	j := open(t, muster)
	if torch == debian && c.old != "" {
		c.class, c.says = c.old, ""
	}
	if !*all && c.final != 0 {
		c.flags, c.want = "--max-restarts 0", [2]int{c.final, c.final}
	}
	argv := c.argv(t, muster, torch)
	for i := range j.nodes {
		j.run(i, c.env(torch), argv...)
	}
	if c.class != "" {
		c.hangs(j, book.row(c.title(), torch))
	}
	want := c.want
	if c.mild {
		j.wake(c.rank/2, c.pid(j))
		j.until("a word of the false alarm", has("it was no hang"))
	}
	if c.class == "D" { // which no restart mends
		want = [2]int{74, 74}
	}
	if codes := j.end(); codes != want {
		t.Errorf("exit codes %v, want %v", codes, want)
	}
	c.after(j)
	for _, l := range j.Lines() {
		if c.class == "" && verdict(l) {
			t.Errorf("of a healthy training it was said: %s", l.Text)
		}
		if c.name == "ending" && strings.Contains(l.Text, "this may be a hang") {
			t.Errorf("of a rank whose script is over it was said: %s", l.Text)
		}
		if strings.Contains(l.Text, "train alone") {
			t.Errorf("of ranks that communicate it was said: %s", l.Text)
		}
		if strings.Contains(l.Text, "is deprecated") {
			t.Errorf("PyTorch says, of what muster sets: %s", l.Text)
		}
	}
}

// after is what else must be true in the end.
func (c scene) after(j *job) {
	j.t.Helper()
	switch {
	case c.keeps:
		j.evidence(0, here(j.t, c.name), "node-0-h0", "node-1-h1")
		j.evidence(1, here(j.t, c.name), "node-1-h1")
	case strings.Contains(c.flags, "exclude-node"):
		said, _ := j.Find(verdict)
		if _, ok := j.Find(j.on(0, func(l line) bool { return j.Dull(l.Text) && l.At.After(said.At) })); !ok {
			j.t.Errorf("node 0 did not train on without node 1")
		}
		if _, ok := j.Find(j.on(1, has("left out"))); !ok {
			j.t.Errorf("node 1 was not left out")
		}
	case c.name == "kill":
		if _, ok := j.Find(func(l line) bool { return has("muster: rank 2 ")(l) && has("SIGKILL")(l) }); !ok {
			j.t.Errorf("nobody says who was killed")
		}
	}
}

// evidence looks for what a node has kept of each of these, and, of the second, for the line where the rank to blame was.
func (j *job) evidence(on int, culprit string, nodes ...string) {
	j.t.Helper()
	for _, node := range nodes {
		files, err := filepath.Glob(filepath.Join(j.nodes[on].Dir, kept, "job", "*", node, "index.json"))
		j.must(err)
		if len(files) == 0 {
			j.t.Errorf("node %d keeps no evidence of %s", on, node)
			continue
		}
		index, err := os.ReadFile(files[0])
		j.must(err)
		if node == "node-1-h1" && !strings.Contains(string(index), culprit) {
			j.t.Errorf("what node %d keeps of %s does not say that the rank to blame is in %s: %s", on, node, culprit, index)
		}
		info, err := os.Stat(files[0])
		j.must(err)
		early, _ := j.Find(j.on(0, has("this may be a hang: ")))
		j.t.Logf("node %d had all of %s %.1f s after the suspicion", on, node, info.ModTime().Sub(early.At).Seconds())
	}
}

func (c scene) env(torch string) (env []string) {
	if c.blind {
		env = append(env, "MUSTER_HOOK=off")
	}
	if torch == fsdp1 { // Debian's is built without libuv, and wants it all the same
		env = append(env, "USE_LIBUV=0")
	}
	return env
}

// argv is the command line of an agent.
func (c scene) argv(t *testing.T, muster, torch string) []string {
	model, build := "ddp", "newest"
	switch torch {
	case fsdp:
		model = "fsdp"
	case fsdp1:
		model, build = "fsdp1", "trixie"
	case debian:
		build = "debian"
	case pipe:
		model = "pipe"
	case batch:
		model = "batch"
	case pipe1:
		model, build = "pipe", "debian"
	}
	args := c.args
	if args == "" {
		args = "--at 50 --steps 70"
	}
	flags := "--nnodes 2 --nproc-per-node 2 --rdzv-id job --rdzv-endpoint h0:29400 --max-restarts 1 --node-timeout 5m" // a machine that is lent may stand still for a minute and a half
	line := append([]string{muster, "run"}, strings.Fields(flags)...)
	line = append(line, "--hang-floor", floor.String(), "--hang-busy-after", busy.String())
	if !c.mild && !strings.Contains(c.flags, "--on-hang") {
		line = append(line, "--on-hang", "restart")
	}
	line = append(line, strings.Fields(c.flags)...)
	line = append(line, "--", stage.Python(t, build), "-u", stage.File(t, script), c.name, "--model", model, "--rank", fmt.Sprint(max(c.rank, 0)))
	return append(line, strings.Fields(args)...)
}

// hangs waits for the hang and for what is said of it.
func (c scene) hangs(j *job, r *row) {
	j.t.Helper()
	began := j.until("the fault", has("now "+c.name))
	if c.name == "partition" {
		j.cut()
	}
	said := j.until("a hang", j.on(0, verdict))
	if c.name == "partition" {
		j.heal()
	}
	for _, words := range c.words(j) {
		if !regexp.MustCompile(words).MatchString(said.Text) {
			j.t.Errorf("%s; want class %s, %s", said.Text, c.class, words)
		}
	}
	early, ok := j.Find(j.on(0, func(l line) bool { return has("this may be a hang: ")(l) || has("slow: ")(l) }))
	if !ok {
		j.t.Errorf("nobody was suspected before")
	}
	r.set(early.At.Sub(began.At), said.At.Sub(began.At), said.Text)
}

// words are what must be said, as regular expressions.
func (c scene) words(j *job) []string {
	words := []string{says[c.class], c.says}
	if c.rank >= 0 {
		words[0] = fmt.Sprintf(`rank %d \(h%d, local %d, pid %s\) %s`, c.rank, c.rank/2, c.rank%2, c.pid(j), words[0])
	}
	if strings.Contains("ADEP", c.class) { // else nobody in particular is to blame, or cannot tell where it is
		words = append(words, regexp.QuoteMeta(here(j.t, c.name)))
	}
	return words
}

// pid is the process of the rank, as its node numbers it.
func (c scene) pid(j *job) string {
	l, _ := j.Find(has(fmt.Sprintf("[rank %d] pid ", c.rank)))
	_, pid, _ := strings.Cut(l.Text, "] pid ")
	return pid
}

// here is where train.py says that it gets stuck.
func here(t *testing.T, scene string) string {
	b, err := os.ReadFile(script)
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
