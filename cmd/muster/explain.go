package main

import (
	"fmt"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/evidence"
)

func explainCommand() *cli.Command {
	return &cli.Command{
		Name: "explain", Usage: "say what an exit code means, and what to do", ArgsUsage: "CODE",
		Description: "  muster explain 137",
		Action: func(x *cli.Context) error {
			code, err := strconv.Atoi(x.Args().First())
			if x.Args().Len() != 1 || err != nil || code < 0 || code > 255 {
				return wrong("explain: takes one exit code from 0 to 255; for example: muster explain 137")
			}
			fmt.Printf("%d: %s\n", code, evidence.ExitCode(code))
			return nil
		},
	}
}
