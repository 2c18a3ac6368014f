package launcher

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/muster-run/muster/heartbeat/page"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/proc"
)

// A Lookout is from where another launcher's workers are seen: the private directory of this run, and the one in which each rank
// makes its page.
type Lookout struct {
	Dir, Pages, hook string
	owner            *os.File // locked while this process lives; nil: by another, or nobody tidies up after us
}

// OpenLookout makes both, and writes down what fills pages. What others left in memory when they were killed it removes.
func OpenLookout(c Config) (l Lookout, err error) {
	tidy(memory)
	if err := runDir(c, lookoutID, func(dir string) { l.Dir = dir }); err != nil {
		return l, err
	}
	h := heritage{Dir: l.Dir, Pages: pageDir(l.Dir)}
	h.makePages()
	l.Pages = h.Pages
	l.owner, _ = own(l.Pages)
	if l.hook, err = unpackIn(l.Dir, l.Pages); err != nil {
		l.Close()
	}
	return l, err
}

// LookoutAt is the one that another process opened in dir.
func LookoutAt(dir string) Lookout {
	l := Lookout{Dir: dir, Pages: pageDir(dir)}
	if _, err := os.Stat(l.Pages); err != nil {
		l.Pages = dir
	}
	return l
}

// Environ is what the command gets: environ, and what makes its workers tell how far they are.
func (l Lookout) Environ(c Config) []string {
	var env job.Env
	for _, v := range page.EnvBelow(l.hook, l.Pages, c.getenv) {
		env = append(env, job.Var(v))
	}
	return env.Over(c.Environ)
}

// Close removes it.
func (l Lookout) Close() {
	removeRun(l.Dir)
	removeRun(l.Pages)
	l.owner.Close() // of none, too
}

const lookoutID = "observe" // in the names of directories

// A roll is the pages that ranks have made in a directory.
type roll struct {
	dir    string
	pages  map[int]*page.Page // by rank
	locals map[int]seat       // by rank, the process of which its local rank is known, or that it does not say
	gone   []seat             // those whose process has ended, at the last call
}

// A seat is a rank on this node, and the process that tells of it.
type seat struct {
	rank, pid int
	local     int    // rank, as the process was told; -1: it was not
	start     uint64 // of the process
	life      int    // of the page
	world     int    // ranks of the job, as the process says; 0: it does not
	page      *page.Page
}

// call is the ranks whose process lives, in order. What cannot be read is not there.
func (r *roll) call() (all []seat) {
	r.gone = nil
	files, _ := os.ReadDir(r.dir)
	for _, f := range files {
		rank, ok := page.OfRank(f.Name())
		if !ok || len(r.pages) >= maxSlots && r.pages[rank] == nil {
			continue
		}
		switch s, lives := r.one(rank, filepath.Join(r.dir, f.Name())); {
		case lives:
			all = append(all, s)
		case s.pid != 0:
			r.gone = append(r.gone, s)
		}
	}
	slices.SortFunc(all, func(a, b seat) int { return a.rank - b.rank })
	return all
}

func (r *roll) one(rank int, path string) (s seat, lives bool) {
	p := r.pages[rank]
	if p == nil {
		var err error
		if p, err = page.Attach(path); err != nil {
			return s, false
		}
		r.pages[rank] = p
	}
	said, _ := p.Read() // of one that is torn, what it said before
	if said.PID == 0 {
		return s, false
	}
	now, err := proc.Root("/proc").Process(said.PID)
	lives = err == nil && now.Start == said.Start && !now.Gone()
	s = seat{rank: rank, pid: said.PID, start: said.Start, life: said.Claims, world: said.World, page: p}
	s.local = r.local(s)
	return s, lives
}

// local is the local rank that a process was told. It is asked for once: later it may not answer, and whoever asks would wait with it.
func (r *roll) local(s seat) int {
	if known := r.locals[s.rank]; known.pid == s.pid && known.start == s.start {
		return known.local
	}
	s.local = -1
	if said := proc.Root("/proc").Getenv(s.pid, "LOCAL_RANK"); said != "" && count(said) <= s.rank {
		s.local = count(said)
	}
	r.locals[s.rank] = s
	return s.local
}

func (r *roll) close() {
	for _, p := range r.pages {
		p.Close()
	}
}

// A turnover tells when workers were started again, as other launchers do: then a rank is another process than before. Those of the round
// before may be seen a while longer.
type turnover struct{ now, before map[int]int } // rank to PID

// note takes in who a rank is, and reports whether a new round has begun with it.
func (t *turnover) note(rank, pid int) (anew bool) {
	if before, known := t.before[rank]; known && before == pid {
		return false
	}
	old, known := t.now[rank]
	if anew = known && old != pid; anew || t.now == nil {
		t.before, t.now = t.now, map[int]int{}
	}
	t.now[rank] = pid
	return anew
}
