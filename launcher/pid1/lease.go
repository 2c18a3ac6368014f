package pid1

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// This file is the fence around a node that stands still. An agent that lost the others stops its workers, before the others go on
// without this node; but one that is stopped, swapped out or in a debugger cannot, nor could it on a machine that was suspended. So
// it gives its word for a time only, a lease, and the first process ends the workers of an agent that did not repeat it.

// ErrLapsed says that a worker was not started, for the agent's lease ran out after it was asked for: the other nodes may have
// gone on without this one.
var ErrLapsed = errors.New("the lease ran out before the worker was started")

// Lease lets the workers live for this long, and longer if it is called again in time. When it was not, by a clock that counts
// while machines are suspended, the first process kills all workers (who has a tag, with all they started) at once; their ends have
// proc.Exit.Lapsed, for this agent and for one that takes over. The lease is then over until the next call.
//
// What the agent asked for before it could know of that does not count: a call in the first process's socket that came after the lease's
// end renews nothing, and Start in it returns ErrLapsed. One that came in time does, whenever the first process reads it: it may have stood
// still itself. A lease goes on while another agent takes over, which has to renew it. 0 takes it back, as is due when no worker lives.
//
// It costs one small message without an answer. A first process of an older version does not know leases and kills nobody.
func (c *Client) Lease(within time.Duration) error {
	if within < 0 {
		return fmt.Errorf("lease: a time of %v is not possible; 0 takes the lease back", within)
	}
	return c.send(message{Kind: tellLease, Within: within, Lapses: c.known(), At: c.boottime()})
}

// known returns how many leases ran out that this agent knows of.
func (c *Client) known() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lapses
}

// lapsed notes how many there were.
func (c *Client) lapsed(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lapses = m.Lapses
}

// lease is the agent's word on the first process's side.
type lease struct {
	within time.Duration
	until  time.Duration // of Config.boottime; 0: there is none
	lapses int           // how often one ran out
	alarm  *alarm        // nil: none was ever needed
}

// greet hears whether a new agent renews leases. One of an older version does not, and is not to lose its workers over it.
func (l *lease) greet(m message) {
	if !m.Leases {
		l.until, l.lapses = 0, 0
	}
}

const lapsedTime = defaultKillTime // for workers to die

// renew takes the agent's word, unless it was given before the agent knew that the last lease had run out. It counts from when it was given.
func (f *first) renew(m message) {
	l := &f.lease
	if m.Lapses != l.lapses {
		return
	}
	now := f.cfg.boottime()
	l.within, l.until = m.Within, 0
	if l.alarm == nil {
		l.alarm = newAlarm()
	}
	if m.Within == 0 {
		l.alarm.set(0)
		return
	}
	given := now
	if m.At > 0 { // an agent of an older version does not say
		given = min(m.At, now)
	}
	l.until = given + m.Within
	l.alarm.set(max(l.until-now, 1))
}

// fence ends the workers when the lease has run out. It comes before anything that an agent wants: when all of this machine stood
// still, renewals may have come since it goes on, and whom they were for is gone.
func (f *first) fence() {
	l := &f.lease
	if !f.overdue() || f.catchUp() {
		return
	}
	late := f.cfg.boottime() - l.until
	l.until = 0
	l.lapses++
	f.reap() // who ended before did so by itself
	f.tell(message{Kind: tellLapse, Lapses: l.lapses})
	if n := f.workers(); n > 0 {
		f.complain("the agent did not answer for %v: killed %d workers, for other nodes may go on without this one", (l.within + late).Round(100*time.Millisecond), n)
	}
	var pids []int
	for pid, c := range f.children {
		if c.tag != "" {
			pids = append(pids, pid)
		}
	}
	f.lapse(pids)
}

// overdue reports whether there is a lease, and its time is over.
func (f *first) overdue() bool { return f.lease.until != 0 && f.cfg.boottime() >= f.lease.until }

// Of what the agent had sent all is here when nothing has come for a while; who sends on and on, and no word of a lease, is not waited for.
const (
	catchUpTime = 50 * time.Millisecond
	catchUpMost = time.Second
)

// catchUp reads what the agent sent while this process alone stood still, and reports whether the lease was renewed by that before its time was
// over. All else has to wait for its turn.
func (f *first) catchUp() bool {
	end := time.After(catchUpMost)
	for quiet := time.After(catchUpTime); f.inbox != nil; quiet = time.After(catchUpTime) {
		select {
		case m, open := <-f.inbox:
			switch {
			case !open:
				f.inbox = nil
			case m.Kind != tellLease:
				f.late = append(f.late, m)
			case m.At == 0 || m.At > f.lease.until: // given when it was over, or nobody knows when
				return false
			default:
				if f.renew(m); !f.overdue() {
					return true
				}
			}
		case <-quiet:
			return false
		case <-end:
			return false
		}
	}
	return false
}

// lapse kills workers whose lease ran out: they themselves now, before anybody else runs, then all that they started.
func (f *first) lapse(pids []int) {
	for _, pid := range pids {
		if c := f.children[pid]; c.alive {
			c.lapsed = true
			_ = unix.Kill(pid, unix.SIGKILL)
			_ = unix.Kill(-pid, unix.SIGKILL)
		}
	}
	f.killTrees(pids, lapsedTime, func(left string) {
		if left != "" {
			f.complain("%s", left)
		}
	})
}

// boottime reads CLOCK_BOOTTIME, which goes on while the machine is suspended.
func boottime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // cannot fail with this clock
	return time.Duration(t.Nano())
}

// An alarm rings by CLOCK_BOOTTIME: for a time that passed while the machine was suspended, as soon as it goes on (timerfd_create(2)).
// Go's timers stand still with the machine. Where the kernel has none it never rings; loop looks once a second.
type alarm struct {
	fd    int
	rings chan struct{}
	timer *os.File
	end   chan struct{} // closed when nobody listens any more
	gone  chan struct{} // closed when listen has returned
}

func newAlarm() *alarm {
	a := &alarm{fd: -1, rings: make(chan struct{}), end: make(chan struct{}), gone: make(chan struct{})}
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		close(a.gone)
		return a
	}
	a.fd, a.timer = fd, os.NewFile(uintptr(fd), "timer")
	go a.listen()
	return a
}

func (a *alarm) listen() {
	defer close(a.gone)
	for {
		if _, err := a.timer.Read(make([]byte, 8)); err != nil {
			return
		}
		select {
		case a.rings <- struct{}{}:
		case <-a.end:
			return
		}
	}
}

// close ends an alarm that somebody has for less than the life of the process.
func (a *alarm) close() {
	close(a.end)
	_ = a.timer.Close() // of none is an error
	<-a.gone
}

// set makes it ring after this time, and not before; 0: never.
func (a *alarm) set(after time.Duration) {
	if a.fd >= 0 {
		_ = unix.TimerfdSettime(a.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(after))}, nil)
	}
}

// ringing is what to listen to.
func (l *lease) ringing() <-chan struct{} {
	if l.alarm == nil {
		return nil
	}
	return l.alarm.rings
}
