package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/launcher/pid1"
)

// standsFor tells for which init muster stands in when it is called by that one's name: by a link that took its place.
// The version is the one whose flags and habits these are.
func standsFor(arg0 string) (name, version string) {
	switch filepath.Base(arg0) {
	case "tini", "tini-static", "docker-init":
		return "tini", "tini version 0.19.0"
	case "dumb-init":
		return "dumb-init", "dumb-init v1.2.5"
	}
	return "", ""
}

// initFlags are what tini and dumb-init can be told, under the same letters.
type initFlags struct {
	as, version string // of standsFor
	opt         pid1.InitOptions
	rewrite     rewrites
	session     bool
	single      bool
	show        bool // the version
	licence     bool
	look        bool            // observe
	watch       launcher.Config // what is to be seen then
}

// initCommand is `muster init`, or, by the name in arg0, a program that it stands for.
func initCommand(arg0 string) *cli.Command {
	f := &initFlags{rewrite: rewrites{}}
	f.as, f.version = standsFor(arg0)
	return &cli.Command{
		Name: "init", Usage: "only be a container's first process, as tini and dumb-init are", ArgsUsage: "[flags] -- command [argument...]",
		Description: "Starts the command, passes signals on to it, reaps orphans, and exits as the command did (128+n for signal n).\n\n" +
			"  muster init -g -- /usr/sbin/sshd -D\n\n" +
			"With --observe it looks on while torchrun, or another launcher, trains, and names hangs: docs/observe.md.\n\n" +
			"  muster init --observe -- torchrun --nnodes 2 --rdzv-endpoint host0:29400 train.py\n\n" +
			"Called tini, docker-init or dumb-init, by a link, it is that program: docs/pid1.md.",
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "group", Aliases: []string{"g"}, Destination: &f.opt.Group, Usage: "signals go to the command's process group"},
			&cli.BoolFlag{Name: "subreaper", Aliases: []string{"s"}, Destination: &f.opt.Subreaper, Usage: "adopt orphans although this is not PID 1"},
			&cli.GenericFlag{Name: "parent-death", Aliases: []string{"p"}, Value: signalFlag{&f.opt.ParentDeath}, Usage: "`SIG` to send on when the parent dies"},
			&cli.BoolFlag{Name: "warn", Aliases: []string{"w"}, Destination: &f.opt.Warn, Usage: "say so when an orphan is reaped"},
			&cli.GenericFlag{Name: "zero", Aliases: []string{"e"}, Value: codes{&f.opt.Zero}, Usage: "`CODE,...` exit codes that become 0"},
			&cli.GenericFlag{Name: "rewrite", Aliases: []string{"r"}, Value: f.rewrite, Usage: "`SIG:SIG,...` pass on another signal; 0 for none"},
			&cli.BoolFlag{Name: "session", Destination: &f.session, Usage: "a session of its own for the command, as dumb-init has it"},
			&cli.BoolFlag{Name: "single-child", Aliases: []string{"c"}, Destination: &f.single, Usage: "init's own process group, signals to the command alone, as dumb-init -c"},
			&cli.GenericFlag{Name: "verbose", Aliases: []string{"v"}, Value: level{&f.opt.Verbose}, Usage: "say what is started and how it ends; -vv: each signal too"},
			&cli.BoolFlag{Name: "version", Aliases: []string{"V"}, Destination: &f.show, Usage: "print the version"},
			&cli.BoolFlag{Name: "license", Aliases: []string{"l"}, Destination: &f.licence, Usage: "print the licence"},
		}, observeFlags(&f.look, &f.watch)...),
		Action: f.run,
	}
}

func (f *initFlags) run(x *cli.Context) error {
	switch {
	case f.show:
		fmt.Println(strings.TrimSpace(f.version + " (muster " + version() + ")"))
		return nil
	case f.licence:
		fmt.Println("muster is under the Apache License, Version 2.0: https://www.apache.org/licenses/LICENSE-2.0")
		return nil
	case !x.Args().Present():
		return wrong("init: nothing to run; for example: muster init -- command")
	}
	check := f.alone
	if f.look {
		check = f.passive
	}
	if err := check(x); err != nil {
		return err
	}
	if news, looksOn := pid1.Onlooker(); looksOn {
		return f.observe(x, news)
	}
	f.opt.Rewrite = f.rewrite
	f.heed(os.LookupEnv)
	if f.look {
		defer f.observed(x)()
	}
	if code := pid1.Init(x.Args().Slice(), f.opt); code != job.ExitOK {
		return exit(code)
	}
	return nil
}

// heed takes the variables by which tini and dumb-init are told the same, with their meaning, and settles how the command is set apart.
func (f *initFlags) heed(lookup func(string) (string, bool)) {
	if f.as != "dumb-init" {
		f.heedTini(lookup)
	}
	if f.as != "tini" {
		if value, _ := lookup("DUMB_INIT_DEBUG"); value == "1" {
			f.opt.Verbose = 2
		}
		if value, _ := lookup("DUMB_INIT_SETSID"); value == "0" {
			f.single = true
		}
	}
	switch {
	case f.single:
		f.opt.Apart = pid1.SameGroup
	case f.session || f.as == "dumb-init":
		f.opt.Apart = pid1.OwnSession
	}
	if f.as == "dumb-init" {
		f.opt.NoExec = 2
		if f.opt.Verbose--; f.opt.Verbose >= 0 { // without -v it does not mind not being PID 1
			f.opt.Verbose = 2 // its one level tells all
		}
	}
}

// heedTini: two variables count when they are there, though empty; the third is tini's level, where 1 is what -v adds to, and no number
// is 0.
func (f *initFlags) heedTini(lookup func(string) (string, bool)) {
	if _, set := lookup("TINI_SUBREAPER"); set {
		f.opt.Subreaper = true
	}
	if _, set := lookup("TINI_KILL_PROCESS_GROUP"); set {
		f.opt.Group = true
	}
	if value, set := lookup("TINI_VERBOSITY"); set {
		n, _ := strconv.Atoi(value)
		f.opt.Verbose = n - 1
	}
}

// letters takes apart what getopt(3) lets people join: -vvv, -gw, -e143. A repeated -v becomes a level.
func letters(flags []cli.Flag, args []string) (out []string) {
	loud := 0
	for len(args) > 0 {
		arg := args[0]
		if arg == "--" || arg == "-" || !strings.HasPrefix(arg, "-") {
			break
		}
		args = args[1:]
		if strings.HasPrefix(arg, "--") {
			out = append(out, arg)
			if f := lookup(flags, strings.TrimPrefix(arg, "--")); f != nil && !isBool(f) && len(args) > 0 {
				out, args = append(out, args[0]), args[1:]
			}
			continue
		}
		for rest := arg[1:]; rest != ""; {
			letter := rest[:1]
			rest = rest[1:]
			f := lookup(flags, letter)
			switch {
			case letter == "v":
				loud++
				out = append(out, fmt.Sprintf("-v=%d", loud))
			case f == nil || isBool(f):
				out = append(out, "-"+letter)
			case rest != "":
				out, rest = append(out, "-"+letter, strings.TrimPrefix(rest, "=")), ""
			default:
				out = append(out, "-"+letter)
				if len(args) > 0 {
					out, args = append(out, args[0]), args[1:]
				}
			}
		}
	}
	return append(out, args...)
}

// signalNamed takes TERM, SIGTERM, 15; 0 is none.
func signalNamed(text string) (syscall.Signal, error) {
	n, err := strconv.Atoi(text)
	switch {
	case err == nil && (n == 32 || n == 33):
		return 0, fmt.Errorf("signal %d is the C library's own", n)
	case err == nil && n >= 0 && n <= 64:
		return syscall.Signal(n), nil
	}
	name := "SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG")
	if s := unix.SignalNum(name); s != 0 {
		return s, nil
	}
	return 0, fmt.Errorf("%q is no signal; give a name such as TERM, or a number", text)
}

// signalFlag is a signal as a flag.
type signalFlag struct{ s *syscall.Signal }

func (v signalFlag) Set(text string) error {
	s, err := signalNamed(text)
	if err == nil {
		*v.s = s
	}
	return err
}

func (v signalFlag) String() string { return "" }

// codes is a flag for exit codes, which may be given more than once.
type codes struct{ all *[]int }

func (v codes) Set(text string) error {
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 0 || n > 255 {
			return fmt.Errorf("%q is no exit code from 0 to 255", word)
		}
		*v.all = append(*v.all, n)
	}
	return nil
}

func (v codes) String() string { return "" }

// rewrites is a flag for pairs of signals, which may be given more than once.
type rewrites map[syscall.Signal]syscall.Signal

func (v rewrites) Set(text string) error {
	for word := range strings.SplitSeq(text, ",") {
		from, to, ok := strings.Cut(word, ":")
		if !ok || from == "" || to == "" {
			return fmt.Errorf("%q: give FROM:TO, such as TERM:QUIT or 15:3", word)
		}
		a, err := signalNamed(from)
		if err != nil {
			return err
		}
		b, err := signalNamed(to)
		if err != nil {
			return err
		}
		if a == 0 {
			return fmt.Errorf("%q: there is no signal 0", word)
		}
		v[a] = b
	}
	return nil
}

func (v rewrites) String() string { return "" }

// level is a flag that may stand alone or have a number.
type level struct{ n *int }

func (v level) Set(text string) error {
	if yes, err := truth(text); err == nil && yes == "true" {
		*v.n = max(*v.n, 1)
		return nil
	}
	return number{v.n, 0, 9}.Set(text)
}

func (v level) String() string { return "" }

// IsBoolFlag tells the flag package that -v may stand alone.
func (v level) IsBoolFlag() bool { return true }
