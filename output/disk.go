package output

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A disk is a console's file that may be full. What it refuses is counted, and told by the next line that it takes.
type disk struct {
	patient
	note   func(out []byte, text string) []byte // appends a line of our own
	losses *atomic.Uint64                       // lines, of all consoles

	lost int  // lines since the last that was taken
	torn bool // which has no end

	full func(error) // is told once
	once sync.Once
}

// Write fails if the reader went away, and never for want of room.
func (d *disk) Write(b []byte) (n int, err error) {
	if err = d.confess(); err == nil {
		n, err = d.write(b)
	}
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return n, err
	}
	lines := max(1, bytes.Count(b[n:], newline))
	d.lost += lines
	d.losses.Add(uint64(lines))
	d.once.Do(func() { d.full(err) })
	return len(b), nil
}

// confess says what is missing, on a line of its own.
func (d *disk) confess() error {
	if d.lost == 0 {
		return nil
	}
	var text []byte
	if d.torn {
		text = append(text, newline...)
	}
	_, err := d.write(d.note(text, fmt.Sprintf("%d lines are missing here, the disk did not take them", d.lost)))
	if err == nil {
		d.lost = 0
	}
	return err
}

func (d *disk) write(b []byte) (int, error) {
	n, err := d.patient.Write(b)
	if n > 0 {
		d.torn = b[n-1] != '\n'
	}
	return n, err
}
