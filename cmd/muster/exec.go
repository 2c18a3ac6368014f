package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/control"
	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/timerslack"
)

func execCommand() *cli.Command {
	a := agent{own: true}
	rank := -1
	flag := &cli.GenericFlag{Name: "rank", Value: number{&rank, 0, 1 << 24}, Usage: "`N` of a worker on this node; else its first"}
	return &cli.Command{
		Name: "exec", Usage: "run a command, or a shell, in a worker's environment", ArgsUsage: "[--rank N] [flags] [-- command [argument...]]",
		Description: "In the worker's directory and with its variables, but no part of the job: it is not stopped with it.\n\n" +
			"  muster exec --rank 3 -- python -c 'import torch; print(torch.cuda.device_count())'",
		Flags: append([]cli.Flag{flag}, a.flags()...),
		Action: func(x *cli.Context) error {
			ask := control.Request{Do: "inside"}
			if rank >= 0 {
				ask.Rank = &rank
			}
			var in launcher.Inside
			if err := a.ask(askTime, ask, &in); err != nil {
				return err
			}
			return become(x.Args().Slice(), in)
		},
	}
}

// become makes this process the command, as the worker would run it; only the terminal is ours.
func become(argv []string, in launcher.Inside) error {
	if len(argv) == 0 {
		argv = []string{cmp.Or(os.Getenv("SHELL"), "sh")}
	}
	var env []string
	for _, kv := range in.Env {
		if !strings.HasPrefix(string(kv), "TERM=") {
			env = append(env, string(kv))
		}
	}
	if term, ok := os.LookupEnv("TERM"); ok {
		env = append(env, "TERM="+term)
	}
	path, err := pid1.LookPath(argv[0], string(in.Dir), env)
	var why *proc.StartError
	if errors.As(err, &why) {
		return &launcher.Error{Code: why.Code, Err: err}
	}
	if err == nil {
		err = os.Chdir(string(in.Dir))
	}
	if err == nil {
		err = timerslack.Exec(path, argv, env)
	}
	return fmt.Errorf("start %s: %w", argv[0], err)
}

// debugged is --debug: the word alone, or with a command line for a shell.
type debugged struct{ command *string }

func (v *debugged) Set(text string) error {
	switch yes, err := truth(text); {
	case text == "":
		return errors.New("the command is empty")
	case err != nil:
		*v.command = text
	case yes == "true":
		*v.command = "exec sleep infinity"
	default:
		*v.command = ""
	}
	return nil
}

func (v *debugged) String() string { return "" }

// IsBoolFlag tells the flag package that --debug may stand alone.
func (v *debugged) IsBoolFlag() bool { return true }
