// Command pack prepares the program on its standard input to be packed by gzip, for another one to carry.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/muster-run/muster/cmd/muster/packed"
)

func main() {
	program, err := io.ReadAll(os.Stdin)
	if err == nil {
		program, err = packed.Turn(program)
	}
	if err == nil {
		_, err = os.Stdout.Write(program)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}
