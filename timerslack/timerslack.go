// Package timerslack lets the timers of this process be late by a millisecond, from its first thread on, and keeps that from the programs that it starts.
//
// Go's runtime has a thread that looks after the others (sysmon). While a process starts, and its threads block now and then, it sleeps for 20 µs at a
// time, and the kernel makes 70 of them, for a thread's timers may be 50 µs late (prctl(2), PR_SET_TIMERSLACK). With two such processes for each agent
// an eighth of the processors' time went there when 32 agents started on two. A thread takes its slack over from the one that makes it, and that thread is made
// before any Go code of ours runs; so what `make build` links begins not in the runtime but in begin (timerslack_amd64.s, timerslack_arm64.s), which asks for
// Slack and goes on there. Where something else has linked, as in tests, nothing changes.
package timerslack

import (
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Slack is how late timers may be. The shortest waits of ours are of a millisecond, and may be of two. Go's own are shorter: what waits for a processor
// whose thread is in a system call, or goes on after it has woken another goroutine, may wait for a millisecond longer until a free one takes it over
// (runtime: retake, runqgrab); where nothing goes on the thread sleeps for 10 ms at a time without that.
const Slack = time.Millisecond

// came is the slack that this process was started with, in nanoseconds; 0, or an error's number below it: begin did not run, or may not ask.
var came int64

// Given calls start, which starts a program, on a thread whose slack is the one that this process was started with: the program gets the thread's. It
// returns what start does.
func Given(start func() error) error {
	if came <= 0 {
		return start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	set(time.Duration(came))
	defer set(max(Slack, time.Duration(came)))
	return start()
}

// Exec is syscall.Exec, and the program gets the slack that this process was started with. If it asks for its default one (a slack of 0), it may get ours,
// for that is the thread's for good.
func Exec(path string, argv, environ []string) error {
	return Given(func() error { return syscall.Exec(path, argv, environ) })
}

// set asks for a slack of this thread. There is nothing to do if that fails: a timer is late.
func set(d time.Duration) { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(d), 0, 0, 0) }
