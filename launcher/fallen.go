package launcher

import (
	"cmp"
	"context"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/muster-run/muster/framework"
	"github.com/muster-run/muster/heartbeat/page"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/proc"
)

// This file is which rank failed first of those that are only observed. Another launcher reaps them; what is seen of their ends is what
// the kernel shows to all, what the worker's page says of an exception, and what torch leaves in an error file.

// A vigil is over one rank of this node, until it ends.
type vigil struct {
	seat
	local  int    // rank
	life   int    // TORCHELASTIC_RESTART_COUNT
	errors string // file for its exception
	over   *proc.Vigil
}

// fell is that it has ended.
type fell struct {
	*vigil
	exit proc.Exit
}

// seatedAt tells apart all processes that ever were ranks here.
type seatedAt struct {
	pid   int
	start uint64
}

// falls is what an observer knows of ranks that failed.
type falls struct {
	scene  scene
	vigils map[seatedAt]*vigil // nil: nothing more is to be learned of its end
	ends   chan fell
	causes []cause     // of this round, on all nodes
	rounds []job.Round // before
	told   string      // who was said to have failed first
}

func openFalls(c Config) falls {
	return falls{scene: openScene(c), vigils: map[seatedAt]*vigil{}, ends: make(chan fell, maxSlots)}
}

// maxVigils bounds the processes that are remembered; who starts more of them, the ends of the last are not seen.
const maxVigils = 1 << 16

// watchOver waits for the ends of who is here.
func (o *observer) watchOver(ctx context.Context, seats []seat) {
	for _, s := range seats {
		id := seatedAt{s.pid, s.start}
		if _, known := o.falls.vigils[id]; known || len(o.falls.vigils) >= maxVigils {
			continue
		}
		root := proc.Root("/proc")
		over, err := root.Watch(proc.Process{PID: s.pid, Start: s.start})
		if err != nil {
			continue // its page may tell
		}
		v := &vigil{seat: s, local: o.local(s), life: count(root.Getenv(s.pid, restartCount)), errors: root.Getenv(s.pid, errorFileName), over: over}
		o.falls.vigils[id] = v
		o.finding.Go(func() {
			exit, err := over.Wait()
			if err != nil {
				return
			}
			select {
			case o.falls.ends <- fell{v, exit}:
			case <-ctx.Done():
			}
		})
	}
}

// local is the local rank of who sits there, or did.
func (o *observer) local(s seat) int {
	if s.local >= 0 {
		return s.local
	}
	return max(s.rank-o.first, 0)
}

// What torchrun tells its workers.
const (
	errorFileName = "TORCHELASTIC_ERROR_FILE"
	restartCount  = "TORCHELASTIC_RESTART_COUNT"
)

// count is a small number in digits, or 0.
func count(digits string) (n int) {
	for _, d := range digits {
		if d < '0' || d > '9' || n > 1<<20 {
			return 0
		}
		n = n*10 + int(d-'0')
	}
	return n
}

// endVigils ends those that are left.
func (o *observer) endVigils() {
	for _, v := range o.falls.vigils {
		if v != nil {
			v.over.Close()
		}
	}
}

// fallenUnseen takes in ranks that came and went between two looks: nobody saw how they ended, but Python may have said why.
func (o *observer) fallenUnseen() {
	for _, s := range o.roll.gone {
		if _, known := o.falls.vigils[seatedAt{s.pid, s.start}]; !known {
			o.fell(fell{&vigil{seat: s, local: o.local(s)}, proc.Exit{PID: s.pid, Lost: "it had ended before it was seen"}})
		}
	}
}

// fell keeps a failure of this node's, and tells it.
func (o *observer) fell(e fell) {
	id := seatedAt{e.pid, e.start}
	if v := o.falls.vigils[id]; v != nil {
		v.over.Close()
	}
	o.falls.vigils[id] = nil
	said, _ := e.page.Read()
	if said.PID != e.pid || said.Start != e.start { // the next one has written over it
		said = page.Snapshot{}
	}
	at, exit, failed := howItEnded(e.exit, said)
	if !failed {
		return
	}
	recorded, _ := reachFor(o.falls.scene.files, func() string { return recordedSince(e.errors, o.began) })
	f := job.Failure{
		Node: o.c.Host.Hostname, Group: o.node, Rank: e.rank, LocalRank: e.local, Restarts: e.life, PID: e.pid, Exit: exit,
		At: at.Round(0), Exception: o.falls.scene.hidden().Line(cmp.Or(recorded, said.Raised), exceptionText), Step: max(said.Steps, said.Optimizer),
	}
	o.falls.scene.explain(&f, said.Raised, nil)
	f.Echo = f.Echo || toldToStop(exit)
	o.blame(cause{At: at.Sub(o.began), Node: o.node, Failure: &f})
	o.tellFailure(f, at)
}

// howItEnded is when and how a process ended, as far as that is seen, and whether it failed. An exception ends Python with code 1.
func howItEnded(e proc.Exit, said page.Snapshot) (at time.Time, exit job.Exit, failed bool) {
	at = e.At
	if said.Exiting && (at.IsZero() || e.Lost != "") {
		at = time.Now().Add(said.Helper - monotonic())
	}
	switch {
	case e.Lost == "":
		exit = job.Exit{Code: e.Code, Signal: int(e.Signal), Core: e.Core}
		return at, exit, !exit.OK()
	case said.Exiting:
		return at, job.Exit{Code: 1}, said.Raised != ""
	case e.At.IsZero():
		return at, exit, false
	}
	return at, job.Exit{Err: e.Lost}, true
}

// toldToStop reports whether that is how launchers end their workers when another one has failed, or somebody wants the node.
func toldToStop(e job.Exit) bool {
	return slices.Contains([]int{int(syscall.SIGTERM), int(syscall.SIGINT), int(syscall.SIGHUP)}, e.Signal)
}

// recordedSince is what an error file says, if it is not of an earlier run.
func recordedSince(path string, began time.Time) string {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.ModTime().Before(began) {
		return ""
	}
	return framework.Recorded(path)
}

// tellFailure tells the others: all of them, if this node leads them; else who leads, who tells the others.
func (o *observer) tellFailure(f job.Failure, at time.Time) {
	if o.with == nil {
		return
	}
	f.Group, f.Ago, f.Tail = o.node, time.Since(at), nil
	to := 0
	if o.with.leads() {
		to = everyone
	}
	o.with.line.tell(to, news{Kind: newsFailed, Failure: &f})
}

// tellFailures is for those that have just been met.
func (o *observer) tellFailures() {
	for _, c := range o.falls.causes {
		if c.Failure.Node == o.c.Host.Hostname {
			o.tellFailure(*c.Failure, o.began.Add(c.At))
		}
	}
}

// heardOf takes in a failure that another node told of.
func (o *observer) heardOf(peer int, f job.Failure) {
	if f.Ago < 0 || f.Ago > patient {
		return
	}
	if f.Group != peer && (o.with.leads() || peer != 0) {
		return // only who leads tells of others
	}
	at := time.Now().Add(-f.Ago)
	if o.blame(cause{At: at.Sub(o.began), Node: f.Group, Failure: &f}) && o.with.leads() {
		o.tellFailure(f, at)
	}
}

// blame adds to the causes, and says who was first when that is news.
func (o *observer) blame(c cause) bool {
	same := func(k cause) bool {
		return k.Failure.Node == c.Failure.Node && k.Failure.Rank == c.Failure.Rank && k.Failure.PID == c.Failure.PID
	}
	if len(o.falls.causes) >= maxCauses || slices.ContainsFunc(o.falls.causes, same) {
		return false
	}
	o.falls.causes = append(o.falls.causes, c)
	if v := o.blamed(); !v.First.Echo && o.falls.told != v.Sentence {
		o.falls.told = v.Sentence
		o.c.Log.Warn("the first to fail: " + v.Sentence)
	}
	return true
}

// What is kept at most: failures of one round, and rounds.
const (
	maxCauses = 4096
	maxRounds = 8
)

// blamed names the first cause of this round; there is one.
func (o *observer) blamed() job.Verdict { return policy{}.judge(o.falls.causes, nil) }

// absolve ends the round of who failed in it: the launcher has started workers again, as often as life says, or it does not say.
func (o *observer) absolve(life int) {
	over, rest := []cause{}, []cause{}
	for _, c := range o.falls.causes {
		if life > 0 && c.Failure.Restarts >= life {
			rest = append(rest, c)
		} else {
			over = append(over, c)
		}
	}
	o.falls.causes = over
	if len(over) > 0 {
		if v := o.blamed(); !v.First.Echo {
			o.falls.rounds = append(o.falls.rounds, job.Round{Number: o.round, Message: v.Sentence, First: v.First})
			o.falls.rounds = o.falls.rounds[max(0, len(o.falls.rounds)-maxRounds):]
		}
	}
	o.falls.causes, o.falls.told = rest, ""
}

// lingerTime is how long the end of a command that failed waits for what was on its way: the word of other nodes, and the kernel's.
const lingerTime = 300 * time.Millisecond

// settle takes that in.
func (o *observer) settle() {
	late := time.After(lingerTime)
	for {
		select {
		case e := <-o.falls.ends:
			o.fell(e)
		case e, ok := <-o.with.events():
			if ok {
				o.heard(e)
				continue
			}
			<-late
			return
		case <-late:
			o.roll.call()
			o.fallenUnseen()
			return
		}
	}
}

// accused adds to a verdict of the command who failed first.
func (o *observer) accused(v job.Verdict) job.Verdict {
	v.Rounds = o.falls.rounds
	if v.OK() || len(o.falls.causes) == 0 {
		return v
	}
	who := o.blamed()
	if toldToStop(who.First.Exit) { // by whom is not seen
		v.Sentence += "; before that " + who.Sentence
		return v
	}
	v.Origin, v.Class, v.Hint, v.First, v.Consequences = "worker", who.Class, who.Hint, who.First, who.Consequences
	v.Sentence = who.Sentence + "; then " + v.Sentence
	return v
}
