package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/timerslack"
	"github.com/muster-run/muster/topology"
	"github.com/muster-run/muster/topology/view"
)

func probeCommand() *cli.Command {
	var root, smi, svg, snapshot string
	var asJSON, mask bool
	return &cli.Command{
		Name: "probe", Usage: "show the machine: GPUs, RDMA adapters, NUMA nodes, and what lies between them", ArgsUsage: "[--json]",
		Description: "Reads /sys, /proc and /dev, and asks nvidia-smi where there is one. docs/probe.md explains every column.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Destination: &asJSON, Usage: "as one JSON object"},
			&cli.StringFlag{Name: "root", Destination: &root, Usage: "`DIR` in which sys, proc and dev are: the host's, or another machine's (/)"},
			&cli.StringFlag{Name: "svg", Destination: &svg, Usage: "`FILE` to draw the machine into"},
			&cli.StringFlag{Name: "snapshot", Destination: &snapshot, Usage: "`FILE` to describe the machine in, as the tests have machines"},
			&cli.BoolFlag{Name: "mask", Destination: &mask, Usage: "invent the snapshot's ids, addresses and asset tags"},
			&cli.StringFlag{Name: "nvidia-smi", Destination: &smi, Usage: "`FILE` of nvidia-smi; off: ask none (the one that is installed, if the root is /)"},
		},
		Action: func(x *cli.Context) error {
			if x.Args().Present() {
				return wrong("probe: takes no arguments, not %q", x.Args().First())
			}
			root := cmp.Or(root, "/")
			m, err := machineAt(x.Context, root, smi, false)
			if err != nil {
				return wrong("probe: %v", err)
			}
			if snapshot != "" {
				if err := into(snapshot, func(w io.Writer) error { return topology.Root(root).Snapshot(w, "snapshot", mask) }); err != nil {
					return unwritten("--snapshot", err)
				}
			} else if mask {
				return wrong("probe: --mask is for --snapshot FILE")
			}
			if svg != "" {
				if err := into(svg, func(w io.Writer) error { return view.SVG(w, m) }); err != nil {
					return unwritten("--svg", err)
				}
			}
			if asJSON {
				return view.JSON(os.Stdout, m)
			}
			return view.Table(os.Stdout, m)
		},
	}
}

// into writes a file.
func into(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// unwritten is for a file that cannot be written, which is no fault of ours.
func unwritten(flag string, err error) error {
	return &launcher.Error{Code: job.ExitSystem, Err: fmt.Errorf("probe: %s: %w", flag, err)}
}

// smiFor is the nvidia-smi to ask of a machine; "": none. That there is none is no fault: most of what it says is known without.
func smiFor(given, root string, m topology.Machine) string {
	switch {
	case given == "off" || given == "" && root != "/":
		return ""
	case given != "":
		return given
	}
	for _, g := range m.Slots() {
		if g.Vendor == "nvidia" {
			return installedSMI()
		}
	}
	return ""
}

// installedSMI looks where drivers and container runtimes put it; the last two are GKE's and others' that mount the driver.
func installedSMI() string {
	for _, name := range []string{"nvidia-smi", "/usr/bin/nvidia-smi", "/usr/local/nvidia/bin/nvidia-smi", "/opt/nvidia/bin/nvidia-smi"} {
		if file, err := exec.LookPath(name); err == nil {
			return file
		}
	}
	return ""
}

const (
	smiLimit = 10 * time.Second
	smiBytes = 1 << 20
)

var errSMIHangs = fmt.Errorf("does not end within %v: its driver hangs", smiLimit)

// askSMI runs nvidia-smi, each time in a process group of its own. One that hangs in its driver does not even die of SIGKILL: it is
// left behind, and so is the goroutine that waits for it, for as long as this command still runs.
func askSMI(ctx context.Context, file string) topology.SMI {
	return func(args ...string) (string, error) {
		c := exec.Command(file, args...)
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		var out, complaint capped
		c.Stdout, c.Stderr = &out, &complaint
		if err := timerslack.Given(c.Start); err != nil {
			return "", err
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		limit := time.NewTimer(smiLimit)
		defer limit.Stop()
		select {
		case err := <-ended:
			if err != nil {
				return "", fmt.Errorf("%w%s", err, firstLine(out.String()+complaint.String()))
			}
			return out.String(), nil
		case <-ctx.Done():
			_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
			return "", ctx.Err()
		case <-limit.C:
			_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
			return "", errSMIHangs
		}
	}
}

// firstLine is the beginning of what a program said, for the end of a message.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if line == "" {
		return ""
	}
	return fmt.Sprintf(": %.200s", line)
}

// A capped buffer keeps the beginning of what is written to it.
type capped struct{ bytes.Buffer }

func (c *capped) Write(p []byte) (int, error) {
	c.Buffer.Write(p[:min(len(p), smiBytes-c.Len())])
	return len(p), nil
}
