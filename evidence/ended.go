package evidence

import (
	"strings"

	"github.com/muster-run/muster/lazy"
)

// This file is about lines that a process printed after the exception that ended its program: libraries that are taken apart then, and handlers of atexit, tell of what
// has become of the others by now. They do not explain that exception.

// Own is the last lines of a process to the end of the exception that ended its program, given the begin of its line, as a page has it; known: the line is there.
func Own(ended string, tail []string) (own []string, known bool) {
	if ended == "" || raisedAt(ended, stripped(tail)) < 0 {
		return tail, false
	}
	end, _ := ownEnd(ended, stripped(tail))
	return tail[:end], true
}

// OfThread reports whether the last traceback of a process is one with which a thread ended: Python tells of it, nobody has caught it, and what the main thread
// made of it may be a code alone, or nothing.
func OfThread(tail []string) bool {
	lines := stripped(tail)
	for i := len(lines) - 1; i > 0; i-- {
		if begins(lines[i]) {
			return strings.HasPrefix(lines[i-1], "Exception in thread ")
		}
	}
	return false
}

// ownEnd is how many of the lines those are. Where it is not known what ended the program, or that may be how a collective tells of others' end, whatever its words,
// it is all of them.
func ownEnd(ended string, lines []string) (end int, known bool) {
	if ended == "" {
		ended = lastRaised(lines)
	}
	if ended == "" || ofCollective().MatchString(ended) {
		return len(lines), false
	}
	end, _ = deathAt(lines)
	if at := raisedAt(ended, lines); at >= 0 {
		end = at + 1
	}
	for end < len(lines) && (!logged().MatchString(lines[end]) || ofNCCL().MatchString(lines[end])) {
		end++
	}
	return end, true
}

// raisedAt is the last line that begins so, with any text for each "?"; some print the exception without its module. -1: there is none.
func raisedAt(ended string, lines []string) int {
	whole := "^" + strings.ReplaceAll(ended, "?", "…")
	name, _, _ := strings.Cut(whole, ":")
	short := "^" + whole[strings.LastIndexAny(name, "^.")+1:]
	for i := len(lines) - 1; i >= 0; i-- {
		if fits(lines[i], whole) || fits(lines[i], short) {
			return i
		}
	}
	return -1
}

// lastRaised is the line of the last exception, where a library's log goes on right below it: it ended the program, most likely, and no Python has run since.
func lastRaised(lines []string) string {
	for i := len(lines) - 2; i > 0 && !begins(lines[i]); i-- {
		if below := strings.HasPrefix(lines[i-1], "    "); !below || !raisedLine().MatchString(lines[i]) { // a frame's source, or its marks
			continue
		}
		if native().MatchString(lines[i+1]) && !mayBeOfOthers().MatchString(lines[i]) {
			return lines[i]
		}
		break
	}
	return ""
}

const natives = `[A-Z]\d{4,8} \d\d:|\[[A-Z]\d* |\[[A-Z]\]|terminate called|Fatal Python error`

var (
	// native is how lines begin of glog, of c10's log (c10/util/Logging.cpp) and of C++'s and Python's runtime.
	native = lazy.Regexp(`^(` + natives + `)`)
	// logged is those, lines with a date, of NCCL, and with which Python tells of what came after the program's end (CPython Lib/traceback.py,
	// Python/errors.c, Modules/atexitmodule.c): none is of a message of several lines, which may have tracebacks of other processes in it.
	logged = lazy.Regexp(`^(` + natives + `|\d{4}-\d\d-\d\d[ T]\d\d:|\S+:\d+:\d+ \[\d+\] |Exception ignored |Exception in thread|Error in )`)
	// ofNCCL is its log, of which a line of another thread may stand between those of a message.
	ofNCCL = lazy.Regexp(`^\S+:\d+:\d+ \[\d+\] `)

	raisedLine = lazy.Regexp(`^[A-Za-z_][A-Za-z0-9_.]*(: |$)`)
	// ofCollective is exceptions of JAX, PyTorch and TensorFlow by which collectives tell of what others did, in words that need not be known.
	ofCollective = lazy.Regexp(`^[^: ]*(XlaRuntimeError|JaxRuntimeError|Dist\w*Error|UnavailableError|AbortedError|InternalError|CancelledError|DeadlineExceededError|FailedPreconditionError|UnknownError)\b`)
	// mayBeOfOthers is those that may do so among much else, where nothing is known but lines.
	mayBeOfOthers = lazy.Regexp(`^[^: ]*(RuntimeError|TimeoutError|Connection\w*Error|BrokenPipeError)\b`)
)
