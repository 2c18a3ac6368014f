// Command muster starts distributed training: as a container's entrypoint, or in place of torchrun.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/report"
)

func main() {
	os.Exit(start(os.Args))
}

// start runs one command line and returns the exit status of the process.
func start(args []string) int {
	in := callerOf(args) // before the environment is a job's
	err := commandLine(args)
	code, wrongly := exitCode(err), ""
	if err != nil && err.Error() != "" {
		fmt.Fprintf(os.Stderr, "muster: %s\n", report.Plain(err.Error()))
	}
	if usage := (usageError{}); errors.As(err, &usage) {
		code, wrongly = misused(args, err), err.Error()
	}
	in.hears(word{Code: &code, Wrong: wrongly})
	return code
}

// misused is the exit status for a command line that cannot be right.
func misused(args []string, err error) int {
	if name, _ := standsFor(args[0]); name != "" {
		return 1 // as that program
	}
	if launches(args) {
		why := launcher.VerdictOf(&launcher.Error{Code: job.ExitUsage, Err: err})
		pid1.LeaveWords(os.Getenv(terminationLog), report.Words(why)) // there is no agent yet that could
	}
	return job.ExitUsage
}
