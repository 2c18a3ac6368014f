package launcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/control"
	"github.com/muster-run/muster/heartbeat/page"
	"github.com/muster-run/muster/job"
)

// pages are where this node's workers of one round say how far they are, by local rank. One that could not be made is nil: training
// goes on without.
type pages []*page.Page

// unpackHook writes down what fills pages, while this agent goes on: in the run's directory, or where the pages are if there is no room. What it
// returns waits for that, and says where it is.
func unpackHook(run, pages string) func() (string, error) {
	var dir string
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		dir, err = unpackIn(run, pages)
	}()
	return func() (string, error) {
		<-done
		return dir, err
	}
}

func unpackIn(run, pages string) (dir string, err error) {
	if dir, err = page.Unpack(run); err == nil || pages == run {
		return dir, err
	}
	if there, also := page.Unpack(pages); also == nil {
		return there, nil
	}
	return dir, err
}

// pageDir is where a run's pages are: in memory, for a training that writes to a page of a file waits when its disk does.
func pageDir(run string) string { return filepath.Join(memory, filepath.Base(run)) }

// memory is where files are that no disk has.
const memory = control.Memory

// makePages makes that directory. Where there is no such memory the run's own does.
func (h *heritage) makePages() {
	if err := os.Mkdir(h.Pages, 0o700); h.Pages == "" || err != nil && !errors.Is(err, os.ErrExist) {
		h.Pages = h.Dir
	}
}

// openPages makes a page for each task and adds to its environment what fills it. Where an agent before this one may have started
// the tasks, its pages are taken up.
func (r *round) openPages(tasks []job.Task, number int) {
	r.closePages()
	var err error
	if r.hook, err = r.h.hook(); err != nil {
		r.c.Log.Warn(fmt.Sprintf("workers run without heartbeats: %v", err))
		return
	}
	for i := range tasks {
		path := pagePath(r.h.Pages, number, i)
		p, err := page.Attach(path)
		if err != nil {
			p, err = page.Create(path)
		}
		if err != nil {
			p = nil
			r.c.Log.Warn(fmt.Sprintf("rank %d runs without heartbeats: %v", tasks[i].Rank, err))
		}
		r.pages = append(r.pages, p)
		r.listen(p != nil, path, tasks[i].Rank)
		tasks[i] = r.paged(tasks[i])
	}
}

// paged adds to a task's environment what fills its page, if it has one.
func (r *round) paged(t job.Task) job.Task {
	if t.LocalRank < len(r.pages) && r.pages[t.LocalRank] != nil {
		path := pagePath(r.h.Pages, r.state.Round, t.LocalRank)
		t.Env = append(t.Env, pageEnv(r.hook, path, r.c.getenv)...)
		if r.ears[t.LocalRank] != nil {
			t.Env = append(t.Env, job.Var{Name: page.SocketName, Value: page.SocketFile(path), Why: "where the worker may say how far it is, in datagrams of text"})
		}
	}
	return t
}

// listen opens a worker's socket for beats, if it has a page. It has the page as well.
func (r *round) listen(paged bool, path string, rank int) {
	var ear *page.Listener
	var err error
	if paged {
		ear, err = page.Listen(path, func(err error) {
			r.c.Log.Warn(fmt.Sprintf("rank %d: %s: %v; others like it will not be told of", rank, page.SocketName, err))
		})
	}
	if err != nil {
		ear = nil
		r.c.Log.Debug(err.Error())
	}
	r.ears = append(r.ears, ear)
}

func (r *round) closePages() {
	for _, ear := range r.ears {
		if ear != nil {
			ear.Close()
		}
	}
	r.ears = nil
	for _, p := range r.pages {
		if p != nil {
			p.Remove()
		}
	}
	r.pages = nil
}

func pagePath(dir string, round, local int) string {
	return filepath.Join(dir, fmt.Sprintf("page-%d-%d", round, local))
}

// pageEnv is what a worker needs to fill its page.
func pageEnv(hook, path string, given func(string) (string, bool)) (env job.Env) {
	for _, v := range page.Env(hook, path, given) {
		env = append(env, job.Var(v))
	}
	return env
}

// silent is how long a helper thread that should have had a turn each second has had none.
const silent = 3 * time.Second

// ungrouped is what the hook says while there is no process group.
const ungrouped = "no process group yet"

// beatOf is what a worker's page says. pid is that of the worker's own process: of what it started, one may have taken the page.
func beatOf(rank, local, pid int, s page.Snapshot, now time.Duration) job.Beat {
	b := job.Beat{Rank: rank, Local: local, PID: pid, Steps: max(s.Steps, s.Optimizer), Phase: s.Phase, Limit: s.Limit, Mute: s.Mute}
	if s.PID != 0 {
		b.PID = s.PID
	}
	if left := s.Until - now; s.Until > 0 && left > 0 {
		b.Left = left
	}
	switch {
	case s.Recorder:
		b.Sources |= job.FromRecorder
	case s.Hooks:
		b.Sources |= job.FromHooks
	}
	if b.Sources == 0 && s.Optimizer > 0 && !s.Met { // who trains alone has no process group; who has destroyed his may do something else
		b.Sources |= job.FromHooks
	}
	if s.Beats > 0 {
		b.Sources |= job.FromBeats
	}
	if b.Sources == 0 && s.PID != 0 && !s.Met && (s.Mute == "" || !s.Grouped) { // but not where a backend tells nothing
		b.Sources = job.Ready
	}
	if b.Sources == 0 && s.Met && !s.Grouped && s.Mute == ungrouped {
		b.Sources, b.Mute = job.Ready, job.Parted
	}
	switch {
	case s.Over && s.Raised != "":
		b.Over, b.Mute = true, "its script failed: "+s.Raised
	case s.Over:
		b.Over, b.Mute = true, "its script is over"
	}
	b.Life, b.Count = s.Claims, s.Beats+s.Optimizer+s.Calls.Entered+s.Calls.Completed
	for _, l := range s.Lanes {
		b.Count += l.Entered + l.Completed
		b.Lanes = append(b.Lanes, laneOf(l, s.Exiting))
	}
	if s.Hooks || s.Calls.Entered > s.Calls.Completed { // with a recorder, besides sends and receives, what makes a group
		b.Lanes = append(b.Lanes, laneOf(s.Calls, s.Exiting))
	}
	return b
}

// belated is how long after the begin of a second counters may be read that count as read at it.
const belated = 50 * time.Millisecond

// second says at the begin of which second a page's counters were read, as in [job.Beat]; clock is the moment by the page's clock.
func second(s page.Snapshot, clock time.Duration, now time.Time) uint8 {
	read := now.Add(s.Moment - clock)
	if s.Moment == 0 || s.Exiting || time.Duration(read.Nanosecond()) > belated {
		return 0
	}
	return uint8(1 + read.Second())
}

// laneOf is one process group of a page. Where it cannot be seen what is complete, nobody is seen to wait; nor does who is about to
// end, though it may have been in a collective when that was last looked at.
func laneOf(l page.Lane, exiting bool) job.Lane {
	if (l.Blind || exiting) && l.Completed != l.Entered {
		l.Completed, l.Mark = l.Entered, 0
	}
	return job.Lane{Group: l.Group, Name: l.Name, Entered: l.Entered, Completed: l.Completed, Op: l.Op, Bytes: l.Bytes, Mark: l.Mark, Members: l.Members, Mixed: l.Mixed, Begun: l.Begun, Queued: l.Queued, Host: l.Host}
}

// held reports whether the helper thread of a process gets no turn.
func held(s page.Snapshot, now time.Duration) bool {
	return s.Helper > 0 && !s.Exiting && now-s.Helper > silent
}

// monotonic is CLOCK_MONOTONIC, by which pages tell time.
func monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail
	return time.Duration(t.Nano())
}
