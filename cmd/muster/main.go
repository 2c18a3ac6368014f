// Command muster starts distributed training: as a container's entrypoint, or in place of torchrun.
package main

import (
	"fmt"
	"os"

	"github.com/muster-run/muster/launcher"
)

func main() {
	os.Exit(start(os.Args))
}

// start runs one command line and returns the exit status of the process.
func start(args []string) int {
	err := commandLine(args)
	if err == nil {
		return 0
	}
	if text := err.Error(); text != "" {
		fmt.Fprintf(os.Stderr, "muster: %s\n", launcher.Plain(text))
	}
	return exitCode(err)
}
