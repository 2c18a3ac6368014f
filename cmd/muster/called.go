package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
)

// This file is what muster that a shell script calls tells the script's first process: that it was called, and how it ended.

// calledFile has that: a line of JSON for each word. It is there from the beginning: who is late makes none anew.
const calledFile = "called"

// A word is one of muster's in a script.
type word struct {
	PID   int
	Code  *int   `json:",omitempty"` // it ended with this one; nil: it was called
	Wrong string `json:",omitempty"` // what was wrong with how it was called
	Alone bool   `json:",omitempty"` // the script had ended then
}

// called are all of a script's, in their order.
type called []word

// maxCalled bounds what is read of them.
const maxCalled = 1 << 20

// called are those so far.
func (s *shell) called() (all called) {
	f, err := os.Open(filepath.Join(s.links, calledFile))
	if err != nil {
		return nil
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, maxCalled))
	for lines.Scan() {
		var w word
		if json.Unmarshal(lines.Bytes(), &w) == nil {
			all = append(all, w)
		}
	}
	return all
}

// running reports whether a process is one that was called and has not said that it ends.
func (c called) running(pid int) (yes bool) {
	for _, w := range c {
		if w.PID == pid {
			yes = w.Code == nil
		}
	}
	return yes
}

// wrong is what was wrong with how the last one was called; "": nothing.
func (c called) wrong() (text string) {
	for _, w := range c {
		text = w.Wrong
	}
	return text
}

// last is the code with which the last one ended; 0 if none did.
func (c called) last() (code int) {
	for _, w := range c {
		if w.Code != nil {
			code = *w.Code
		}
	}
	return code
}

// after is the first code other than 0 of those whose end the script did not see: they ended after what was said before, when it ended, or alone. One
// of them, or of those that were alive then, that ended without a word was killed.
func (c called) after(before called, alive []int) (code int) {
	for i, w := range c {
		if w.Code != nil && *w.Code != job.ExitOK && (i >= len(before) || w.Alone) {
			return *w.Code
		}
	}
	for i, w := range c {
		if c.running(w.PID) && (i >= len(before) || slices.Contains(alive, w.PID)) {
			return killed
		}
	}
	return job.ExitOK
}

// killed is the exit code of a process that was killed.
const killed = 128 + int(syscall.SIGKILL)

// A caller is the run of a shell script in which this process was called. The zero caller is none.
type caller struct{ links string }

// callerOf is that of a command line, if it starts a job.
func callerOf(args []string) caller {
	if !launches(args) {
		return caller{}
	}
	return caller{os.Getenv(linksVariable)}
}

// hears tells its first process a word.
func (c caller) hears(w word) {
	if c.links == "" {
		return
	}
	w.PID, w.Alone = os.Getpid(), w.Code != nil && !isThere(fmt.Sprintf("/proc/%d", unix.Getpgrp())) // the script leads its process group
	line, _ := json.Marshal(w)                                                                       // plain values: cannot fail
	f, err := os.OpenFile(filepath.Join(c.links, calledFile), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return // the script has ended
	}
	defer f.Close()
	_, _ = f.Write(append(line, '\n'))
}
