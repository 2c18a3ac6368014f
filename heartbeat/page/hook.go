package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// all: for names with an underscore, which a directory alone leaves out.
//
//go:embed all:hook
var embedded embed.FS

// Unpack writes the hook into a directory of its own under dir and returns its path. Its name says what is in it, so that agents
// may share it, and an agent of another version makes one beside it; dir should be writable for their user only.
func Unpack(dir string) (string, error) {
	hook, err := fs.Sub(embedded, "hook")
	if err != nil {
		panic(err) // it was embedded
	}
	path := filepath.Join(dir, "hook-"+digest(hook))
	if same(hook, path) {
		return path, nil
	}
	if err := unpack(hook, dir, path); err != nil && !same(hook, path) { // another agent may have been first
		return "", fmt.Errorf("unpack the hook for Python: %w", err)
	}
	return path, nil
}

// digest is a name for the content of a directory.
func digest(dir fs.FS) string {
	sum := sha256.New()
	each(dir, func(name string, content []byte) error {
		fmt.Fprintf(sum, "%s %d\n%s", name, len(content), content)
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil))[:12]
}

// same reports whether the files of dir are at path, word for word. What Python keeps beside them does not matter.
func same(dir fs.FS, path string) bool {
	return each(dir, func(name string, content []byte) error {
		got, err := os.ReadFile(filepath.Join(path, name))
		if err == nil && string(got) != string(content) {
			err = errors.New("it is different")
		}
		return err
	}) == nil
}

// unpack writes dir's files to path, all at once.
func unpack(dir fs.FS, under, path string) error {
	if err := os.MkdirAll(under, 0o700); err != nil {
		return err
	}
	next, err := os.MkdirTemp(under, "hook-*.new")
	if err != nil {
		return err
	}
	defer os.RemoveAll(next) // nothing, if all went well
	err = each(dir, func(name string, content []byte) error {
		to := filepath.Join(next, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, content, 0o444)
	})
	if err == nil {
		err = os.Rename(next, path)
	}
	return err
}

// each calls do with every file in dir, in order of their names.
func each(dir fs.FS, do func(name string, content []byte) error) error {
	return fs.WalkDir(dir, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(dir, name)
		if err != nil {
			return err
		}
		return do(name, content)
	})
}

// A Var is an environment variable that a worker needs, and why.
type Var struct{ Name, Value, Why string }

// Env is what a worker needs to have its page filled, besides what it is given already: the page's path, and the hook that
// Unpack wrote to dir on its way to PyTorch. With MUSTER_HOOK=off it is the path alone, for the program's own beats.
func Env(dir, path string, given func(string) (string, bool)) []Var {
	return append([]Var{{"MUSTER_PAGE", path, "where the worker says how far it is; read by muster beat and by the hook"}}, loads(dir, given)...)
}

// EnvBelow is what another launcher needs to pass on to its workers, so that each makes its page in the directory pages, as [OfRank] names
// it; nothing with MUSTER_HOOK=off.
func EnvBelow(dir, pages string, given func(string) (string, bool)) []Var {
	vars := loads(dir, given)
	if vars == nil {
		return nil
	}
	return append([]Var{{"MUSTER_PAGES", pages, "where each rank makes the page on which the hook says how far it is"}}, vars...)
}

// OfRank reports of which rank a file of that directory is the page.
func OfRank(name string) (rank int, ok bool) {
	digits, ok := strings.CutPrefix(name, "rank-")
	rank, err := strconv.Atoi(digits)
	return rank, ok && err == nil && rank >= 0 && strconv.Itoa(rank) == digits
}

// loads is what makes Python load the hook.
func loads(dir string, given func(string) (string, bool)) (vars []Var) {
	if off, _ := given("MUSTER_HOOK"); off == "off" {
		return nil
	}
	way := dir
	if theirs, _ := given("PYTHONPATH"); theirs != "" {
		way += string(filepath.ListSeparator) + theirs
	}
	vars = append(vars, Var{"PYTHONPATH", way, "Python loads the hook from there, which tells how far training is; MUSTER_HOOK=off leaves it out"})
	return append(vars, recorder(given)...)
}

// recorder turns PyTorch's flight recorder on where it is off by default: before 2.9 or so. It has two names; the older ones
// know only one of them.
func recorder(given func(string) (string, bool)) (vars []Var) {
	names := []string{"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}
	for _, name := range names {
		if _, set := given(name); set {
			return nil
		}
	}
	for _, name := range names {
		vars = append(vars, Var{name, "2000", "PyTorch's flight recorder counts collectives; newer versions' default"})
	}
	return vars
}

// Catches reports whether a process has a handler for StackSignal, by its /proc/PID/status.
func Catches(status string) bool {
	_, rest, _ := strings.Cut(status, "\nSigCgt:")
	mask, _, _ := strings.Cut(rest, "\n")
	caught, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
	return err == nil && caught>>(StackSignal-1)&1 == 1
}
