package framework

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/muster-run/muster/lazy"
)

// maxErrorFile bounds what is read of a file that a script wrote, in bytes.
const maxErrorFile = 1 << 20

// Exception says in a line what a worker's script failed of, as far as it said so: in its error file, else in the
// Python traceback among its last lines of output. errorDir is that of its Place; "": there is none.
func (f Framework) Exception(errorDir string, local int, tail []string) string {
	if errorDir != "" {
		if text := Recorded(errorFile(errorDir, local)); text != "" {
			return text
		}
	}
	return traceback(tail)
}

// errorFile is where torch's @record leaves the exception of the worker with this local rank, under torchrun's name.
func errorFile(errorDir string, local int) string {
	return filepath.Join(errorDir, strconv.Itoa(local), "error.json")
}

// Recorded is the exception in an error file as torch writes it (torch/distributed/elastic/multiprocessing/errors/error_handler.py):
// {"message": {"message": "ValueError: x", …}}, or a plain text as message. It is "" if there is none.
func Recorded(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	var outer struct{ Message json.RawMessage }
	if json.NewDecoder(io.LimitReader(f, maxErrorFile)).Decode(&outer) != nil {
		return ""
	}
	var inner struct{ Message string }
	if json.Unmarshal(outer.Message, &inner) == nil {
		return inner.Message
	}
	var text string
	_ = json.Unmarshal(outer.Message, &text) // neither: it says nothing
	return text
}

// exceptionLine is how Python ends a traceback: the exception's name, and its text if it has any.
var exceptionLine = lazy.Regexp(`^[A-Za-z_][A-Za-z0-9_.]*(: |$)`)

// prefixed is what torch puts before each line of a traceback once there is a process group
// (torch/distributed/distributed_c10d.py, init_process_group).
var prefixed = lazy.Regexp(`^\[rank\d+\]: ?`)

// unparsed is how Python begins to tell of a script that is not Python: no frame, for nothing ran (CPython
// Lib/traceback.py, TracebackException).
var unparsed = lazy.Regexp(`^  File ".*", line \d+$`)

// original begins a traceback in the message of an exception: that of a process which loaded data, or of a thread, where the other was raised anew
// (torch/_utils.py, ExceptionWrapper).
const original = "Original Traceback (most recent call last):"

// groups begins the traceback of an exception that stands for several, and margin each of its lines; grouped ends what such an exception says
// (CPython Lib/traceback.py, _ExceptionPrintContext).
var (
	groups  = lazy.Regexp(`^  \+ Exception Group Traceback \(most recent call last\):`)
	margin  = lazy.Regexp(`^ +\| `)
	grouped = lazy.Regexp(` \(\d+ sub-exceptions?\)$`)
)

// traceback returns the line that ends the last Python traceback among lines; of an exception that stands for several that, and the first of them.
// Lines of standard output may stand anywhere between those of the traceback.
func traceback(lines []string) string {
	found, inside, group := "", false, false
	for _, text := range lines {
		text = prefixed().ReplaceAllString(text, "")
		part := margin().ReplaceAllString(text, "")
		switch {
		case strings.HasPrefix(text, "Traceback (most recent call last):"), strings.HasPrefix(text, original), unparsed().MatchString(text):
			inside, group = true, false
		case groups().MatchString(text):
			inside, group = true, true
		case group && part == text || !exceptionLine().MatchString(part): // another process's line, or a frame
		case inside && (group || part == text):
			found, inside = part, false
		case group && grouped().MatchString(found) && !grouped().MatchString(part):
			found += ": " + part
		}
	}
	return found
}
