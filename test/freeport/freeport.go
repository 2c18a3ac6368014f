// Package freeport has ports for tests of programs that choose none themselves.
package freeport

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/ports"
)

// Take returns a port of this machine that nobody else is given until the test has ended: neither an outgoing connection nor another test, nor
// muster. Who is told of it can listen there with SO_REUSEADDR, as muster, PyTorch and all of Go do.
func Take(t testing.TB) int {
	t.Helper()
	held, port, err := ports.Take(0, ports.Hold)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(held) })
	return port
}
