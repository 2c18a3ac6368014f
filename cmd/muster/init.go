package main

import (
	"strconv"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher/pid1"
)

func initCommand() *cli.Command {
	return &cli.Command{
		Name: "init", Usage: "only be a container's first process, as tini and dumb-init are", ArgsUsage: "[flags] -- command [argument...]",
		Description: "Starts the command, passes signals on to it, reaps orphans, and exits as the command did (128+n for signal n).\n\n" +
			"  muster init -g -- /usr/sbin/sshd -D",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "group", Aliases: []string{"g"}, Usage: "signals go to the command's process group"},
			&cli.BoolFlag{Name: "subreaper", Aliases: []string{"s"}, Usage: "adopt orphans although this is not PID 1"},
			&cli.StringFlag{Name: "parent-death", Aliases: []string{"p"}, Usage: "`SIG` to send on when the parent dies"},
			&cli.BoolFlag{Name: "warn", Aliases: []string{"w"}, Usage: "say so when an orphan is reaped"},
			&cli.StringFlag{Name: "zero", Aliases: []string{"e"}, Usage: "`CODE,...` exit codes that become 0"},
			&cli.StringFlag{Name: "rewrite", Aliases: []string{"r"}, Usage: "`SIG:SIG,...` pass on another signal; 0 for none"},
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "say what is started and how it ends"},
		},
		Action: runInit,
	}
}

func runInit(x *cli.Context) error {
	if !x.Args().Present() {
		return wrong("init: nothing to run; for example: muster init -- command")
	}
	opt := pid1.InitOptions{Group: x.Bool("group"), Subreaper: x.Bool("subreaper"), Warn: x.Bool("warn")}
	if x.Bool("verbose") {
		opt.Verbose = 1
	}
	var err error
	if opt.ParentDeath, err = signalNamed(x.String("parent-death")); err != nil {
		return err
	}
	if opt.Zero, err = codes(x.String("zero")); err != nil {
		return err
	}
	if opt.Rewrite, err = rewrites(x.String("rewrite")); err != nil {
		return err
	}
	code := pid1.Init(x.Args().Slice(), opt)
	if code == job.ExitOK {
		return nil
	}
	return exit(code)
}

// signalNamed takes TERM, SIGTERM, 15; "" and 0 are none.
func signalNamed(text string) (syscall.Signal, error) {
	if text == "" {
		return 0, nil
	}
	if n, err := strconv.Atoi(text); err == nil && n >= 0 && n <= 64 {
		return syscall.Signal(n), nil
	}
	name := "SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG")
	if s := unix.SignalNum(name); s != 0 {
		return s, nil
	}
	return 0, wrong("%q is no signal; give a name such as TERM, or a number", text)
}

func codes(text string) (out []int, err error) {
	for _, word := range words(text) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 0 || n > 255 {
			return nil, wrong("init: %q is no exit code from 0 to 255", word)
		}
		out = append(out, n)
	}
	return out, nil
}

func rewrites(text string) (map[syscall.Signal]syscall.Signal, error) {
	out := map[syscall.Signal]syscall.Signal{}
	for _, word := range words(text) {
		from, to, ok := strings.Cut(word, ":")
		if !ok || from == "" || to == "" {
			return nil, wrong("init: --rewrite %s: give FROM:TO, such as TERM:QUIT", word)
		}
		a, err := signalNamed(from)
		if err != nil {
			return nil, err
		}
		b, err := signalNamed(to)
		if err != nil {
			return nil, err
		}
		if a == 0 {
			return nil, wrong("init: --rewrite %s: there is no signal 0", word)
		}
		out[a] = b
	}
	return out, nil
}

func words(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}
