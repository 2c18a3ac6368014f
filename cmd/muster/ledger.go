package main

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/report"
)

func ledgerCommand() *cli.Command {
	asJSON := false
	return &cli.Command{
		Name: "ledger", Usage: "show what the time of jobs went on, by the verdicts that they left", ArgsUsage: "[flags] DIR",
		Description: "Each interruption gets a receipt: who is to blame, and what it took to see it, to stop, to meet again, to load, and to do again.\n" +
			"DIR, or what is below it, holds what muster run --verdict FILE left:\n\n" +
			"  muster ledger /logs",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Destination: &asJSON, Usage: "for programs: docs/ledger.md"}},
		Action: func(x *cli.Context) error {
			if x.Args().Len() != 1 {
				return wrong("ledger: takes one DIR; for example: muster ledger /logs")
			}
			l, err := report.ReadLedger(x.Args().First())
			switch {
			case err != nil:
				return wrong("ledger: %v", err)
			case asJSON:
				os.Stdout.Write(l.JSON())
			default:
				fmt.Print(l.Text())
			}
			if len(l.Runs) == 0 {
				return wrong("ledger: %s holds no verdict with a ledger; muster run --verdict FILE leaves one, of a job whose nodes met", x.Args().First())
			}
			return nil
		},
	}
}
