package dialects

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/test/stage"
	"github.com/muster-run/muster/test/thread"
	"github.com/muster-run/muster/timerslack"
)

// What is delivered begins with late timers, the first process and the agent, and gives its workers those that it was started with.
func TestTimerSlack(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("the kernel shows another process's timer slack to root alone")
	}
	const given = 70_000
	muster := stage.Build(t)
	script := `cat /proc/self/timerslack_ns
for p in $PPID $(cat /proc/$PPID/task/*/children); do [ "$p" = $$ ] || cat /proc/$p/timerslack_ns; done`
	var out []byte
	var err error
	thread.Own(func() {
		if err = unix.Prctl(unix.PR_SET_TIMERSLACK, given, 0, 0, 0); err == nil {
			out, err = exec.Command(muster, "run", "--nproc-per-node", "1", "--no-python", "sh", "-c", script).CombinedOutput()
		}
	})
	late := timerslack.Slack.Nanoseconds()
	if want := fmt.Sprintf("[rank 0] %d\n[rank 0] %d\n[rank 0] %[2]d\n", given, late); err != nil || string(out) != want {
		t.Errorf("%v, %s; want the worker's, the first process's and the agent's: %s", err, out, want)
	}
}
