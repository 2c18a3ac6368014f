package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/test/stage"
)

// patience is how long a lap waits for anything that is to happen; the machine may be busy with much else.
const patience = 6 * time.Minute

const nodes = 4

// A lap is one job, from its beginning to its end, and the accidents that it has.
type lap struct {
	*stage.Stage
	t      *testing.T
	book   *book
	draw   *rand.Rand
	muster string
	python string
	hosts  [nodes]*host
	aside  *host // the machine of the etcd in which the job meets; nil: a node hosts the store
	store  int   // which
	made   int   // machines
	groups []string
	began  time.Time
	long   time.Duration // from its beginning to its end
	open   []int         // descriptors of each node's first process and agent, when the training had begun

	last   *accident
	ended  string // the fault with which the latest round ended
	all    []*accident
	rounds []*regexp.Regexp // what is to be told of the end of each
}

// An accident is what a fault came to.
type accident struct {
	Fault   string
	On      string // hosts that it befell
	Said    string // of it
	Noticed time.Duration
	Again   time.Duration // until every rank had made a step after it

	at     time.Duration // of the books' clock
	wall   time.Time     // of the stage's
	before standing
}

// A host is a machine of a job.
type host struct {
	*stage.Machine
	files  int               // that its programs left: of journals, verdicts
	groups map[string]string // cgroups, by controller
}

// openLap has the four machines, and the etcd, and nothing that runs there.
func openLap(t *testing.T, muster, python string, seed uint64) *lap {
	draw := rand.New(rand.NewPCG(seed, 0))
	l := &lap{t: t, draw: draw, muster: muster, python: python, store: draw.IntN(nodes)}
	t.Cleanup(l.removeGroups) // when all machines are dead
	t.Cleanup(watch(t))
	l.Stage = stage.Open(t, 1)
	for _, dir := range []string{"journals", "verdicts"} {
		l.must(os.Mkdir(filepath.Join(l.Dir, dir), 0o755))
	}
	var err error
	l.book, err = openBook(l.Dir, l.Ring)
	l.must(err)
	t.Cleanup(l.book.close)
	if draw.IntN(3) == 0 {
		l.aside = l.machine("etcd")
		l.serve()
	}
	for i := range l.hosts {
		l.hosts[i] = l.machine(fmt.Sprint("h", i))
	}
	return l
}

// machine makes one of a name, which from then on means this one. It has a disk and shared memory of its own.
func (l *lap) machine(name string) *host {
	l.t.Helper()
	h := &host{Machine: l.Add(name, fmt.Sprint("m", l.made), l.muster, "init", "--")}
	l.made++
	l.contain(h)
	for _, dir := range []string{h.Dir, "/dev/shm"} {
		if out := h.Ask("mount", "-t", "tmpfs", "-o", "size=16m", "chaos", dir); out != "" {
			l.t.Fatalf("mount: %s", out)
		}
	}
	return h
}

// serve starts the etcd, with what it has.
func (l *lap) serve() {
	l.t.Helper()
	h := l.aside
	p := h.Run(nil, strings.Fields(fmt.Sprintf("etcd --name etcd --data-dir %s/etcd --initial-cluster etcd=http://%s:2380"+
		" --listen-peer-urls http://%[2]s:2380 --initial-advertise-peer-urls http://%[2]s:2380"+
		" --listen-client-urls http://%[2]s:2379 --advertise-client-urls http://%[2]s:2379", l.Dir, h.Addr))...)
	l.until("an etcd", func() bool { return strings.Contains(p.Said(), "ready to serve client requests") })
}

// run starts the agent of a node.
func (l *lap) run(i int) {
	l.t.Helper()
	h := l.hosts[i]
	meets := fmt.Sprintf("h%d:29400", l.store)
	if l.aside != nil {
		meets = "etcd://etcd:2379"
	}
	file := fmt.Sprintf("%s.%d", h.Own, h.files)
	h.files++
	h.Run([]string{"STAGE=" + l.Dir, "MACHINE=" + h.Own}, h.enters(l.muster, "run", "--rdzv-id", "job", "--rdzv-endpoint", meets, "--nnodes", fmt.Sprint(nodes), "--node-rank", fmt.Sprint(i),
		"--max-restarts", "1000", "--restart-backoff", "0", "--journal", filepath.Join(l.Dir, "journals", file), "--verdict", filepath.Join(l.Dir, "verdicts", file),
		"--", l.python, "-u", stage.File(l.t, "testdata/train.py"))...)
}

// begin starts the job.
func (l *lap) begin() {
	l.t.Helper()
	l.began = time.Now()
	for i := range l.hosts {
		l.run(i)
	}
	l.until("a training", func() bool { return l.book.standing().least > 2 })
	for i := range l.hosts {
		l.open = append(l.open, l.descriptors(i)...)
	}
}

// befalls notes that something is about to happen to some nodes.
func (l *lap) befalls(fault string, victims ...int) {
	l.t.Helper()
	var on []string
	for _, i := range victims {
		on = append(on, fmt.Sprint("h", i))
	}
	l.last = &accident{Fault: fault, On: strings.Join(on, " "), at: stage.Now(), wall: time.Now(), before: l.book.standing()}
	l.all = append(l.all, l.last)
	l.t.Logf("%s %s: %s", l.last.wall.Format("04:05.000"), fault, l.last.On)
}

// told waits until a node says something of what has happened.
func (l *lap) told(words string) {
	l.t.Helper()
	is := regexp.MustCompile(words)
	var line stage.Line
	l.until(fmt.Sprintf("%q", words), func() (found bool) {
		line, found = l.Find(func(line stage.Line) bool { return line.At.After(l.last.wall) && is.MatchString(line.Text) })
		return found
	})
	if l.last.Said == "" {
		l.last.Said, l.last.Noticed = line.Text, line.At.Sub(l.last.wall)
	}
}

// goesOn waits until the same workers have made more steps since the accident was over.
func (l *lap) goesOn() {
	l.t.Helper()
	from := l.book.standing()
	l.until("more steps", func() bool {
		s := l.book.standing()
		return s.least > from.least+2 || s.round != from.round
	})
	l.last.Again = stage.Now() - l.last.at
	if s := l.book.standing(); s.round != l.last.before.round || fmt.Sprint(s.pids) != fmt.Sprint(l.last.before.pids) {
		l.t.Errorf("%s: workers began anew, in round %d", l.last.Fault, s.round)
	}
}

// again waits until all workers have begun anew after the accident, in the next round; words are those of the verdict on the one before.
func (l *lap) again(words string) {
	l.t.Helper()
	l.rounds = append(l.rounds, regexp.MustCompile(words))
	l.until("another round", func() bool {
		s := l.book.standing()
		return s.round > l.last.before.round && s.at > l.last.at && s.least > 2
	})
	l.last.Again = stage.Now() - l.last.at
	if s := l.book.standing(); s.round != l.last.before.round+1 {
		l.t.Errorf("%s: round %d follows round %d", l.last.Fault, s.round, l.last.before.round)
	}
}

// trains waits until this many more steps were made.
func (l *lap) trains(steps int) {
	l.t.Helper()
	from := l.book.standing().step
	l.until("a training", func() bool { return l.book.standing().step >= from+steps })
}

// finish lets the training come to its end.
func (l *lap) finish() {
	l.t.Helper()
	l.must(os.WriteFile(filepath.Join(l.Dir, "finish"), nil, 0o644))
	for _, h := range l.hosts {
		p := h.Program()
		l.until("the end of "+h.Name, func() bool { return !p.Running() })
		if p.Code() != 0 {
			l.t.Errorf("%s %s", h.Name, p.Ending())
		}
	}
}

// signal sends a signal to a process.
func (l *lap) signal(pid int, sig syscall.Signal) {
	l.t.Helper()
	l.must(syscall.Kill(pid, sig))
}

// agent is that of a node.
func (l *lap) agent(i int) int {
	l.t.Helper()
	pid := l.hosts[i].Agent()
	if pid == 0 {
		l.t.Fatalf("h%d has no agent", i)
	}
	return pid
}

// worker is that of a node, whose rank is its number.
func (l *lap) worker(i int) int {
	l.t.Helper()
	return l.hosts[i].Outside(l.book.standing().pids[i])
}

// cut cuts some nodes off from all others.
func (l *lap) cut(some ...int) {
	l.t.Helper()
	var cut []*stage.Machine
	for _, i := range some {
		cut = append(cut, l.hosts[i].Machine)
	}
	l.Cut(cut...)
}

// replace puts another machine of its name in the place of a node that is dead.
func (l *lap) replace(i int) {
	l.t.Helper()
	l.hosts[i] = l.machine(fmt.Sprint("h", i))
	l.run(i)
}

func (l *lap) until(what string, here func() bool) {
	l.t.Helper()
	if !l.Await(patience, here) {
		l.t.Fatalf("in vain waited for %s, after %v", what, l.last)
	}
}

func (l *lap) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (a *accident) String() string {
	if a == nil {
		return "nothing had happened"
	}
	return fmt.Sprintf("%s (%s)", a.Fault, a.On)
}

// A few signals by their names, for the table of faults.
const (
	kill = unix.SIGKILL
	stop = unix.SIGSTOP
	cont = unix.SIGCONT
)

// watch says of a lap that failed how long this machine itself stood still, or had no time: muster gives up who is silent for ten seconds, and has
// no way to know that all were.
func watch(t *testing.T) (end func()) {
	over, done := make(chan struct{}), make(chan struct{})
	var most time.Duration
	go func() {
		defer close(done)
		const often = 100 * time.Millisecond
		for at := stage.Now(); ; at = stage.Now() {
			select {
			case <-over:
				return
			case <-time.After(often):
				most = max(most, stage.Now()-at-often)
			}
		}
	}()
	return func() {
		close(over)
		<-done
		if t.Failed() {
			t.Logf("this machine stood still for %v at most", most)
		}
	}
}
