package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/preflight"
	"github.com/muster-run/muster/topology"
)

func checkCommand() *cli.Command {
	var root, smi, workers, nodes string
	var asJSON, all bool
	return &cli.Command{
		Name: "check", Usage: "look for reasons why a job would fail or be slow on this machine", ArgsUsage: "[--json] [--nproc-per-node N] [--nnodes N] [--dir DIR]...",
		Description: fmt.Sprintf("Exit status: 0, or %d if something that the job needs is missing. docs/preflight.md explains every check.", job.ExitRefused),
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Destination: &asJSON, Usage: "as one JSON object"},
			&cli.BoolFlag{Name: "all", Destination: &all, Usage: "show what is well, too"},
			&cli.StringFlag{Name: "nproc-per-node", Destination: &workers, Usage: "`N` workers will run here (one for each GPU)"},
			&cli.StringFlag{Name: "nnodes", Destination: &nodes, Usage: "`N` nodes in the job, or MIN:MAX; one alone needs no adapter (2)"},
			&cli.BoolFlag{Name: "peers", Usage: "measure the ways between the nodes, too: started on each of them, with flags of muster run (--nnodes, --rdzv-endpoint, --local-addr and others) where the platform does not say who they are"},
			&cli.StringSliceFlag{Name: "dir", Usage: "`DIR` that the job will write to: logs, checkpoints"},
			&cli.StringFlag{Name: "root", Destination: &root, Usage: "`DIR` in which sys, proc and dev are: the host's, or another machine's (/)"},
			&cli.StringFlag{Name: "nvidia-smi", Destination: &smi, Usage: "`FILE` of nvidia-smi; off: ask none (the one that is installed, if the root is /)"},
		},
		Action: func(x *cli.Context) error {
			if x.Args().Present() {
				return wrong("check: takes no arguments, not %q", x.Args().First())
			}
			if x.Bool("peers") { // those are started as a job
				return wrong("check: --peers has no value, and stands in the command line")
			}
			need, err := needOf(workers, nodes)
			if err != nil {
				return wrong("check: %v", err)
			}
			need.Dirs = x.StringSlice("dir")
			root := cmp.Or(root, "/")
			m, err := machineAt(x.Context, root, smi, true)
			if err != nil {
				return wrong("check: %v", err)
			}
			findings := preflight.Check(preflight.Measure(topology.Root(root), m), need)
			if asJSON {
				err = checkJSON(os.Stdout, findings)
			} else {
				err = checkTable(os.Stdout, findings, all)
			}
			if err == nil && preflight.Worst(findings) == preflight.Fail {
				err = exit(job.ExitRefused)
			}
			return err
		},
	}
}

// needOf understands what muster run does, as its variables may be set in the container: of several numbers of nodes the largest counts, and words
// for a number of workers are left to the machine.
func needOf(workers, nodes string) (need preflight.Need, err error) {
	need.Nodes = 2
	if nodes != "" {
		_, most, elastic := strings.Cut(nodes, ":")
		if !elastic {
			most = nodes
		}
		if need.Nodes, err = strconv.Atoi(most); err != nil || need.Nodes < 1 {
			return need, fmt.Errorf("--nnodes: %q is no number of nodes: give one from 1 on, or MIN:MAX", nodes)
		}
	}
	if workers != "" && !slices.Contains([]string{"auto", "gpu", "cpu"}, workers) {
		if need.Workers, err = strconv.Atoi(workers); err != nil || need.Workers < 1 {
			return need, fmt.Errorf("--nproc-per-node: %q is no number of workers: give one from 1 on", workers)
		}
	}
	return need, nil
}

// machineAt is the machine below root with what an nvidia-smi says of it.
func machineAt(ctx context.Context, root, smi string, health bool) (topology.Machine, error) {
	m, err := topology.Probe(topology.Root(root))
	if err == nil && root != "/" && !topology.Root(root).Exists("sys") {
		err = fmt.Errorf("no directory sys in %s", root)
	}
	if err != nil {
		return m, fmt.Errorf("--root: %w; it has to be a directory with sys, proc and dev in it", err)
	}
	if file := smiFor(smi, root, m); file != "" {
		hangs := func(err error) bool { return errors.Is(err, errSMIHangs) }
		m.Ask(askSMI(ctx, file), hangs)
		if health {
			m.AskHealth(askSMI(ctx, file), hangs)
		}
	}
	return m, nil
}

func checkJSON(w io.Writer, findings []preflight.Finding) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		Result   preflight.Result    `json:"result"`
		Findings []preflight.Finding `json:"findings"`
	}{preflight.Worst(findings), findings})
}

// checkTable shows what is wrong with what comes of it, then in short what is not known, and with all what is well.
func checkTable(w io.Writer, findings []preflight.Finding, all bool) error {
	counts := map[preflight.Result]int{}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range findings {
		if counts[f.Result]++; f.Result == preflight.Pass && !all {
			continue
		}
		result := f.Result.String()
		if f.Result == preflight.Fail {
			result = strings.ToUpper(result)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", result, f.Check, f.Found)
		for _, more := range []string{f.Means, f.Hint} {
			if more != "" {
				fmt.Fprintf(t, "\t\t  %s\n", more)
			}
		}
	}
	fmt.Fprintf(t, "%d failed, %d to look at, %d not known, %d well\n", counts[preflight.Fail], counts[preflight.Warn], counts[preflight.Unknown], counts[preflight.Pass])
	return t.Flush()
}
