package stage

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
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
	code := m.Run()
	os.RemoveAll(built.dir)
	os.Exit(code)
}

// built is the program, once it is.
var built struct {
	once      sync.Once
	dir, path string
	err       error
}

// ready names, in the environment, what make build has made from what is here, so that not every package has to.
const ready = "TESTS_HAVE_BUILT"

// Build makes the program that is delivered, if no other was named, once for all tests.
func Build(t testing.TB) string {
	t.Helper()
	built.once.Do(func() {
		if built.path = *another; built.path == "" {
			built.err = build()
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

func build() (err error) {
	if built.path = os.Getenv(ready); built.path != "" {
		return depend()
	}
	if built.dir, err = os.MkdirTemp("", "stage-"); err != nil {
		return err
	}
	built.path = filepath.Join(built.dir, "muster")
	if out, err := exec.Command("make", "-C", root, "build", "BIN="+built.path).CombinedOutput(); err != nil {
		return fmt.Errorf("make build: %w: %s", err, out)
	}
	return depend()
}

// root is where the program's source is, for the tests.
const root = "../.."

// sources lists what the program is made of, and where that is.
const sources = `{{if not .Standard}}{{$d := .Dir}}{{$d}}{{range .GoFiles}}
{{$d}}/{{.}}{{end}}{{range .SFiles}}
{{$d}}/{{.}}{{end}}{{range .EmbedFiles}}
{{$d}}/{{.}}{{end}}{{end}}`

// depend looks at all of that, so that go test does not take what it knows of another program for a result of this one.
func depend() error {
	cmd := exec.Command("go", "list", "-deps", "-tags", "full", "-f", sources, "./cmd/muster")
	cmd.Dir = root
	out, err := cmd.Output()
	for file := range strings.FieldsSeq(string(out)) {
		_, gone := os.Stat(file)
		err = errors.Join(err, gone)
	}
	return err
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
