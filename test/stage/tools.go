package stage

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var (
	another = flag.String("muster", "", "`FILE` to test; else make builds it from what is here")
	aloud   = flag.Bool("aloud", false, "print what is said on a stage when it is said")
)

// Main runs tests, that many at once: they wait most of the time.
func Main(m *testing.M, together int) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(together)); err != nil {
		panic(err) // of package testing
	}
	os.Exit(m.Run())
}

// Build makes the program that is delivered, if no other was named.
func Build(t testing.TB) string {
	t.Helper()
	if *another != "" {
		return *another
	}
	path := filepath.Join(t.TempDir(), "muster")
	if out, err := exec.Command("make", "-C", "../..", "build", "BIN="+path).CombinedOutput(); err != nil {
		t.Fatalf("make build: %v: %s", err, out)
	}
	return path
}

// Python is the Python that test/python knows by this name.
func Python(t testing.TB, name string) string {
	t.Helper()
	return Printed(t, "../python", name)
}

// Printed is what a program prints that has installed something, which may take its time.
func Printed(t testing.TB, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v", argv, err)
	}
	return strings.TrimSpace(string(out))
}

// File is the path of one of a test's files, for programs that run elsewhere.
func File(t testing.TB, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
