package matrix

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A kit is what all cases need.
type kit struct {
	muster string // the program
	launch func(s *stage, flags []string) []string
}

// together is how many cases are played at once: they wait most of the time.
const together = "6"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", together); err != nil {
		panic(err) // of package testing
	}
	os.Exit(m.Run())
}

// TestLosses plays all cases.
func TestLosses(t *testing.T) {
	k := &kit{muster: build(t), launch: (*stage).muster}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := openStage(t, k, python(t, c.torch))
			c.play(s)
			s.judge()
		})
	}
}

// muster is the command line of an agent.
func (s *stage) muster(flags []string) []string {
	line := append([]string{s.kit.muster, "run", "--rdzv-id", "job", "--rdzv-endpoint", "h0:29400"}, flags...)
	return append(line, "--", s.torch, "-u", script(s.t))
}

// build makes the program from what is here.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "muster")
	cmd := exec.Command("go", "build", "-o", path, "../../cmd/muster")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	return path
}

// python is a Python with a PyTorch that test/python knows by this name; "": Debian's.
func python(t *testing.T, which string) string {
	t.Helper()
	if which == "" {
		which = "debian"
	}
	path, err := exec.Command("../python", which).Output()
	if err != nil {
		t.Fatalf("test/python %s: %v", which, err)
	}
	return strings.TrimSpace(string(path))
}

func script(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("testdata/train.py")
	if err != nil {
		t.Fatal(err)
	}
	return path
}
