package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/topology"
)

func envCommand() *cli.Command {
	var c launcher.Config
	var rank int
	var diff bool
	flag := &cli.GenericFlag{Name: "rank", Value: number{&rank, 0, 1 << 24}, Usage: "`N` whose environment is shown; 0 if not given"}
	return &cli.Command{
		Name: "env", Usage: "show what a worker would get, and why; starts nothing", ArgsUsage: "[--rank N] [--diff] [flags of run] script.py [argument...]",
		Description: "  muster env --rank 3 --nnodes 2 --nproc-per-node 2 --rdzv-endpoint host0:29400 train.py",
		Flags: append(jobFlags(&c), flag,
			&cli.BoolFlag{Name: "diff", Destination: &diff, Usage: "only what changes: + what a worker gets, - what this environment has instead"}),
		Action: func(x *cli.Context) error {
			configure(x, &c)
			dry, err := launcher.DryRun(c, rank)
			if err != nil {
				return err
			}
			if diff {
				return printDiff(os.Stdout, dry, os.Environ(), c.Environ)
			}
			return printEnv(os.Stdout, dry)
		},
	}
}

// printEnv prints what was decided and by whom, and every variable that muster sets, with its reason.
func printEnv(w io.Writer, d launcher.Dry) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "# decided\tvalue\tby")
	for _, s := range d.Plan.Settings {
		fmt.Fprintf(t, "# %s\t%s\t%s\n", s.Name, s.Value, s.From)
	}
	for _, note := range d.Plan.Notes {
		fmt.Fprintf(t, "# note: %s\n", note)
	}
	fmt.Fprintf(t, "# rank %d runs: %q\n", d.Task.Rank, d.Task.Argv)
	if b := d.Task.Binding; len(b.CPUs) > 0 {
		fmt.Fprintf(t, "# rank %d runs on CPUs %v%s\n", d.Task.Rank, topology.CPUs(b.CPUs), memoryOf(b))
	}
	for _, v := range d.Task.Env {
		why := v.Why
		if old, set := d.User(v.Name); set && old != v.Value {
			why += fmt.Sprintf(" (was %q)", old)
		}
		fmt.Fprintf(t, "%s=%s\t# %s\n", v.Name, v.Value, why)
	}
	fmt.Fprintf(t, "# and %d variables of this environment, as they are\n", d.Kept)
	return t.Flush()
}

// memoryOf says which memory a bound process has.
func memoryOf(b job.Binding) string {
	switch {
	case len(b.Memory) == 0:
		return ""
	case b.Prefer:
		return fmt.Sprintf(", with memory of NUMA node %v first", topology.CPUs(b.Memory))
	}
	return fmt.Sprintf(", with memory of NUMA node %v alone", topology.CPUs(b.Memory))
}

// printDiff prints what a worker's environment has that this process' has not, and what it has otherwise. own is this process' environment,
// kept what of it goes on to workers.
func printDiff(w io.Writer, d launcher.Dry, own, kept []string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, kv := range own {
		if name, _, _ := strings.Cut(kv, "="); !slices.Contains(kept, kv) && name != flagsVariable {
			fmt.Fprintf(t, "-%s\t# muster's own, and not for workers\n", name) // it may be a secret
		}
	}
	for _, v := range d.Task.Env {
		old, set := d.User(v.Name)
		if set && old == v.Value {
			continue
		}
		if set {
			fmt.Fprintf(t, "-%s=%s\n", v.Name, old)
		}
		fmt.Fprintf(t, "+%s=%s\t# %s\n", v.Name, v.Value, v.Why)
	}
	return t.Flush()
}
