package early

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/muster-run/muster/test/leak"
)

// TestMain makes the test binary a container's first process that is told to stop before main.
func TestMain(m *testing.M) {
	if os.Getpid() != 1 {
		leak.Main(m)
	}
	c := make(chan os.Signal, 1)
	syscall.Kill(1, syscall.SIGTERM)
	s := <-caught // it has come, and did not end us
	caught <- s
	switch os.Getenv("TEST_EARLY") {
	case "hand over":
		HandOver(c)
		if <-c == syscall.SIGTERM {
			os.Exit(42)
		}
	case "drop":
		if Drop() {
			os.Exit(43)
		}
	}
	os.Exit(1)
}

func TestEarly(t *testing.T) {
	for how, want := range map[string]int{"hand over": 42, "drop": 43} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), "TEST_EARLY="+how)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != want {
			t.Errorf("%s: %v, want exit status %d", how, err, want)
		}
	}
}
