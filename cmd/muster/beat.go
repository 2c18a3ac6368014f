package main

import (
	"math"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/heartbeat/page"
)

// A beat is what a program says of itself on the command line.
type beat struct {
	path, phase string
	step        int // -1: it does not say
	long        time.Duration
	end         bool
}

func beatCommand() *cli.Command {
	b := beat{step: -1}
	return &cli.Command{
		Name: "beat", Usage: "say from within a worker how far it is", ArgsUsage: "[--step N] [--phase NAME [--for TIME] | --phase-end]",
		Description: "For programs of which muster cannot see by itself that they advance, and for what takes longer than a step.\n\n" +
			"  muster beat --step 500\n" +
			"  muster beat --phase checkpoint --for 10m",
		Flags: []cli.Flag{
			&cli.GenericFlag{Name: "step", Value: number{&b.step, 0, math.MaxInt}, Usage: "training has come to step `N`"},
			&cli.StringFlag{Name: "phase", Destination: &b.phase, Usage: "the program does something else than to train: `NAME`, such as checkpoint"},
			&cli.GenericFlag{Name: "for", Value: seconds{&b.long}, Usage: "`TIME` that the phase takes at most"},
			&cli.BoolFlag{Name: "phase-end", Destination: &b.end, Usage: "the phase is over"},
			&cli.StringFlag{Name: "page", Destination: &b.path, Usage: "`FILE` that the agent reads; each worker's environment names its own"},
		},
		Action: func(x *cli.Context) error {
			if x.NArg() > 0 {
				return wrong("beat: %q is no flag", x.Args().First())
			}
			return b.write()
		},
	}
}

// write puts the beat on the worker's page.
func (b beat) write() error {
	switch {
	case b.step < 0 && b.phase == "" && !b.end:
		return wrong("beat: nothing to say; give --step, --phase or --phase-end")
	case b.phase != "" && b.end:
		return wrong("beat: a phase begins or ends; give --phase or --phase-end")
	case b.long != 0 && b.phase == "":
		return wrong("beat: --for is the time of a phase; give --phase, too")
	case b.path == "":
		return wrong("beat: MUSTER_PAGE is not set, so this is no worker that muster started; see `muster run`")
	}
	w, err := page.Open(b.path)
	if err != nil {
		return wrong("beat: %v; MUSTER_PAGE should be as muster gave it to the worker", err)
	}
	defer w.Close()
	if b.step >= 0 {
		err = w.Step(uint64(b.step))
	}
	if err == nil && (b.phase != "" || b.end) {
		err = w.Phase(b.phase, b.long)
	}
	return err
}
