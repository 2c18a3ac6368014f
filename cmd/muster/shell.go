package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/dialect"
	"github.com/muster-run/muster/heartbeat/page"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/report"
)

// This file runs a shell script that calls a launcher: once, as it is. A launcher in it that is installed, or that its text calls, is muster in two ways: by links in PATH, and,
// for a script that sets PATH anew, by the hook for Python, which makes of a real launcher, however it was called, muster. Without the hook
// functions of bash have launchers' names. A real launcher that runs in spite of all that is ended: it would train apart from other nodes.

// linksVariable names the directory with the links of a shell script's job; the others are what muster in it must know, and is not for its
// workers: what was in BASH_ENV before, the flags of the muster run that runs the script, and the shell that waits for this process.
const (
	linksVariable   = "MUSTER_SHELL_LINKS"
	bashVariable    = "MUSTER_BASH_ENV"
	flagsVariable   = "MUSTER_SHELL_FLAGS"
	waitingVariable = "MUSTER_SHELL"
)

// bashFile, in the directory with the links, is what bash reads before a script.
const bashFile = "bash_env"

// A shell is a script's run.
type shell struct {
	dialect.In
	name    string // the script's, for people
	links   string // directory
	verdict string // file for the verdict; "": none is wanted
	began   time.Time

	over   time.Time // when the script had ended
	before called    // what was called until then
	alive  []int     // those of them that ran then
	told   bool      // that the job goes on
}

// runShell runs a shell script that calls a launcher.
func runShell(args []string, u understood) error {
	s := shell{In: *u.shell, name: cmp.Or(u.shell.Script, "the command line"), began: time.Now()}
	if !s.Linked && os.Getenv("MUSTER_HOOK") == "off" {
		return wrong("%s calls %s, which would start workers in each worker; call %s by its bare name there, give that command line to muster run itself, or drop MUSTER_HOOK=off",
			s.name, s.Call, dialect.NameOf(s.Call))
	}
	flags, command := split(args)
	for _, f := range flags {
		if name, value, _ := strings.Cut(f, "="); name == "--verdict" {
			s.verdict = value
		}
	}
	if s.verdict = cmp.Or(s.verdict, os.Getenv(variable("verdict"))); s.verdict != "" {
		s.verdict, _ = filepath.Abs(s.verdict) // this process goes to /
	}
	defer func() { os.RemoveAll(s.links) }()
	if err := s.prepare(flags); err != nil {
		return err
	}
	place := ", and muster is to take the launcher's place in it"
	if filepath.Base(strings.Fields(s.Call)[0]) == "muster" {
		place = ""
	}
	fmt.Fprintf(os.Stderr, "muster: %s calls %s: it is run once%s\n", s.name, s.Call, place)
	w := watchFor(s)
	code := pid1.Init(command, pid1.InitOptions{Group: true, Subreaper: os.Getpid() != 1, Linger: time.Hour, Stay: s.stays}) // the job in it knows its own limits
	return s.ended(code, w.close(), command)
}

// envOfShell shows what a worker would get of the job that a shell script starts, as far as its text says that.
func envOfShell(args []string, u understood) error {
	where, words := cmp.Or(u.shell.Script, "the command line"), u.shell.Words
	if words == nil {
		return wrong("%s calls %s with %s, of which only the shell knows what it is: muster env and that command line, in the words that the shell makes of it, shows what workers get",
			where, u.shell.Call, u.shell.Unknown)
	}
	if filepath.Base(words[0]) == "muster" {
		words = words[1:]
	}
	if words[0] == "run" {
		words = words[1:]
	} else {
		words = append([]string{"--"}, words...)
	}
	flags, _ := split(args)
	kept, err := json.Marshal(flags)
	if err == nil {
		err = os.Setenv(flagsVariable, string(kept))
	}
	if err != nil {
		return err
	}
	fmt.Printf("# note: as %s calls %s; variables that are set there are not seen\n", where, u.shell.Call)
	return dispatch(envCommand(), words)
}

// prepare makes muster of launchers' names.
func (s *shell) prepare(flags []string) (err error) {
	names := launchersFor(s.Names)
	if s.links, err = linkDir(names); err != nil {
		return err
	}
	kept, err := json.Marshal(flags)
	if err == nil {
		err = os.WriteFile(filepath.Join(s.links, calledFile), nil, 0o600)
	}
	if err != nil {
		return err
	}
	set := map[string]string{"PATH": ahead(s.links, "PATH"), linksVariable: s.links, flagsVariable: string(kept)}
	if os.Getenv("MUSTER_HOOK") != "off" {
		hook, err := page.Unpack(s.links)
		if err != nil {
			return err
		}
		set["PYTHONPATH"] = ahead(hook, "PYTHONPATH")
	} else { // a function hides the link from what looks for a file (command -v)
		set[bashVariable], set["BASH_ENV"] = os.Getenv("BASH_ENV"), filepath.Join(s.links, bashFile)
		if err := os.WriteFile(set["BASH_ENV"], []byte(bashFunctions(s.links, names)), 0o600); err != nil {
			return fmt.Errorf("functions for bash: %w", err)
		}
	}
	for name, value := range set {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

// ahead is the value of a variable that lists directories, with one before the others.
func ahead(dir, name string) string {
	if old := os.Getenv(name); old != "" {
		return dir + string(os.PathListSeparator) + old
	}
	return dir
}

// bashFunctions is what bash reads before a script: functions with launchers' names, and what it would have read without. In a shell within
// the shell, of which a script may have the number ($!), muster looks after its end.
func bashFunctions(links string, names []string) string {
	quoted := "'" + strings.ReplaceAll(links, "'", `'\''`) + "'"
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "%[1]s() {\n\tif [ ! -x %[2]s/%[1]s ]; then command %[1]s \"$@\"\n"+
			"\telif [ \"$BASHPID\" = \"$$\" ]; then PATH=%[2]s:\"${PATH#%[2]s:}\" %[2]s/%[1]s \"$@\"\n"+
			"\telse PATH=%[2]s:\"${PATH#%[2]s:}\" %[3]s=\"$BASHPID\" %[2]s/%[1]s \"$@\"; fi\n}\n", name, quoted, waitingVariable)
	}
	fmt.Fprintf(&b, "if [ -n \"${%[1]s-}\" ]; then\n\teval \"_muster=\\\"$%[1]s\\\"\"\n"+ // bash expands BASH_ENV
		"\tcase $_muster in */*) ;; *) _muster=./$_muster ;; esac\n\t[ ! -r \"$_muster\" ] || . \"$_muster\"\n\tunset _muster\nfi\n", bashVariable)
	return b.String()
}

// launchersFor are the launchers' programs that PATH has, and those that a script calls: what looks whether another one is there finds none.
func launchersFor(called []string) (names []string) {
	for _, name := range dialect.Programs() {
		found := launcher.Programs(name, os.Environ())
		if len(found) > 0 && dialect.Theirs(found[0].Path, isThere) || len(found) == 0 && slices.Contains(called, name) {
			names = append(names, name)
		}
	}
	return names
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// linkDir makes a directory with links to this program: one for each of some launchers' programs, and for itself. One that is not whole is returned, too.
func linkDir(names []string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "muster-links-")
	if err != nil {
		return "", fmt.Errorf("links for launchers: %w", err)
	}
	for _, name := range append(names, "muster") {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			return dir, fmt.Errorf("links for launchers: %w", err)
		}
	}
	return dir, nil
}

// leaveShell takes from the environment of muster that a shell script calls what the script needed.
func leaveShell() {
	dir := os.Getenv(linksVariable)
	if dir == "" {
		return
	}
	if os.Getenv(waitingVariable) == fmt.Sprint(os.Getppid()) {
		_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0)
	}
	signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGQUIT) // a shell lets what it runs with "&" ignore them; launchers take them all the same
	way := slices.DeleteFunc(filepath.SplitList(os.Getenv("PYTHONPATH")), func(d string) bool { return strings.HasPrefix(d, dir+"/") })
	set := map[string]string{"PYTHONPATH": strings.Join(way, string(os.PathListSeparator)), bashVariable: "", linksVariable: "", waitingVariable: ""}
	if os.Getenv("BASH_ENV") == filepath.Join(dir, bashFile) {
		set["BASH_ENV"] = os.Getenv(bashVariable)
	}
	for name, value := range set {
		if value == "" {
			os.Unsetenv(name)
		} else {
			os.Setenv(name, value)
		}
	}
}

// underShell adds the flags of the muster run that runs the script in which this one was called, which must not say otherwise.
func underShell(known []cli.Flag, args []string, given map[string]string) ([]string, error) {
	var outer, add []string
	if text := os.Getenv(flagsVariable); text == "" || json.Unmarshal([]byte(text), &outer) != nil {
		return args, nil
	}
	own, _ := split(args)
	for i, f := range outer {
		by, value, _ := strings.Cut(f, "=")
		flag := lookup(known, strings.TrimLeft(by, "-"))
		if flag == nil || slices.ContainsFunc(outer[i+1:], func(later string) bool { return strings.HasPrefix(later, by+"=") }) {
			continue
		}
		name := flag.Names()[0]
		switch here := given[name]; {
		case here == "":
			given[name], add = by, append(add, f)
		case !slices.Contains(own, here+"="+value):
			return nil, wrong("%s here and %s %s before the script say different things; drop one of them", here, by, value)
		}
	}
	return append(add, args...), nil
}

// ended is how it all ended: as the script did, or, where that ended well, the job that it left running. real is a launcher that was found in it.
func (s *shell) ended(code int, real string, command []string) error {
	called := s.called()
	if code == job.ExitOK {
		code = called.after(s.before, s.alive)
	}
	switch wrongly := called.wrong(); {
	case real != "":
		return s.leave(wrong("%s ran %s, which is not muster, and would train apart from the job's other nodes: it was stopped; does the script set PATH and PYTHONPATH anew? "+
			"Add to them, or write muster before the launcher's name there; %s=1 there allows it", s.name, real, bypass))
	case wrongly != "" && code != job.ExitOK:
		_ = s.leave(&launcher.Error{Code: code, Err: errors.New(wrongly)}) // it was said already
		return status(code)
	case len(called) > 0:
		if last := called.last(); code == job.ExitOK && last != job.ExitOK {
			fmt.Fprintf(os.Stderr, "muster: %s ended well, though the last job in it ended with %d; so this ends with 0 (the shell's words \"set -o pipefail\" and \"wait $!\" hand a job's code on)\n", s.name, last)
		}
		return status(code)
	case code == job.ExitOK:
		return s.leave(wrong("%s has ended, and never called %s by the link to muster: if it trained, it did so alone; does it call something else? "+
			"muster run -- env %s runs it in each worker", s.name, s.Call, strings.Join(command, " ")))
	}
	why := &launcher.Error{Code: code, Err: fmt.Errorf("%s ended with exit code %d before it called %s", s.name, code, s.Call)}
	pid1.LeaveWords(os.Getenv(terminationLog), report.Words(launcher.VerdictOf(why)))
	return s.leave(why)
}

// leave leaves the verdict on a script without a job.
func (s *shell) leave(why error) error {
	leaveVerdict(s.verdict, s.began, why)
	return why
}
