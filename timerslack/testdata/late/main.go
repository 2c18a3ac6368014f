// Command late prints the timer slack of a new thread of its own, and has that of a program that it starts and of one that it becomes printed; and what
// is wrong.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/timerslack"
)

func main() {
	own := make(chan int)
	go func() {
		runtime.LockOSThread()
		own <- slack()
		select {} // so that this thread starts none of the programs
	}()
	fmt.Println(<-own)
	file := "/proc/self/timerslack_ns"
	started := exec.Command("cat", file)
	started.Stdout = os.Stdout
	runtime.LockOSThread()
	before := slack()
	err := timerslack.Given(func() error { return stay(started.Start) })
	if after := slack(); after != before {
		fmt.Println("this thread had", before, "before, and has", after)
	}
	runtime.UnlockOSThread()
	if err == nil {
		err = started.Wait()
	}
	if err == nil {
		err = timerslack.Given(func() error { return stay(func() error { return nil }) })
	}
	if err == nil {
		err = timerslack.Exec(started.Path, started.Args, nil)
	}
	fmt.Println(err)
}

// slack is this thread's.
func slack() int {
	d, _ := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	return d
}

// stay calls start after others have had every opportunity to take the thread, and its slack with it.
func stay(start func() error) error {
	done := make(chan struct{})
	defer close(done)
	for range 8 {
		go func() {
			for {
				select {
				case <-done:
					return
				default:
					runtime.Gosched()
				}
			}
		}()
	}
	given := slack()
	for range 1000 {
		runtime.Gosched()
		if slack() != given {
			return errors.New("on another thread")
		}
	}
	return start()
}
