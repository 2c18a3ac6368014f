// Package output carries what workers write: whole lines to a console that many share, every byte to files.
package output

import (
	"os"
	"regexp"
	"sync"

	"github.com/muster-run/muster/proc"
)

// A Carrier carries the output of one process.
type Carrier struct {
	streams []*stream
	tail    tail
	rhythm  rhythm
	closing sync.Once
}

// Carry takes over the read ends of a process's standard output and error, and begins.
func (c *Console) Carry(l proc.Lines, pipes [2]*os.File) *Carrier {
	k := &Carrier{}
	if l.Progress != "" {
		k.rhythm.progress, _ = regexp.Compile(l.Progress) // who said it has tried
	}
	for i, in := range pipes {
		s := &stream{in: newSource(in), tail: &k.tail, seen: scanner{rhythm: &k.rhythm}}
		c.open(s, l, i)
		s.begin()
		k.streams = append(k.streams, s)
	}
	return k
}

// open connects a stream with what it goes to.
func (c *Console) open(s *stream, l proc.Lines, i int) {
	screen, name := c.screen(i+stdout), streamNames[i+stdout]
	s.out, s.form, s.barEvery = nowhere{}, none{}, screen.barEvery
	s.bytes, s.lines = &c.counts.bytes[i], &c.counts.lines[i]
	if l.Shown[i] {
		s.out, s.form = screen.open(l, name)
	}
	_, asIs := s.form.(plain)
	s.raw = l.Raw && asIs
	if l.Filed[i] {
		s.file = newLogFile(l.Dir, name, l.Quota, &c.words, &c.counts.unfiled)
	}
}

// Settle returns when the process's last output was read: at its end, or, since a grandchild may hold it open for ever, when
// nothing has come for a while.
func (k *Carrier) Settle() {
	for _, s := range k.streams {
		s.settle()
	}
}

// Tail returns the last lines so far, of both streams as they came.
func (k *Carrier) Tail() []string { return k.tail.lines() }

// Rhythm returns what the output tells so far. Whether lines are looked at for progress is as the last call said; before the first one
// they are.
func (k *Carrier) Rhythm(look bool) Rhythm { return k.rhythm.read(look) }

// Close takes what still comes of a process that is gone with all it started, and returns when it is where it goes, or
// cannot be.
func (k *Carrier) Close() {
	k.closing.Do(func() {
		k.Settle()
		for _, s := range k.streams {
			s.close()
		}
		for _, s := range k.streams {
			s.out.flush()
		}
	})
}
