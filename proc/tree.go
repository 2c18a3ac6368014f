package proc

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// TagName is the variable by which a worker's processes are known, whatever they did to
// parent, process group and session: MUSTER_WORKER=<job>/<rank>/<round>/<nonce>.
const TagName = "MUSTER_WORKER"

// A Target is the root of a tree of processes: a leader that lives or has lived.
type Target struct {
	PID   int
	Start uint64 // its Process.Start; 0 if it was gone before anybody looked
	Tag   string // value of TagName in its environment; "": it has none
}

// Tree returns the members of targets' trees among all: each leader, who is in its process group or session,
// who carries its tag, and everything below those. Processes from outside the namespace are never members.
// The targets must be younger than this process or, for it may have taken their care over from another, its parent.
func (r Root) Tree(all []Process, targets ...Target) []Process {
	tags := map[string]bool{}
	oldest := ^uint64(0)
	for _, t := range targets {
		tags[t.Tag] = t.Tag != ""
		oldest = min(oldest, t.Start)
	}
	oldest = max(oldest, ourStart(all))
	return below(all, func(p Process) bool {
		if slices.ContainsFunc(targets, func(t Target) bool { return t.leads(p, all) }) {
			return true
		}
		// Reading an environment is dear; nothing that a leader started is older than the leader, or than both of us.
		return p.Start >= oldest && !p.Gone() && tags[r.Getenv(p.PID, TagName)]
	})
}

// ourStart returns when this process started, or its parent, if that can be seen.
func ourStart(all []Process) uint64 {
	ours := startOf(all, os.Getpid())
	if parents := startOf(all, os.Getppid()); parents != 0 {
		return min(ours, parents)
	}
	return ours
}

// startOf returns when pid started, 0 if it is not among all.
func startOf(all []Process, pid int) uint64 {
	i := slices.IndexFunc(all, func(p Process) bool { return p.PID == pid })
	if i < 0 {
		return 0
	}
	return all[i].Start
}

// Below returns every process among all that descends from pid.
func Below(all []Process, pid int) []Process {
	return below(all, func(p Process) bool { return p.Parent == pid })
}

// leads reports whether p is t's leader or in a process group or session that has the leader's number.
// The kernel does not reuse that number while such a group exists; if a younger process has it, the group is not ours.
func (t Target) leads(p Process, all []Process) bool {
	if p.PID != t.PID && p.Group != t.PID && p.Session != t.PID {
		return false
	}
	return t.Start != 0 && !slices.ContainsFunc(all, func(q Process) bool { return q.PID == t.PID && q.Start != t.Start })
}

// below returns the processes that root picks and all their descendants.
func below(all []Process, root func(Process) bool) []Process {
	children := map[int][]Process{}
	for _, p := range all {
		children[p.Parent] = append(children[p.Parent], p)
	}
	var members []Process
	seen := map[int]bool{os.Getpid(): true}
	var add func(p Process)
	add = func(p Process) {
		if seen[p.PID] || p.Parent == 0 {
			return
		}
		seen[p.PID] = true
		members = append(members, p)
		for _, c := range children[p.PID] {
			add(c)
		}
	}
	for _, p := range all {
		if p.Parent != 0 && !seen[p.PID] && root(p) {
			add(p)
		}
	}
	return members
}

// A Hunt says whom to kill.
type Hunt struct {
	Find func(all []Process) []Process // among all processes

	// Ended counts processes that have ended. A look during which somebody ended does not count as quiet: he may have left a
	// child that we did not see. nil: nobody counts.
	Ended func() int64
}

const (
	quiet    = 3               // looks in a row must find nobody: a chain of forks can slip through one look
	restless = 2 * time.Second // for so long an end anywhere counts; some machines are never quiet
)

// Kill sends SIGKILL to those whom h finds, again and again until three looks in a row find nobody.
// It returns nil then, or those whom it may not kill: they are another user's, and are not waited for. When ctx ends
// first it returns all that still live.
func (r Root) Kill(ctx context.Context, h Hunt) ([]Process, error) {
	began := time.Now()
	for calm, pause := 0, time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		alive, refused, ended, err := r.look(h)
		if err != nil {
			return nil, err
		}
		switch {
		case len(alive) > 0, ended && time.Since(began) < restless:
			calm = 0
		default:
			calm, pause = calm+1, time.Millisecond
		}
		if calm == quiet {
			return refused, nil
		}
		select {
		case <-ctx.Done():
			return append(alive, refused...), nil
		case <-time.After(pause):
		}
	}
}

// look kills those whom it finds, once, and returns them, those whom it may not kill, and whether anybody ended meanwhile.
func (r Root) look(h Hunt) (alive, refused []Process, ended bool, err error) {
	before := h.ended()
	all, err := r.All()
	if err != nil {
		return nil, nil, false, err
	}
	for _, p := range slices.DeleteFunc(h.Find(all), Process.Gone) {
		if errors.Is(r.signal(p, unix.SIGKILL), unix.EPERM) {
			refused = append(refused, p)
		} else {
			alive = append(alive, p)
		}
	}
	return alive, refused, h.ended() != before, nil
}

func (h Hunt) ended() int64 {
	if h.Ended == nil {
		return 0
	}
	return h.Ended()
}

// signal sends sig to p and to nobody else: the PID may have a new owner since we looked, so it is pinned by a
// pidfd and looked at again. Kernels before 5.3 have no pidfd; there a tiny window is left. That p is gone is no error.
func (r Root) signal(p Process, sig unix.Signal) error {
	send := func() error { return unix.Kill(p.PID, sig) }
	fd, err := unix.PidfdOpen(p.PID, 0)
	switch {
	case err == nil:
		defer unix.Close(fd)
		send = func() error { return unix.PidfdSendSignal(fd, sig, nil, 0) }
	case !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM): // of a kernel without, or a seccomp filter
		return nil
	}
	if now, err := r.Process(p.PID); err != nil || now.Start != p.Start {
		return nil
	}
	if err := send(); !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}
