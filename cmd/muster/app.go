package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/dialect"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/launcher/pid1/early"
)

// commands is every command, in the order in which the help shows them.
func commands() []*cli.Command {
	return []*cli.Command{
		runCommand(), discoverCommand(), envCommand(), statusCommand(), ctlCommand(), execCommand(), beatCommand(), healthCommand(), probeCommand(), checkCommand(), doctorCommand(),
		bugreportCommand(), storeCommand(), initCommand(""), installCommand(), replayCommand(), ledgerCommand(), explainCommand(),
		completionCommand(), manCommand(), versionCommand(),
		completeCommand(),                              // for shells
		pmiCommand(), horovodCommand(), peersCommand(), // those that muster starts itself
	}
}

// An exit ends the program with a code and without a word: all was said.
type exit int

func (exit) Error() string { return "" }

// exitCode is the exit status for an error of a command.
func exitCode(err error) int {
	var code exit
	var usage usageError
	switch {
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		return job.ExitUsage
	}
	return launcher.ExitCode(err)
}

// commandLine finds the command that args name, prepares its flags and runs it.
func commandLine(args []string) error {
	if name, _ := standsFor(args[0]); name != "" { // Linux gives at least one
		return dispatch(initCommand(args[0]), args[1:])
	}
	if err, ok := standIn(args); ok {
		return err
	}
	if linked(args) {
		err, _ := dropIn(append([]string{filepath.Base(args[0])}, args[1:]...))
		return err
	}
	if len(args) < 2 || slices.Contains([]string{"help", "--help", "-h"}, args[1]) {
		overview(os.Stdout)
		if len(args) < 2 {
			return exit(job.ExitUsage)
		}
		return nil
	}
	if args[1] == "--version" {
		args = []string{args[0], "version"}
	}
	if job := checkPeers(args[2:]); args[1] == "check" && job != nil {
		args = append(args[:1:1], job...)
	}
	c := find(commands(), args[1])
	if c == nil {
		if err, ok := dropIn(args[1:]); ok {
			return err
		}
		return noCommand(args[1])
	}
	return dispatch(c, args[2:])
}

func find(all []*cli.Command, name string) *cli.Command {
	i := slices.IndexFunc(all, func(c *cli.Command) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return all[i]
}

// noCommand says of a word behind muster that is none of its own how a program of that name takes part in a job.
func noCommand(name string) error {
	_, notThere := pid1.LookPath(name, "", os.Environ())
	switch err := unknownCommand("muster", name, commands()); {
	case strings.Contains(name, "="):
		return wrong("%[1]s is no command; a variable stands before muster (%[1]s muster ...), or behind the program env (muster run -- env %[1]s ...)", name)
	case notThere != nil && strings.Contains(err.Error(), "did you mean"):
		return err
	default:
		return wrong("unknown command %[1]q; muster --help lists them, and what starts a job of another program is: muster run -- %[1]s ...", name)
	}
}

func unknownCommand(of, name string, all []*cli.Command) error {
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	if best := nearest(name, names); best != "" {
		return wrong("unknown command %q; did you mean %s %s?", name, of, best)
	}
	return wrong("unknown command %q; %s --help lists them", name, of)
}

// flagsFirst says of flags before a sub-command where they belong: help instead, with exit status 0, would look to a probe as if all were well.
func flagsFirst(c *cli.Command, args []string) error {
	i := slices.IndexFunc(args, func(word string) bool { return find(c.Subcommands, word) != nil })
	if i < 0 {
		return wrong("%s: no command, and flags follow it; muster %[1]s --help lists them", c.Name)
	}
	first, _, _ := strings.Cut(args[0], "=")
	return wrong("%s: flags follow the command: muster %[1]s %s %s ...", c.Name, args[i], first)
}

// dispatch goes down to the sub-command, prints its help if that is asked for, or runs it.
func dispatch(c *cli.Command, args []string) error {
	if len(c.Subcommands) > 0 {
		if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
			sub := find(c.Subcommands, args[0])
			if sub == nil {
				return unknownCommand("muster "+c.Name, args[0], c.Subcommands)
			}
			sub.Name = c.Name + " " + sub.Name
			return dispatch(sub, args[1:])
		}
		if len(args) > 0 && !slices.Contains([]string{"--help", "-h", "--help-all"}, args[0]) {
			return flagsFirst(c, args)
		}
		group(os.Stdout, c)
		if len(args) == 0 {
			return exit(job.ExitUsage)
		}
		return nil
	}
	flags := slices.Concat(c.Flags, []cli.Flag{&cli.BoolFlag{Name: "help", Aliases: []string{"h"}}, &cli.BoolFlag{Name: "help-all"}})
	if c.Name == "init" {
		args = letters(flags, args)
	}
	if c.Name == "run" {
		caller{os.Getenv(linksVariable)}.hears(word{})
	}
	args, given, err := normalise(flags, args)
	if err != nil {
		return wrong("%s: %v", c.Name, err)
	}
	_, some := given["help"]
	_, all := given["help-all"]
	if some || all {
		help(os.Stdout, c, all)
		return nil
	}
	if c.Name == "run" || c.Name == "env" {
		if args, err = underShell(flags, args, given); err != nil {
			return err
		}
	}
	words := understood{args: args, given: given}
	kept := c.Name == "run" && words.keptFrom(os.Getenv(understoodVariable))
	if !kept && (c.Name == "run" || c.Name == "env") {
		if words, err = understand(c, args, given); err != nil {
			return err
		}
		if c.Name == "run" && inWorker() {
			return beTask(words)
		}
		if c.Name == "run" {
			leaveShell()
		}
		if words.shell != nil && c.Name == "env" {
			return envOfShell(args, words)
		}
		if words.shell != nil {
			return runShell(args, words)
		}
		if words.request.Help {
			dialectHelp(os.Stdout, words.call)
			return nil
		}
		if words.request.Tuning != "" {
			if c.Name == "env" {
				return wrong("%s: %s starts one job after the other; leave it out, to see what one is like", words.call.As, words.request.Tuning)
			}
			return tune(words)
		}
		if c.Name == "run" && mustTell(words.request) {
			return tell(args, words)
		}
		if words.request.Idle != "" {
			fmt.Fprintln(os.Stderr, "muster: "+words.request.Idle)
			return nil
		}
		if c.Name == "run" {
			words.keep()
		}
	}
	set, err := fromEnv(c.Flags, words.given)
	if err != nil {
		return wrong("%s: %v", c.Name, err)
	}
	if c.Name != "run" && c.Name != "init" && early.Drop() { // nobody else reads what came before main
		return exit(job.ExitTERM)
	}
	return execute(c, append(set, words.args...), words)
}

// execute lets the library set the flags that normalise prepared, and runs the command. The library's App has but what a command asks it for: to run it, as it
// prints help by templates, would make the linker keep every method that any type has, a tenth of the program. Flags that nobody gave cost time as well.
func execute(c *cli.Command, args []string, words understood) error {
	set := flag.NewFlagSet(c.Name, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	for _, f := range c.Flags {
		if words.given[f.Names()[0]] != "" {
			if err := f.Apply(set); err != nil {
				return wrong("%s: %v", c.Name, err)
			}
		}
	}
	if err := set.Parse(args); err != nil {
		return wrong("%s: %v", c.Name, err)
	}
	app := &cli.App{Metadata: map[string]any{"given": words.given, "flags": c.Flags, "dialect": words.request}}
	return c.Action(cli.NewContext(app, set, nil))
}

// givenBy is who set each flag of a command: a flag's own words, or a variable.
func givenBy(x *cli.Context) map[string]string {
	return x.App.Metadata["given"].(map[string]string)
}

// asked is what another launcher's words ask for beyond flags.
func asked(x *cli.Context) dialect.Request {
	return x.App.Metadata["dialect"].(dialect.Request)
}

// allFlags are those that the command has.
func allFlags(x *cli.Context) []cli.Flag {
	return x.App.Metadata["flags"].([]cli.Flag)
}

// overview is `muster --help`.
func overview(w io.Writer) {
	fmt.Fprint(w, "muster starts distributed training: a container's entrypoint, and a replacement for torchrun\n\n"+
		"  muster run --nnodes 2 --rdzv-endpoint host0:29400 train.py --lr 1e-4\n\n")
	list(w, commands())
	fmt.Fprint(w, "\nOther launchers' command lines, also by links of their names:\n\n")
	for _, d := range dialect.All() {
		fmt.Fprintf(w, "  %-12s %s\n", d.Name, d.Doc)
	}
	fmt.Fprint(w, "\nIn the place of ssh's programs, also by links of their names (docs/no-ssh.md):\n\n")
	for _, s := range stands() {
		if s.doc != "" {
			fmt.Fprintf(w, "  %-12s %s\n", s.name, s.doc)
		}
	}
	fmt.Fprint(w, "\nmuster COMMAND --help says more about each.\n")
}

// group is the help of a command that has commands of its own.
func group(w io.Writer, c *cli.Command) {
	fmt.Fprintf(w, "muster %s: %s\n\n", c.Name, c.Usage)
	list(w, c.Subcommands)
	if c.Description != "" {
		fmt.Fprintf(w, "\n%s\n", c.Description)
	}
}

func list(w io.Writer, all []*cli.Command) {
	for _, c := range all {
		if !c.Hidden {
			fmt.Fprintf(w, "  %-12s %s\n", c.Name, c.Usage)
		}
	}
}
