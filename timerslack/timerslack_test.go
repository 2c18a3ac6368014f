package timerslack

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/test/leak"
	"github.com/muster-run/muster/test/thread"
)

func TestMain(m *testing.M) { leak.Main(m) }

// A program that begins in begin has late timers; what it starts, and becomes, has those that it was started with itself.
func TestBegin(t *testing.T) {
	for _, c := range []struct {
		name, flags string
		given       int // to the program, in nanoseconds
		own         int
	}{
		{"begun", "-E github.com/muster-run/muster/timerslack.begin", 70_000, int(Slack)},
		{"later already", "-E github.com/muster-run/muster/timerslack.begin", 5_000_000, 5_000_000},
		{"linked as Go links", "", 70_000, 70_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "late")
			build := exec.Command("go", "build", "-ldflags="+c.flags, "-o", program, "./testdata/late")
			build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make builds
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			var out []byte
			var err error
			thread.Own(func() {
				if err = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(c.given), 0, 0, 0); err == nil {
					out, err = exec.Command(program).CombinedOutput()
				}
			})
			given := strconv.Itoa(c.given)
			if got, want := strings.Fields(string(out)), []string{strconv.Itoa(c.own), given, given}; err != nil || strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("the program's, of one that it starts, and of one that it becomes: %v, %v; want %v", got, err, want)
			}
		})
	}
}
