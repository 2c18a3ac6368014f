package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/control"
	"github.com/muster-run/muster/report"
)

func statusCommand() *cli.Command {
	var a agent
	var asJSON, watch bool
	return &cli.Command{
		Name: "status", Usage: "show how the running job stands", ArgsUsage: "[flags]",
		Description: "Asks this node's agent, in the container where it runs:\n\n  muster status --watch",
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "json", Destination: &asJSON, Usage: "for programs: docs/control.md"},
			&cli.BoolFlag{Name: "watch", Destination: &watch, Usage: "again each second, until the job has ended"},
		}, a.flags()...),
		Action: func(x *cli.Context) error {
			if x.Args().Present() {
				return wrong("status: takes no arguments, got %q", x.Args().First())
			}
			show := showText
			switch {
			case asJSON && watch:
				show = showLine
			case asJSON:
				show = showJSON
			case watch && isTerminal(os.Stdout):
				show = showScreen
			}
			return printStatus(&a, watch, show)
		},
	}
}

// printStatus shows the status, again and again if that is wanted. To a watcher the end of the agent is no failure.
func printStatus(a *agent, watch bool, show func(io.Writer, report.Status)) error {
	for seen := false; ; seen = true {
		var s report.Status
		if err := a.ask(askTime, control.Request{Do: "status"}, &s); err != nil {
			if seen {
				fmt.Fprintln(os.Stderr, "muster:", err)
				return nil
			}
			return err
		}
		show(os.Stdout, s)
		if !watch {
			return nil
		}
		time.Sleep(time.Second)
	}
}

// askTime is how long an agent may take to answer what it knows.
const askTime = 5 * time.Second

func showText(w io.Writer, s report.Status) { io.WriteString(w, s.Text(time.Now())) }

func showJSON(w io.Writer, s report.Status) { w.Write(s.JSON()) }

func showLine(w io.Writer, s report.Status) { json.NewEncoder(w).Encode(s) }

// showScreen clears the terminal first (ECMA-48: cursor home, erase below).
func showScreen(w io.Writer, s report.Status) {
	io.WriteString(w, "\x1b[H\x1b[J"+s.Text(time.Now()))
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
