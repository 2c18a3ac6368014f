package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/dialect"
	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/timerslack"
	"github.com/muster-run/muster/topology"
)

// bypass is the variable that makes every drop-in the launcher for which it stands.
const bypass = "MUSTER_BYPASS"

// dropIn runs a command line that is another launcher's, or returns false if it is none: words[0] is the name of the
// launcher's program, by which a link to muster was called, or which stands behind muster.
func dropIn(words []string) (error, bool) {
	named := words
	words = dialect.Command(words)
	_, launches := dialect.Of(words)
	switch {
	case !launches && !dialect.Knows(words[0]):
		return nil, false
	case !launches || isSet(bypass):
		return execReal(words), true
	case os.Getenv(proc.TagName) != "":
		return beScript(words), true
	case words[0] == "ds": // here it is, whatever else has that name
		named = append([]string{"deepspeed"}, words[1:]...)
	}
	return dispatch(runCommand(), append([]string{"--"}, named...)), true
}

// bypassed is the process that became a real launcher, and which: one that comes here again goes round in circles.
const bypassed = "MUSTER_BYPASSED"

// isSet reports whether a variable says yes.
func isSet(name string) bool {
	yes, err := truth(os.Getenv(name))
	return err == nil && yes == "true"
}

// understood is a command line of muster run in which another launcher's words were replaced by muster's own.
type understood struct {
	args    []string // flags, "--", the script and its arguments
	given   map[string]string
	call    dialect.Call // whose words they were; zero: they are muster's own
	request dialect.Request
	shell   *dialect.In // the launcher in the shell script that is to be run; nil: there is none
}

// understoodVariable has for the agents what the first process understood: an agent that takes over goes on with that, whatever became of
// the files that were read for it.
const understoodVariable = "MUSTER_UNDERSTOOD"

// maxKept bounds it: Linux takes no variable of more than 128 KiB. Of what is longer the files are read again.
const maxKept = 100 << 10

// A kept is what an agent needs of understood.
type kept struct {
	Args    []string
	Given   map[string]string
	Request dialect.Request
}

// keep leaves what another launcher's words mean to the agents that this process starts.
func (u understood) keep() {
	if u.request.Command == nil || pid1.Agent() {
		return
	}
	text, err := json.Marshal(kept{u.args, u.given, u.request})
	if err == nil && len(text) <= maxKept {
		os.Setenv(understoodVariable, string(text))
	}
}

// keptFrom takes what the first process understood, if this is an agent of its.
func (u *understood) keptFrom(text string) bool {
	var k kept
	if text == "" || !pid1.Agent() || json.Unmarshal([]byte(text), &k) != nil || k.Request.Command == nil {
		return false
	}
	u.args, u.given, u.request = k.Args, k.Given, k.Request
	return true
}

// understand replaces another launcher's command line, where that is what is to be run, by what it asks of muster run. args are
// normalised.
func understand(c *cli.Command, args []string, given map[string]string) (understood, error) {
	u := understood{args: args, given: given}
	flags, command := split(args)
	if given["module"] != "" {
		command = append([]string{"python", "-m"}, command...)
	}
	named := command
	command = dialect.Command(command)
	call, ok := dialect.Of(command)
	if ok && named[0] != command[0] {
		call.As = named[0] // as people called it
	}
	if ok && call.Python == "" && others(command[0]) {
		fmt.Fprintf(os.Stderr, "muster: %s is not DeepSpeed's, beside which its deepspeed would be: it is run in each worker; muster ds starts a job in DeepSpeed's words\n", command[0])
		return u, nil
	}
	if !ok {
		if in, calls := dialect.InShell(thisHost(), command); calls && given["debug"] == "" {
			u.shell = &in
		} else if c.Name == "run" && dialect.ReadsInput(command) && given["stdin"] == "" && given["debug"] == "" && !inWorker() {
			return u, wrong("%s would read its commands from standard input, which is empty in workers: name a file", strings.Join(command, " "))
		}
		return u, nil
	}
	if given["module"] != "" {
		call.Python = "" // nobody named one
	}
	request, err := call.Parse(thisHost())
	if err != nil {
		return u, misspoken(call, err)
	}
	if given["module"] != "" { // it was the launcher's
		delete(given, "module")
		flags = slices.DeleteFunc(flags, func(f string) bool { return f == "--module=true" || f == "-m=true" })
	}
	for _, f := range request.Flags {
		if f.Default {
			continue
		}
		if flags, err = agree(c.Flags, flags, given, f); err != nil {
			return u, wrong("%s: %v", call.As, err)
		}
	}
	u.call, u.request = call, request
	u.args = slices.Concat(flags, []string{"--"}, request.Command)
	return u, nil
}

// others reports whether a program with a launcher's name is somebody else's.
func others(program string) bool {
	if !strings.Contains(program, "/") {
		found := launcher.Programs(program, os.Environ())
		if len(found) == 0 || found[0].Muster {
			return false
		}
		program = found[0].Path
	}
	return isThere(program) && !dialect.Theirs(program, isThere)
}

// split parts a normalised command line into flags and what they are followed by.
func split(args []string) (flags, command []string) {
	i := slices.IndexFunc(args, func(a string) bool { return a == "--" || a == "-" || !strings.HasPrefix(a, "-") })
	switch {
	case i < 0:
		return args, nil
	case args[i] == "--":
		return args[:i:i], args[i+1:]
	}
	return args[:i:i], args[i:]
}

// agree adds a flag that the other launcher's words mean to those of muster's own, which must not say otherwise.
func agree(known []cli.Flag, flags []string, given map[string]string, f dialect.Flag) ([]string, error) {
	flag := lookup(known, f.Name)
	if flag == nil { // env and run have them all
		return flags, fmt.Errorf("%s means --%s, which is not here", f.From, f.Name)
	}
	value, err := checked(flag, f.From, f.Value)
	if err != nil {
		return flags, err
	}
	if by := given[f.Name]; by != "" {
		if !slices.Contains(flags, by+"="+value) {
			for _, own := range flags { // the last one counts
				if value, is := strings.CutPrefix(own, given[f.Name]+"="); is {
					by = given[f.Name] + " " + value
				}
			}
			return flags, fmt.Errorf("%s %s and muster's own %s say different things; drop one of them", f.From, f.Value, by)
		}
		return flags, nil
	}
	given[f.Name] = f.From
	return append(flags, "--"+f.Name+"="+value), nil
}

// misspoken is what is wrong with another launcher's command line.
func misspoken(call dialect.Call, err error) error {
	var unknown interface{ Names() []string }
	if errors.As(err, &unknown) {
		said := strings.TrimLeft(err.Error()[strings.LastIndexByte(err.Error(), ' ')+1:], "-")
		if best := nearest(said, unknown.Names()); best != "" {
			return wrong("%s: %v; did you mean --%s?", call.As, err, best)
		}
	}
	return wrong("%s: %v", call.As, err)
}

// dialectHelp says how another launcher's words are used here.
func dialectHelp(w io.Writer, call dialect.Call) {
	fmt.Fprintf(w, "muster %s: %s\n\n  muster %s [flags of %s] script.py [argument...]\n\n", call.Name, call.Doc, call.As, call.Name)
	fmt.Fprintf(w, "Its flags are %s's own. What muster can do beyond is said by variables, MUSTER_ and the name of a flag\n"+
		"of muster run, or by flags of muster run before it: muster run --spares 1 -- %s ...\n"+
		"%s=1 runs the real %s. docs/dialects.md tells where muster differs.\n", call.Name, call.As, bypass, call.Name)
}

// execReal becomes the real program of the name words[0].
func execReal(words []string) error {
	path, args, err := launcher.Real(words, os.Environ())
	if err != nil {
		return err
	}
	this := fmt.Sprintf("%d %s", os.Getpid(), words[0])
	if os.Getenv(bypassed) == this { // a script or a copy of muster, which called us again
		return wrong("%s in PATH comes back to muster; no real %s is there", path, words[0])
	}
	os.Setenv(bypassed, this)
	return fmt.Errorf("%s: %w", path, timerslack.Exec(path, args, os.Environ()))
}

// beScript is another launcher inside a worker that muster started: it would start workers in a worker. It becomes the script
// instead, with what its dialect adds.
func beScript(words []string) error {
	call, _ := dialect.Of(words)
	request, err := call.Parse(thisHost())
	if err != nil {
		return misspoken(call, err)
	}
	if request.Help {
		dialectHelp(os.Stdout, call)
		return nil
	}
	return becomeScript(call.As, request)
}

// inWorker reports whether this process is in one of several workers of a job, who must not start workers in each. A single one may start
// jobs of its own, as a program does that looks for the best parameters, and who bypasses muster's care says that all may.
func inWorker() bool {
	several := !slices.Contains([]string{"", "0", "1"}, os.Getenv("WORLD_SIZE"))
	return os.Getenv(proc.TagName) != "" && several && !pid1.Agent() && !isSet(bypass)
}

// beTask is muster run inside one of several workers: what another launcher is there. The job's other flags are those of who started it.
func beTask(u understood) error {
	request, idle := u.request, []string(nil)
	flags, command := split(u.args)
	request.Flags, request.Command = nil, command
	for _, f := range flags {
		name, value, _ := strings.Cut(strings.TrimLeft(f, "-"), "=")
		name = lookup(runCommand().Flags, name).Names()[0]
		request.Flags = append(request.Flags, dialect.Flag{Name: name, Value: value, From: u.given[name]})
		if !slices.Contains(strings.Fields("nnodes nproc-per-node node-rank standalone module no-python"), name) {
			idle = append(idle, u.given[name])
		}
	}
	if request.Help {
		dialectHelp(os.Stdout, u.call)
		return nil
	}
	if len(idle) > 0 && os.Getenv("LOCAL_RANK") == "0" {
		fmt.Fprintf(os.Stderr, "muster: run in a worker of muster: %s change nothing, for the job runs already\n", strings.Join(idle, ", "))
	}
	return becomeScript("run", request)
}

// becomeScript makes a worker the script that a launcher called in it was given, if it asks for the world that is there.
func becomeScript(as string, request dialect.Request) error {
	if err := launcher.Fits(request, os.Getenv); err != nil {
		err := wrong("%s in a worker of muster: %v", as, err)
		launcher.Refuse(os.Getenv, err)
		return err
	}
	c := launcher.Config{Argv: request.Command, Dialect: request, Host: thisHost(), Root: topology.Root("/"), Environ: os.Environ()}
	for _, f := range request.Flags {
		c.Module = c.Module || f.Name == "module" && f.Value == "true"
		c.NoPython = c.NoPython || f.Name == "no-python" && f.Value == "true"
	}
	argv, environ, err := launcher.Become(c, os.Getenv("LOCAL_RANK"))
	if err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", argv[0], timerslack.Exec(argv[0], argv, environ))
}

// savePID leaves the number of the first process, which whoever started muster knows it by, in a file with that number in its
// name, or another: %d of pattern. One of that name is from a process that is gone.
func savePID(pattern string) (remove func(), err error) {
	if pattern == "" {
		return func() {}, nil
	}
	file := strings.ReplaceAll(pattern, "%d", strconv.Itoa(os.Getppid()))
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("file for the process' number: %w", err)
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, fmt.Errorf("file for the process' number: %w", err)
	}
	_, err = fmt.Fprint(f, os.Getppid())
	return func() { os.Remove(file) }, errors.Join(err, f.Close())
}

// linked reports whether a command line calls muster by the name of another launcher's program.
func linked(args []string) bool {
	return filepath.Base(args[0]) != "muster" && dialect.Knows(args[0])
}

// launches reports whether a command line starts a job: its end is then to be told where the platform looks.
func launches(args []string) bool {
	if !linked(args) {
		if args = args[1:]; len(args) > 0 && args[0] == "run" {
			return true
		}
	}
	_, ok := dialect.Of(dialect.Command(args))
	return ok
}
