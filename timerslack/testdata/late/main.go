// Command late prints the timer slack of a new thread of its own, and has that of a program that it starts and of one that it becomes printed.
package main

import (
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
		slack, _ := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
		own <- slack
		select {} // so that this thread starts none of the programs
	}()
	fmt.Println(<-own)
	file := "/proc/self/timerslack_ns"
	started := exec.Command("cat", file)
	started.Stdout = os.Stdout
	err := timerslack.Given(started.Start)
	if err == nil {
		err = started.Wait()
	}
	if err == nil {
		err = timerslack.Exec(started.Path, started.Args, nil)
	}
	fmt.Println(err)
}
