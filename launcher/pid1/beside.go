package pid1

import (
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/proc"
)

// This file is how init starts this program a second time, beside the command, to look on. Nothing that becomes of the onlooker
// becomes of the command.

// A Told is what an onlooker hears: what was left for it, that the command runs, and how it ended.
type Told struct {
	Note string     // of InitOptions
	PID  int        // of the command
	End  *proc.Exit `json:",omitempty"` // nil: it runs
	Code int        // with which init ends
}

// onlooker is the variable that tells the second process what it is: init's PID. Its end of the socket is descriptor 3.
const onlooker = "MUSTER_ONLOOKER"

// farewellTime is how long init waits for the onlooker's last word when the command has ended.
const farewellTime = 5 * time.Second

// Onlooker reports whether this process is one, and what it hears, until the channel is closed: then init is gone. One that is orphaned
// already hears nothing; it is an onlooker all the same, which must not start the command again.
func Onlooker() (<-chan Told, bool) {
	parent, is := os.LookupEnv(onlooker)
	if !is {
		return nil, false
	}
	os.Unsetenv(onlooker)
	news := make(chan Told)
	if parent != strconv.Itoa(os.Getppid()) {
		close(news)
		return news, true
	}
	unix.CloseOnExec(3)
	drop([]syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGTERM}) // they are for the command; we end with it
	go func() {
		defer close(news)
		hear := json.NewDecoder(os.NewFile(3, "init"))
		for {
			var t Told
			if hear.Decode(&t) != nil {
				return
			}
			news <- t
		}
	}()
	return news, true
}

// beside is the onlooker as init sees it. The zero value is none.
type beside struct {
	pid    int // 0: there is none, or none any more
	socket int
	last   bool // it has heard that the command has ended
}

// lookOn starts the onlooker. A command goes on as well without.
func (i *initProcess) lookOn() {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		complain("nobody looks on: socketpair: %v", err)
		return
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		closeAll(pair[:])
		complain("nobody looks on: %s: %v", os.DevNull, err)
		return
	}
	s := spawn{
		path: ownProgram, argv: os.Args, env: append(os.Environ(), onlooker+"="+strconv.Itoa(os.Getpid())),
		files: []int{null, 1, 2, pair[1]}, closeAfter: []int{null, pair[1]},
	}
	s.sys.Setpgid = true // what is typed at the terminal is not for it
	s.answer = func(pid int, _ uint64, failed error) { i.beside, err = beside{pid: pid, socket: pair[0]}, failed }
	i.spawner.work <- s
	(<-i.spawner.done)()
	if err != nil {
		i.beside = beside{}
		unix.Close(pair[0])
		complain("nobody looks on: %v", err)
		return
	}
	i.tell(Told{Note: i.opt.Note, PID: i.child})
}

// tell does not wait for anybody to listen, nor is it a signal for the command that nobody does.
func (i *initProcess) tell(t Told) {
	line, _ := json.Marshal(t) // plain values: cannot fail
	if _, err := unix.SendmsgN(i.beside.socket, line, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT); err != nil && !errors.Is(err, unix.EPIPE) {
		i.verbose(1, "tell the onlooker: %v", err)
	}
}

// besideEnded takes note of the onlooker's end. It should come after the command's.
func (i *initProcess) besideEnded(e proc.Exit) {
	i.beside.pid = 0
	if !i.beside.last {
		complain("who looks on %v; the command goes on", e)
	}
}

// farewell lets the onlooker say how the command ended, and returns when it has, or does not in time.
func (i *initProcess) farewell(end proc.Exit, code int, ended <-chan os.Signal) {
	if i.beside.pid == 0 {
		return
	}
	i.beside.last = true
	i.tell(Told{Note: i.opt.Note, PID: end.PID, End: &end, Code: code})
	for late := time.After(farewellTime); i.beside.pid != 0; {
		select {
		case <-late:
			_ = unix.Kill(i.beside.pid, unix.SIGKILL) // nobody but us reaps it
			return
		case <-i.signals: // for a command that has ended
		case <-ended:
			i.reap()
		}
	}
}
