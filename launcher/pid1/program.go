package pid1

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/proc"
)

// LookPath finds the file that execvp(3) would run in dir with env, in the form of os.Environ. The error is a
// *proc.StartError with a shell's code: 127 when there is no such file, 126 when there is one that cannot be run.
func LookPath(name, dir string, env []string) (string, error) {
	if dir != "" {
		if info, err := os.Stat(dir); err != nil {
			return "", &proc.StartError{Code: 126, Text: fmt.Sprintf("start %s: its directory: %v", name, err)}
		} else if !info.IsDir() {
			return "", &proc.StartError{Code: 126, Text: fmt.Sprintf("start %s: its directory: %s is not one", name, dir)}
		}
	}
	if strings.Contains(name, "/") {
		path := within(dir, name)
		return path, explain(path, runnable(path))
	}
	search := pathOf(env)
	var found error // something of that name that cannot be run; perhaps a later one can
	for _, elem := range filepath.SplitList(search) {
		path := within(dir, filepath.Join(elem, name)) // an empty element is the directory itself
		err := runnable(path)
		if err == nil {
			return path, nil
		}
		if found == nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			found = explain(path, err)
		}
	}
	if found != nil {
		return "", found
	}
	return "", &proc.StartError{Code: 127, Text: fmt.Sprintf("start %s: no such command in PATH (%s)", name, search)}
}

// pathOf returns the PATH of env, the first one as getenv(3) does, and what execvp uses when there is none.
func pathOf(env []string) string {
	for _, kv := range env {
		if value, ok := strings.CutPrefix(kv, "PATH="); ok {
			return value
		}
	}
	return "/bin:/usr/bin"
}

// within makes path absolute, seen from dir: the directory is changed before the file is run, but we look before.
func within(dir, path string) string {
	if filepath.IsAbs(path) || dir == "" {
		return path
	}
	return filepath.Join(dir, path)
}

// runnable reports why path is no program.
func runnable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return errors.Unwrap(err) // the cause without "stat path"
	}
	if info.IsDir() {
		return syscall.EISDIR
	}
	return unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS)
}

// Interpreted reports why the kernel would not run a script: the interpreter that its first line names is not there, or cannot be run. Of anything
// that is no script, or cannot be read, nothing is known before it is run.
func Interpreted(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	head := make([]byte, 256) // as much as the kernel reads
	n, _ := io.ReadFull(f, head)
	line, isScript := bytes.CutPrefix(head[:n], []byte("#!"))
	if line = bytes.TrimLeft(line, " \t"); !isScript {
		return nil
	}
	end := bytes.IndexAny(line, " \t\n")
	if end <= 0 {
		return nil
	}
	interpreter := string(line[:end])
	if err = runnable(interpreter); errors.Is(err, syscall.ENOENT) {
		return explain(path, err)
	}
	return explain(interpreter, err)
}

// explain turns the error of looking at or running path into words and a shell's code; nil stays nil.
func explain(path string, err error) error {
	code, why := 126, ""
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOENT):
		code, why = 127, missing(path)
	case errors.Is(err, syscall.ENOTDIR):
		code, why = 127, "no such file"
	case errors.Is(err, syscall.EISDIR):
		why = "is a directory"
	case errors.Is(err, syscall.EACCES):
		why = "permission denied; is it executable (chmod +x)?"
	case errors.Is(err, syscall.ENOEXEC):
		why = "not a program for this machine, nor a script with a first line such as #!/bin/sh"
	case errors.Is(err, syscall.E2BIG):
		why = "arguments and environment are too long"
	case errors.Is(err, syscall.EAGAIN):
		code, why = 125, "no room for another process (pids.max of the cgroup, or ulimit -u)"
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		code, why = 125, err.Error()
	default:
		why = err.Error()
	}
	return &proc.StartError{Code: code, Text: fmt.Sprintf("start %s: %s", path, why)}
}

// missing says what ENOENT meant: the file, or the interpreter that it names.
func missing(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "no such file"
	}
	defer f.Close()
	line, _ := bufio.NewReaderSize(f, 4096).ReadSlice('\n') // the kernel reads 256 bytes
	words, ok := bytes.CutPrefix(line, []byte("#!"))
	switch fields := bytes.Fields(words); {
	case bytes.HasPrefix(line, []byte("\x7fELF")):
		return "its dynamic loader is not on this machine (another C library?)"
	case !ok || len(fields) == 0:
		return "no such file"
	case bytes.HasSuffix(line, []byte("\r\n")):
		return fmt.Sprintf("its first line ends with CR LF, so its interpreter would be %q+%q", fields[0], "\r")
	default:
		return fmt.Sprintf("its interpreter %s is not there", fields[0])
	}
}
