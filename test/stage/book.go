package stage

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Book makes a pipe in a directory into which workers write lines of what they do. It does not end with the last of them, but when it is closed.
func Book(dir string) (*os.File, error) {
	path := filepath.Join(dir, "book")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR, 0)
}

// Now is the time of the clock that all machines and their workers share.
func Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // there is no Linux without it
	}
	return time.Duration(t.Nano())
}
