package launcher

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/muster-run/muster/job"
)

// command returns what each worker runs: a Python script and a module by the interpreter, anything else as it is.
// What is not there is found out now and not by every worker, an hour later, when all peers have come.
func command(c Config) ([]string, error) {
	if len(c.Argv) == 0 {
		return nil, fail(job.ExitUsage, "for example: muster run train.py --lr 1e-4", "nothing to run")
	}
	if c.Module && c.NoPython {
		return nil, fail(job.ExitUsage, "drop one of them", "--module is Python, --no-python is not")
	}
	if c.NoPython || !c.Module && !strings.HasSuffix(c.Argv[0], ".py") {
		return c.Argv, executable(c.Argv[0], c.getenv)
	}
	python, err := interpreter(c.getenv)
	if err != nil {
		return nil, err
	}
	if c.Module {
		return append([]string{python, "-u", "-m"}, c.Argv...), nil
	}
	return append([]string{python, "-u"}, c.Argv...), script(c.Argv[0])
}

// script refuses a script that cannot be read.
func script(path string) error {
	f, err := os.Open(path)
	switch {
	case err == nil:
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.IsDir() {
			return fail(job.ExitNotExec, "", "script %s is a directory", path)
		}
		return nil
	case errors.Is(err, fs.ErrNotExist):
		dir, _ := os.Getwd()
		return fail(job.ExitNotFound, "paths are relative to the working directory", "no script %s (in %s)", path, dir)
	default:
		return fail(job.ExitNotExec, "", "script %s: %w", path, errors.Unwrap(err))
	}
}

// interpreter finds Python as torchrun's users expect: PYTHON_EXEC, then the virtual environment, then PATH.
func interpreter(getenv func(string) (string, bool)) (string, error) {
	if exe, ok := getenv("PYTHON_EXEC"); ok && exe != "" {
		return exe, executable(exe, getenv)
	}
	if venv, ok := getenv("VIRTUAL_ENV"); ok && venv != "" {
		if exe := filepath.Join(venv, "bin", "python"); executable(exe, getenv) == nil {
			return exe, nil
		}
	}
	for _, name := range []string{"python3", "python"} {
		if exe, err := lookPath(name, getenv); err == nil {
			return exe, nil
		}
	}
	return "", fail(job.ExitNotFound, "set PYTHON_EXEC", "no Python: neither python3 nor python is in PATH, and there is no virtual environment")
}

// executable reports, in a shell's codes, why name cannot be run.
func executable(name string, getenv func(string) (string, bool)) error {
	_, err := lookPath(name, getenv)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return fail(job.ExitNotFound, hintFor(name), "no program %s", name)
	default:
		return fail(job.ExitNotExec, "", "%s cannot be executed: %w", name, err)
	}
}

// hintFor guesses what somebody meant who named a program that does not exist.
func hintFor(name string) string {
	if strings.HasPrefix(name, "-") {
		return "flags of muster stand before the script"
	}
	if strings.Contains(name, "/") {
		return "paths are relative to the working directory"
	}
	return "it is not in PATH; a file of the working directory is ./" + name
}

// lookPath searches the PATH of the user's environment, which is the workers' own.
func lookPath(name string, getenv func(string) (string, bool)) (string, error) {
	if strings.Contains(name, "/") {
		return name, runnable(name)
	}
	path, _ := getenv("PATH")
	var first error
	for _, dir := range filepath.SplitList(path) {
		if dir == "" {
			dir = "."
		}
		full := filepath.Join(dir, name)
		err := runnable(full)
		if err == nil {
			return full, nil
		}
		if first == nil && !errors.Is(err, fs.ErrNotExist) {
			first = err // as execvp(3): a match that may not be executed is told when there is no other
		}
	}
	if first != nil {
		return "", first
	}
	return "", exec.ErrNotFound
}

// runnable reports why a file cannot be executed.
func runnable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return errors.New("it is a directory")
	case info.Mode()&0o111 == 0:
		return errors.New("it is not marked executable (chmod +x)")
	}
	return nil
}
