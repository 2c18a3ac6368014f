package evidence

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
)

// Every code is explained in a line, and those that people meet as they should be.
func TestExitCode(t *testing.T) {
	for code := range 256 {
		if got := ExitCode(code); len(got) < 20 || strings.Contains(got, "\n") || strings.Contains(got, ": ;") || strings.HasSuffix(got, "; ") {
			t.Errorf("%d: %q", code, got)
		}
	}
	for code, want := range map[int]string{
		0: "all workers", 1: "exception", 2: "argparse", 3: "chosen it itself", 66: "peers never came", 67: "do not fit", 68: "did not answer",
		69: "has the port", 70: "fault of muster", 71: "ulimit", 115: "SIGINT", 117: "SIGILL", 119: "SIGABRT", 120: "/dev/shm", 122: "SIGSEGV",
		126: "cannot be executed", 127: "not there", 130: "Ctrl-C", 134: "SIGABRT", 135: "SIGBUS", 136: "SIGFPE", 137: "memory", 138: "infrastructure",
		139: "muster itself would end with 122", 143: "SIGTERM", 159: "seccomp", 163: "signal 35", 200: "makes 1 of it", 255: "ssh", 256: "no exit code", -1: "no exit code",
	} {
		if got := ExitCode(code); !strings.Contains(got, want) {
			t.Errorf("%d: %q, want %q", code, got, want)
		}
	}
}

// docs/exit-codes.md and the table say the same codes.
func TestExitCodesAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/exit-codes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range regexp.MustCompile(`(?m)^\| ([0-9, ]+) \|`).FindAllStringSubmatch(string(doc), -1) {
		for _, s := range strings.Split(row[1], ", ") {
			code, err := strconv.Atoi(s)
			if _, ok := codes[code]; err != nil || !ok {
				t.Errorf("%q of docs/exit-codes.md is not in the table", s)
			}
		}
	}
	for code := range codes {
		if code > 2 && code < 114 && !strings.Contains(string(doc), fmt.Sprintf("| %d |", code)) {
			t.Errorf("%d is not in docs/exit-codes.md", code)
		}
	}
	for n := unix.SIGHUP; n <= unix.SIGSYS; n++ {
		code := job.Exit{Signal: int(n)}.Status()
		if code < 124 && !strings.Contains(ExitCode(code), job.SignalName(n)) {
			t.Errorf("%d: %q, want %s", code, ExitCode(code), job.SignalName(n))
		}
	}
}
