package pid1

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/muster-run/muster/output"
)

// This file is the first process's part in the output of workers: it reads their pipes, so that no line is lost or
// written twice when the agent dies.

// A console is where people read, and the files that it writes to.
type console struct {
	*output.Console
	files []*os.File
}

// openConsole opens a console, unless there is one of that number, which an agent before this one opened.
func (f *first) openConsole(m message) {
	defer f.tell(message{Kind: answer, ID: m.ID})
	if f.consoles[m.Console] != nil || len(m.files) != 2 || m.Style == nil {
		closeAll(m.files)
		return
	}
	if len(f.consoles) == 0 {
		f.expand()
	}
	c := &console{files: []*os.File{os.NewFile(uintptr(m.files[0]), "|1"), os.NewFile(uintptr(m.files[1]), "|2")}}
	c.Console = output.NewConsole(c.files[0], c.files[1], *m.Style)
	f.consoles[m.Console] = c
}

// expand lets this process do more than to wait.
func (f *first) expand() {
	runtime.GOMAXPROCS(min(f.cpus, maxCPUs))
	debug.SetMemoryLimit(math.MaxInt64) // the lines that wait for a slow reader
}

// closeConsole delivers what waits at a console, and says what was lost.
func (f *first) closeConsole(m message) {
	c := f.consoles[m.Console]
	delete(f.consoles, m.Console)
	go func() {
		text := c.close(m.Within)
		f.spawner.done <- func() { f.tell(message{Kind: answer, ID: m.ID, Text: text}) }
	}()
}

func (c *console) close(within time.Duration) string {
	if c == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	err := c.Close(ctx)
	for _, f := range c.files {
		f.Close()
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// closeConsoles ends all output, when there is nobody left who could write.
func (f *first) closeConsoles() {
	if len(f.consoles) == 0 {
		return
	}
	children, consoles, over := f.children, f.consoles, false
	go func() {
		for _, c := range children {
			if c.carrier != nil {
				c.carrier.Close()
			}
		}
		for _, c := range consoles {
			c.close(closeTime)
		}
		f.spawner.done <- func() { over = true }
	}()
	f.children, f.consoles = map[int]*child{}, map[int]*console{}
	f.loop(func() bool { return over }, time.After(2*closeTime))
}

// say puts lines of the agent among the workers'.
func (f *first) say(m message) {
	c := f.consoles[m.Console]
	switch {
	case c == nil:
	case m.Stream == 1:
		_, _ = c.Stdout().Write(m.Data)
	default:
		_, _ = c.Stderr().Write(m.Data)
	}
}

// complain speaks to a person, among the workers' lines.
func (f *first) complain(format string, args ...any) {
	for _, c := range f.consoles {
		fmt.Fprintf(c.Stderr(), "muster: "+format+"\n", args...)
		return
	}
	complain(format, args...)
}

// carry begins to carry the output of c.
func (f *first) carry(c *child) {
	at := f.consoles[c.lines.Console]
	if at == nil || len(c.pipes) != 2 { // it was closed meanwhile: the agent ends
		closeAll(c.pipes)
		return
	}
	c.carrier = at.Carry(*c.lines, [2]*os.File{os.NewFile(uintptr(c.pipes[0]), "stdout"), os.NewFile(uintptr(c.pipes[1]), "stderr")})
}

// finish tells the last lines of a process that has ended, when they were read; and forgets one that is no worker.
func (f *first) finish(c *child) {
	if c.tag == "" {
		delete(f.children, c.pid)
	}
	if c.lines == nil {
		return
	}
	go func() {
		var lines []string
		if c.carrier != nil {
			c.carrier.Settle()
			lines = c.carrier.Tail()
		}
		f.spawner.done <- func() {
			c.read, c.tail = true, lines
			f.tell(message{Kind: tellTail, PIDs: []int{c.pid}, Lines: lines})
		}
	}()
}

func (f *first) carriers(pids []int) (all []*output.Carrier) {
	for _, pid := range pids {
		if c := f.children[pid]; c != nil && c.carrier != nil {
			all = append(all, c.carrier)
		}
	}
	return all
}

func (f *first) tellTail(m message) {
	told := message{Kind: answer, ID: m.ID}
	for _, k := range f.carriers(m.PIDs) {
		told.Lines = k.Tail()
	}
	f.tell(told)
}

func (f *first) tellRhythms(m message) {
	told := message{Kind: answer, ID: m.ID, Rhythms: make([]output.Rhythm, len(m.PIDs))}
	for i, pid := range m.PIDs {
		for _, k := range f.carriers([]int{pid}) {
			told.Rhythms[i] = k.Rhythm(i < len(m.Looks) && m.Looks[i])
		}
	}
	f.tell(told)
}

func (f *first) tellCounts(m message) {
	var sum output.Counts
	for _, c := range f.consoles {
		sum = sum.Add(c.Counts())
	}
	f.tell(message{Kind: answer, ID: m.ID, Counts: &sum})
}

// forget drops what we keep of workers that have ended.
func (f *first) forget(pids []int) {
	for _, pid := range pids {
		if c := f.children[pid]; c != nil && !c.alive {
			if !c.cgroup.close() {
				f.filled = append(f.filled, c.cgroup)
			}
			delete(f.children, pid)
		}
	}
}
