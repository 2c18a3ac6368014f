//go:build amd64 || arm64

package timerslack

// begin is where the kernel enters the program. It is not a function to call.
//
//lint:ignore U1000 the linker is told of it (Makefile, -E)
func begin()
