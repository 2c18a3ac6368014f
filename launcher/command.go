package launcher

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-run/muster/dialect"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/proc"
)

// command returns what each worker runs: a Python script and a module by the interpreter, anything else as it is.
// What is not there is found out now and not by every worker, an hour later, when all peers have come.
func command(c Config) ([]string, error) {
	if len(c.Argv) == 0 {
		return nil, fail(job.ExitUsage, "for example: muster run train.py --lr 1e-4", "nothing to run")
	}
	if c.Argv[0] == "" {
		return nil, fail(job.ExitUsage, "is a variable of the command line not set?", "nothing to run: the name of the script or program is empty")
	}
	if c.Module && c.NoPython {
		return nil, fail(job.ExitUsage, "drop one of them", "%s is Python, %s is not", c.by("module"), c.by("no-python"))
	}
	if c.NoPython || !c.Module && !c.Dialect.Script && !strings.HasSuffix(c.Argv[0], ".py") {
		return c.Argv, c.executable(c.Argv[0])
	}
	python, err := c.interpreter()
	if err != nil {
		return nil, err
	}
	if c.Module {
		return append([]string{python, "-u", "-m"}, c.Argv...), nil
	}
	path := c.Argv[0]
	if strings.HasPrefix(path, "-") { // Python would take it for an option
		path = "./" + path
	}
	return append([]string{python, "-u", path}, c.Argv[1:]...), script(path)
}

// script refuses a script that cannot be read.
func script(path string) error {
	f, err := os.Open(path)
	switch {
	case err == nil:
		defer f.Close()
		if info, err := f.Stat(); err != nil || !info.IsDir() {
			return nil
		}
		if _, err := os.Stat(filepath.Join(path, "__main__.py")); err != nil { // with one Python runs it
			return fail(job.ExitNotExec, "", "script %s is a directory without __main__.py", path)
		}
		return nil
	case errors.Is(err, fs.ErrNotExist):
		dir, _ := os.Getwd()
		return fail(job.ExitNotFound, "paths are relative to the working directory", "no script %s (in %s)", path, dir)
	default:
		return fail(job.ExitNotExec, "", "script %s: %w", path, errors.Unwrap(err))
	}
}

// interpreter finds Python as torchrun's users expect: PYTHON_EXEC, then that by which another launcher was called, then the virtual environment, then
// that of the launcher's own program, then PATH.
func (c Config) interpreter() (string, error) {
	exe, _, err := c.python()
	return exe, err
}

// python is interpreter, and the launcher's program that was asked for its own; none where something else counts more.
func (c Config) python() (exe string, asked launcherProgram, err error) {
	if exe, ok := c.getenv("PYTHON_EXEC"); ok && exe != "" {
		if err := c.executable(exe); err != nil {
			return "", asked, fail(ExitCode(err), "", "PYTHON_EXEC: %w", err)
		}
		return exe, asked, nil
	}
	if named := c.Dialect.Python; named != "" { // a shell would have said that there is none of a bare name; that is no reason to fail here
		if err := c.executable(named); err == nil || strings.Contains(named, "/") {
			return named, asked, err
		}
	}
	if venv, ok := c.getenv("VIRTUAL_ENV"); ok && venv != "" {
		if exe := filepath.Join(venv, "bin", "python"); c.executable(exe) == nil {
			return exe, asked, nil
		}
	}
	if asked = c.launcherProgram(); asked.python != "" && asked.broken == nil {
		return asked.python, asked, nil
	}
	for _, name := range []string{"python3", "python"} {
		if exe, err := pid1.LookPath(name, "", c.Environ); err == nil {
			return exe, asked, nil
		}
	}
	return "", asked, fail(job.ExitNotFound, "set PYTHON_EXEC", "no Python: neither python3 nor python is in PATH, and there is no virtual environment")
}

// maxHead is as much of a program as is read for its interpreter: no path is longer.
const maxHead = 1 << 13

// A launcherProgram is a launcher's real program.
type launcherProgram struct {
	path   string
	python string // by which it would run, as its first line says; "": that says nothing, or that PATH does
	broken error  // why that cannot run
}

// launcherProgram is the one that was called by its path, or else the first in PATH. Where muster is in its place, that is the next of its name.
func (c Config) launcherProgram() (l launcherProgram) {
	called := c.Dialect.Program
	if called == "" {
		return l
	}
	if strings.Contains(called, "/") && !isMuster(called) {
		l.path = called
	} else if found := Programs(filepath.Base(called), c.Environ); len(found) > 0 {
		if i := slices.IndexFunc(found, func(p Program) bool { return !p.Muster }); i >= 0 {
			l.path = found[i].Path
		}
	}
	f, err := os.Open(l.path)
	if err != nil {
		return l
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, maxHead))
	if l.python = dialect.PythonOf(string(head)); err != nil || l.python == "" {
		return launcherProgram{}
	}
	_, l.broken = pid1.LookPath(l.python, "", c.Environ)
	return l
}

// Interpreter is the Python that runs scripts with this environment.
func Interpreter(environ []string) (string, error) { return Config{Environ: environ}.interpreter() }

// executable reports, in a shell's codes, why name cannot be run with the user's environment, which is the workers'.
func (c Config) executable(name string) error {
	_, err := pid1.LookPath(name, "", c.Environ)
	return refused(hintFor(name), err)
}

// interpreted reports why a program that is there cannot be run, as far as its first line tells.
func (c Config) interpreted(name string) error {
	path, err := pid1.LookPath(name, "", c.Environ)
	if err != nil { // so it was told already
		return nil
	}
	return refused("", pid1.Interpreted(path))
}

// refused adds to the reason why a program cannot be run what to do.
func refused(hint string, err error) error {
	var why *proc.StartError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &why) && why.Code == job.ExitNotFound:
		return fail(why.Code, hint, "%w", err)
	default:
		return fail(job.ExitNotExec, "", "%w", err)
	}
}

// hintFor guesses what somebody meant who named a program that does not exist.
func hintFor(name string) string {
	switch {
	case strings.HasPrefix(name, "-"):
		return "flags of muster stand before the script"
	case strings.Contains(name, "="):
		return fmt.Sprintf("a variable stands before muster (%[1]s muster ...), or behind the program env (muster run -- env %[1]s ...)", name)
	case strings.HasPrefix(name, "/"):
		return ""
	case strings.Contains(name, "/"):
		return "paths are relative to the working directory"
	}
	return "a file of the working directory is ./" + name
}
