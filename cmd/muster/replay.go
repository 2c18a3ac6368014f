package main

import (
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/launcher"
)

func replayCommand() *cli.Command {
	restarts, stop, grace := -1, time.Duration(-1), time.Duration(-1)
	return &cli.Command{
		Name: "replay", Usage: "judge a job's journal again, or as other flags would have", ArgsUsage: "[flags] FILE",
		Description: "The file is what muster run --journal FILE left. Every event is shown with what followed from it:\n\n" +
			"  muster replay --max-restarts 3 /logs/journal",
		Flags: []cli.Flag{
			&cli.GenericFlag{Name: "max-restarts", Value: number{&restarts, 0, 1 << 20}, Usage: "`N` rounds that may follow the first; as it was"},
			&cli.GenericFlag{Name: "stop-timeout", Value: seconds{&stop}, Usage: "`TIME` from TERM to KILL after a failure; as it was"},
			&cli.GenericFlag{Name: "grace", Value: seconds{&grace}, Usage: "`TIME` from TERM to KILL when the job is told to stop; as it was"},
		},
		Action: func(x *cli.Context) error {
			if x.Args().Len() != 1 {
				return wrong("replay: takes one FILE; for example: muster replay journal")
			}
			return replay(x.Args().First(), func(l *launcher.Limits) {
				if restarts >= 0 {
					l.MaxRestarts = restarts
				}
				if stop >= 0 {
					l.StopTimeout = stop
				}
				if grace >= 0 {
					l.Grace = grace
				}
			})
		},
	}
}

// replay shows what a journal led to. Its exit status is the job's; a journal without an end is none.
func replay(path string, change func(*launcher.Limits)) error {
	f, err := os.Open(path)
	if err != nil {
		return wrong("replay: %v", err)
	}
	defer f.Close()
	v, err := launcher.Replay(f, os.Stdout, change)
	switch {
	case err != nil:
		return wrong("replay: %s: %v", path, err)
	case v == nil:
		fmt.Println("no verdict")
		return nil
	}
	return status(v.Code)
}
