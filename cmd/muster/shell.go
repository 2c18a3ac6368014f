package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/dialect"
	"github.com/muster-run/muster/heartbeat/page"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/report"
)

// This file runs a shell script that calls a launcher: once, as it is. A launcher in it that is installed, or that its text calls, is muster in two ways: by links in PATH, and,
// for a script that sets PATH anew, by the hook for Python, which makes of a real launcher, however it was called, muster. Without the hook
// functions of bash have launchers' names. A real launcher that runs in spite of all that is ended: it would train apart from other nodes.

// linksVariable names the directory with the links of a shell script's job; the others are what muster in it must know, and is not for its
// workers: what was in BASH_ENV before, the flags of the muster run that runs the script, and the shell that waits for this process.
const (
	linksVariable   = "MUSTER_LINKS"
	bashVariable    = "MUSTER_BASH_ENV"
	flagsVariable   = "MUSTER_SHELL_FLAGS"
	waitingVariable = "MUSTER_SHELL"
)

// What else the directory with the links has: what bash reads before a script, and what muster in the script says of itself: nothing as long as
// none was called, then a line, and what was wrong with how it was called. The file is there from the beginning: who is late makes none anew.
const (
	bashFile   = "bash_env"
	calledFile = "called"
)

// A shell is a script's run.
type shell struct {
	dialect.In
	name    string // the script's, for people
	links   string // directory
	verdict string // file for the verdict; "": none is wanted
	began   time.Time
}

// runShell runs a shell script that calls a launcher.
func runShell(args []string, u understood) error {
	s := shell{In: *u.shell, name: cmp.Or(u.shell.Script, "the shell's command line"), began: time.Now()}
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
	if err := s.prepare(flags); err != nil {
		return err
	}
	defer os.RemoveAll(s.links)
	fmt.Fprintf(os.Stderr, "muster: %s calls %s: there muster takes its place\n", s.name, s.Call)
	w := watchFor(s)
	code := pid1.Init(command, pid1.InitOptions{Group: true, Subreaper: os.Getpid() != 1, Linger: time.Hour}) // the job in it knows its own limits
	return s.ended(code, w.close(), command)
}

// envOfShell shows what a worker would get of the job that a shell script starts, as far as its text says that.
func envOfShell(args []string, u understood) error {
	where, words := cmp.Or(u.shell.Script, "the shell's command line"), u.shell.Words
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

// linkDir makes a directory with links to this program: one for each of some launchers' programs, and for itself.
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
			return "", fmt.Errorf("links for launchers: %w", err)
		}
	}
	return dir, nil
}

// tellShell is for muster that a shell script calls: it tells the script's first process, if there is one, that it was called, and what was
// wrong with that; "": nothing.
func tellShell(wrong string) {
	dir := os.Getenv(linksVariable)
	if dir == "" {
		return
	}
	f, err := os.OpenFile(filepath.Join(dir, calledFile), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return // the script has ended
	}
	defer f.Close()
	_, _ = fmt.Fprintln(f, wrong)
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

// ended is how the job ended, if there was none but the script: real is a launcher that was found running in it.
func (s shell) ended(code int, real string, command []string) error {
	called, _ := os.ReadFile(filepath.Join(s.links, calledFile))
	wrongly := strings.TrimSpace(string(called))
	switch {
	case real != "":
		return s.leave(wrong("%s ran %s, which is not muster, and would train apart from the job's other nodes: it was stopped; does the script set PATH and PYTHONPATH anew? "+
			"Add to them, or write muster before the launcher's name there; %s=1 there allows it", s.name, real, bypass))
	case wrongly != "" && code != job.ExitOK:
		_ = s.leave(&launcher.Error{Code: code, Err: errors.New(wrongly)}) // it was said already
		return status(code)
	case len(called) > 0:
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
func (s shell) leave(why error) error {
	v := launcher.VerdictOf(&launcher.Error{Code: exitCode(why), Err: why})
	e := report.Ending{Verdict: v, Host: thisHost().Hostname, Node: -1, Began: s.began, Ended: time.Now(), Version: version()}
	if s.verdict != "" {
		if err := e.Write(s.verdict); err != nil {
			fmt.Fprintln(os.Stderr, "muster:", err)
		}
	}
	return why
}

// A shellWatch looks whether a script runs a real launcher, until it is closed.
type shellWatch struct {
	s     shell
	first map[proc.Process]time.Time // when one was seen
	found *proc.Process
	as    string
	stop  chan struct{}
	done  chan struct{}
}

func watchFor(s shell) *shellWatch {
	w := &shellWatch{s: s, first: map[proc.Process]time.Time{}, stop: make(chan struct{}), done: make(chan struct{})}
	go w.run()
	return w
}

// close ends the watch, and returns which real launcher it found; "": none. What it reads of a process may wait for that in the kernel.
func (w *shellWatch) close() string {
	close(w.stop)
	select {
	case <-w.done:
		return w.as
	case <-time.After(5 * time.Second):
		return ""
	}
}

func (w *shellWatch) run() {
	defer close(w.done)
	each := time.NewTicker(time.Second)
	defer each.Stop()
	for {
		select {
		case <-w.stop:
			return
		case now := <-each.C:
			w.look(now)
		}
	}
}

// How long a process with a launcher's words may take to become muster: the hook of Python does so, once Python has started.
const (
	withoutHook = 2 * time.Second
	withHook    = 20 * time.Second
)

// look looks once, and tells everybody to stop if there is a real launcher.
func (w *shellWatch) look(now time.Time) {
	if w.found != nil {
		return
	}
	all, err := proc.Root("/proc").All()
	if err != nil {
		return
	}
	seen := map[proc.Process]time.Time{}
	for _, p := range proc.Below(all, os.Getpid()) {
		as, ok := realLauncher(p, all)
		if !ok {
			continue
		}
		key := proc.Process{PID: p.PID, Start: p.Start}
		seen[key] = now
		if at, before := w.first[key]; before {
			seen[key] = at
		}
		patience := withoutHook
		if strings.Contains(proc.Root("/proc").Getenv(p.PID, "PYTHONPATH"), w.s.links+"/") {
			patience = withHook
		}
		if now.Sub(seen[key]) >= patience {
			w.found, w.as = &p, fmt.Sprintf("%s (pid %d)", as, p.PID)
			fmt.Fprintf(os.Stderr, "muster: %s runs %s, which is not muster: stopping it\n", w.s.name, w.as)
			_ = syscall.Kill(p.PID, syscall.SIGTERM)
			_ = syscall.Kill(os.Getpid(), syscall.SIGTERM) // which goes on to the script
			return
		}
	}
	w.first = seen
}

// realLauncher reports which launcher a process is that is not muster, nor below another muster, who cares for what is there.
func realLauncher(p proc.Process, all []proc.Process) (as string, ok bool) {
	argv := argvOf(p.PID)
	call, ok := dialect.Of(argv)
	if !ok || isMuster(p.PID) || !dialect.Theirs(fileOf(p.PID, argv, call), isThere) {
		return "", false
	}
	if yes, _ := truth(proc.Root("/proc").Getenv(p.PID, bypass)); yes == "true" {
		return "", false
	}
	for parent := p.Parent; parent != os.Getpid(); {
		i := slices.IndexFunc(all, func(o proc.Process) bool { return o.PID == parent })
		if i < 0 || isMuster(parent) {
			return "", false
		}
		parent = all[i].Parent
	}
	return cmp.Or(call.Python, argv[0]) + " " + call.As, true
}

// fileOf is the file of the launcher that a process is, as far as it is one by that file's name.
func fileOf(pid int, argv []string, call dialect.Call) string {
	if call.Python == "" {
		file, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		return cmp.Or(file, argv[0])
	}
	i := slices.IndexFunc(argv[1:], func(arg string) bool { return filepath.Base(arg) == call.As })
	if i < 0 { // it is a module
		return call.As
	}
	dir, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if file := argv[1+i]; !filepath.IsAbs(file) {
		return filepath.Join(dir, file)
	}
	return argv[1+i]
}

// isMuster reports whether a process runs this program, or another one of its name.
func isMuster(pid int) bool {
	exe := fmt.Sprintf("/proc/%d/exe", pid)
	path, _ := os.Readlink(exe)
	self, err1 := os.Stat("/proc/self/exe")
	its, err2 := os.Stat(exe)
	return strings.HasPrefix(filepath.Base(path), "muster") || errors.Join(err1, err2) == nil && os.SameFile(self, its)
}

// argvOf is a process' command line; nil where it cannot be read, or the process has none.
func argvOf(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}
