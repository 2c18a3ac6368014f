package output

import "sync/atomic"

// Counts are what became of the workers' output at a console so far.
type Counts struct {
	Bytes, Lines [2]uint64 // that workers wrote: of standard output and standard error. A line is one when its newline has come
	Unshown      uint64    // lines that the console did not take
	Unfiled      uint64    // lines that log files did not
}

// Add is both together.
func (c Counts) Add(o Counts) Counts {
	for i := range c.Bytes {
		c.Bytes[i], c.Lines[i] = c.Bytes[i]+o.Bytes[i], c.Lines[i]+o.Lines[i]
	}
	c.Unshown, c.Unfiled = c.Unshown+o.Unshown, c.Unfiled+o.Unfiled
	return c
}

// counters are Counts while they grow.
type counters struct {
	bytes, lines     [2]atomic.Uint64
	unshown, unfiled atomic.Uint64
}

// Counts are those of all streams that this console ever carried.
func (c *Console) Counts() (n Counts) {
	for i := range n.Bytes {
		n.Bytes[i], n.Lines[i] = c.counts.bytes[i].Load(), c.counts.lines[i].Load()
	}
	n.Unshown, n.Unfiled = c.counts.unshown.Load(), c.counts.unfiled.Load()
	return n
}
