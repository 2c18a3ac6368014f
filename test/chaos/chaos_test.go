package chaos

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/test/stage"
)

var (
	seed  = flag.Uint64("seed", 0, "`N` from which all faults follow; 0: a random one")
	most  = flag.Int("faults", 6, "`N` of a lap")
	lasts = flag.Duration("lap", 40*time.Second, "`TIME` after which a lap has no more faults, if it had two")
	only  = flag.String("only", "", "`REGEXP` of the faults that are drawn")
	torch = flag.String("torch", "debian", "`NAME` of a PyTorch, as test/python knows it")
)

func TestMain(m *testing.M) { stage.Main(m, 2) }

// TestChaos plays a lap of a minute: on a machine so busy that it is over with fewer faults, of fewer.
func TestChaos(t *testing.T) {
	s := *seed
	if s == 0 {
		s = someSeed()
	}
	t.Logf("to play it again: go test ./test/chaos -run TestChaos -seed %d", s)
	openLap(t, stage.Build(t), stage.Python(t, *torch), s).play(*most, *lasts)
}

func someSeed() uint64 { return uint64(1 + rand.IntN(1e6)) }

// play plays a lap: that many faults, or fewer when the time is over, but two at least.
func (l *lap) play(most int, long time.Duration) {
	l.begin()
	for n := 0; n < most && (n < 2 || time.Since(l.began) < long) && !l.t.Failed(); n++ {
		l.next()
	}
	l.leaksDescriptors()
	l.finish()
	l.long = time.Since(l.began)
	if l.t.Failed() {
		return
	}
	l.leaks()
	l.verdicts()
	l.parameters()
	for _, what := range l.book.mistakes() {
		l.t.Error(what)
	}
	all := l.inhabitants()
	if len(all) < nodes {
		l.t.Errorf("%d processes are on %d machines", len(all), nodes)
	}
	l.Close()
	if left := left(all); len(left) > 0 {
		l.t.Errorf("processes are left: %q", left)
	}
	for _, a := range l.all {
		l.t.Logf("%-32s %-8s told after %7.3f s, again after %7.3f s: %s", a.Fault, a.On, a.Noticed.Seconds(), a.Again.Seconds(), a.Said)
	}
}

// parameters holds what was trained against a training without faults, as long.
func (l *lap) parameters() {
	l.t.Helper()
	l.until("all workers' last words", func() bool { return len(l.book.ends()) == nodes })
	dones := l.book.ends()
	kept := l.book.checkpoints()
	steps := dones[0].step
	h := l.machine("reference")
	h.Run([]string{"STAGE=" + l.Dir, "MACHINE=" + h.Own}, l.muster, "run", "--standalone", "--nproc-per-node", fmt.Sprint(nodes), "--",
		l.python, "-u", stage.File(l.t, "testdata/train.py"), fmt.Sprint(steps))
	l.book.forget()
	h.Program().Wait()
	l.until("its end", func() bool { return len(l.book.ends()) == nodes })
	want, right := l.book.ends()[0], l.book.checkpoints()
	for _, r := range dones {
		if r.step != want.step || r.digest != want.digest {
			l.t.Errorf("without faults it is %v, and this is another: %v", want, r)
		}
	}
	for step, digest := range kept {
		if right[step] != digest {
			l.t.Errorf("the checkpoint of step %d is %s, and without faults %s", step, digest, right[step])
		}
	}
	if len(kept) < len(right) {
		l.t.Errorf("%d checkpoints; without faults %d", len(kept), len(right))
	}
}

// judged are the fields of a verdict that are the judgement's.
var judged = []string{"outcome", "exit_code", "origin", "class", "message", "hint", "first", "hang", "consequences", "rounds"}

// verdicts holds each round's end against what is to be said of it, and each journal, judged again, against the verdict that was given.
func (l *lap) verdicts() {
	l.t.Helper()
	files, err := os.ReadDir(filepath.Join(l.Dir, "journals"))
	l.must(err)
	if len(files) < nodes {
		l.t.Errorf("%d journals", len(files))
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(l.Dir, "verdicts", f.Name()))
		l.must(err)
		journal, err := os.Open(filepath.Join(l.Dir, "journals", f.Name()))
		l.must(err)
		v, err := launcher.Replay(journal, io.Discard, func(*launcher.Limits) {})
		journal.Close()
		l.must(err)
		if v == nil { // its workers ended well, and nobody said more of it
			v = &job.Verdict{Class: job.Succeeded, Sentence: "all workers of this node ended well"}
		}
		was, is := fields(l, text), fields(l, report.Ending{Verdict: *v}.JSON())
		for _, name := range judged {
			if string(was[name]) != string(is[name]) {
				l.t.Errorf("journal of %s: %s was %s, and judged again it is %s", f.Name(), name, was[name], is[name])
			}
		}
	}
	l.ends(fields(l, must(os.ReadFile(filepath.Join(l.Dir, "verdicts", fmt.Sprintf("%s.%d", l.hosts[0].Own, l.hosts[0].files-1))))))
}

// ends holds the rounds of the leader's verdict against what is to be told of them: the latest, as many as it has.
func (l *lap) ends(verdict map[string]json.RawMessage) {
	l.t.Helper()
	var rounds []struct {
		Round   int    `json:"round"`
		Message string `json:"message"`
	}
	if verdict["rounds"] != nil {
		l.must(json.Unmarshal(verdict["rounds"], &rounds))
	}
	for _, r := range rounds {
		if r.Round >= len(l.rounds) || !l.rounds[r.Round].MatchString(r.Message) {
			l.t.Errorf("of round %d is told %q; to be told is %q", r.Round, r.Message, l.rounds)
		}
	}
	if last := l.book.standing().round; last != len(l.rounds) {
		l.t.Errorf("%d rounds followed the first; faults ask for %d", last, len(l.rounds))
	}
}

func fields(l *lap, text []byte) (all map[string]json.RawMessage) {
	l.t.Helper()
	l.must(json.Unmarshal(text, &all))
	return all
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// pause is time that an accident takes.
func (l *lap) pause() { time.Sleep(time.Duration(1000+l.draw.IntN(2000)) * time.Millisecond) }

func (b *book) ends() []record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.dones)
}

func (b *book) mistakes() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.wrong)
}

func (b *book) checkpoints() map[int]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.kept
}

// forget begins the book of another job.
func (b *book) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun, b.dones, b.kept = nil, nil, map[int]string{}
}
