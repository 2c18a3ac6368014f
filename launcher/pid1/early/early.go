// Package early catches the SIGTERM that comes before main begins: a container may be stopped as soon as it is started.
//
// To PID 1 the kernel delivers only what has a handler. The Go runtime installs one for every signal as it starts, and
// what nobody asked for by os/signal ends the process with exit code 2. So somebody must ask before the other packages
// get ready. That is why this one imports so little: Go initialises it as soon as os/signal is.
package early

import (
	"os"
	"os/signal"
	"syscall"
)

// caught is the one variable of a package that holds state: before main there is nobody else to hold it.
var caught = catch()

func catch() chan os.Signal {
	c := make(chan os.Signal, 1)
	if os.Getpid() == 1 {
		signal.Notify(c, syscall.SIGTERM)
	}
	return c
}

// HandOver gives a SIGTERM that came early to c, which by now is notified of others. c must have room for one.
func HandOver(c chan<- os.Signal) {
	signal.Stop(caught)
	select {
	case s := <-caught:
		c <- s
	default:
	}
}

// Drop is for a program that turns out not to wait for signals: from now on SIGTERM ends it, and it reports whether
// one has come.
func Drop() bool {
	signal.Stop(caught)
	return len(caught) > 0
}
