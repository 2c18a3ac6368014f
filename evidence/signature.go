package evidence

import (
	"strings"

	"github.com/muster-run/muster/lazy"
)

// A Signature is what a known error text says about the death of the process that printed it.
type Signature struct {
	Kind    string // one word for machines: "gpu-memory", "peer-gone"; docs/causes.md lists them
	Meaning string // a clause
	Hint    string // what to do, a clause
	Line    string // where it was found
	// Consequence: the text itself says that this process had to end because of others. It is not where to look.
	Consequence bool
	// Waited: the consequence is a time-out. Nobody need have died: the others may hang, be slow, or never have come.
	Waited bool
}

// Recognise looks for a known error in what a worker died of: its exception and its last lines, of which two hundred
// are a good number, for C++ prints long stacks. What a process printed while it still ran well counts less than
// what it died of, and a text that harmless lines have too counts in the latter alone. So does what it printed after the
// exception that ended its program, where that is known: "": it is not.
func Recognise(exception, ended string, tail []string) (Signature, bool) {
	lines := stripped(tail)
	end, known := ownEnd(ended, lines)
	before, death, raised := split(lines[:end])
	before, raised = append(before, lines[end:]...), raised || known
	death = append(death, strings.Split(exception, "\n")...)
	if s, ok := search(death, func(r row) bool { return r.weight != wrapper }); ok {
		return s, true
	}
	// An exception of its own that is not known is not explained by what others did.
	raised = raised || exception != ""
	if s, ok := search(before, func(r row) bool { return r.weight == anywhere && !(raised && kinds[r.kind].consequence) }); ok {
		return s, true
	}
	return search(death, func(r row) bool { return r.weight == wrapper })
}

// search returns the first row of the table, among those wanted, that fits one of the lines.
func search(lines []string, want func(row) bool) (Signature, bool) {
	for _, r := range signatures {
		if !want(r) {
			continue
		}
		for _, line := range lines {
			if fits(line, r.text) {
				k := kinds[r.kind]
				return Signature{r.kind, k.means, k.do, strings.TrimSpace(line), k.consequence, k.waited}, true
			}
		}
	}
	return Signature{}, false
}

// fits reports whether line has the parts of text, which stand between "…", in this order. A text that begins with
// "^" begins the line, one that ends with "$" ends it.
func fits(line, text string) bool {
	text, first := strings.CutPrefix(text, "^")
	text, last := strings.CutSuffix(text, "$")
	for i, part := range strings.Split(text, "…") {
		at := strings.Index(line, part)
		if at < 0 || i == 0 && first && at > 0 {
			return false
		}
		line = line[at+len(part):]
	}
	return !last || line == ""
}

// shortDeath is how many of the last lines are what a process died of when it left no traceback.
const shortDeath = 5

// split parts the last lines of a process in those of its life and those of its death: from the traceback that
// began its end, with those that led to it. Lines of source code are left out: they say what may be raised.
func split(lines []string) (before, death []string, raised bool) {
	at, raised := deathAt(lines)
	return lines[:at:at], code(lines[at:], raised), raised
}

// deathAt is where that is.
func deathAt(lines []string) (at int, raised bool) {
	at = max(0, len(lines)-shortDeath)
	for i := len(lines) - 1; i >= 0; i-- {
		if !begins(lines[i]) {
			continue
		}
		at, raised = i, true
		if !chained(lines[:i]) {
			break
		}
	}
	return at, raised
}

// stripped is lines without what torch puts before each one of a traceback: torch/distributed/distributed_c10d.py,
// _get_exception_handler.
func stripped(tail []string) []string {
	lines := make([]string, len(tail))
	for i, line := range tail {
		lines[i] = rankPrefix().ReplaceAllString(line, "")
	}
	return lines
}

var rankPrefix = lazy.Regexp(`^\[rank\d+\]: ?`)

func begins(line string) bool {
	line = strings.TrimLeft(line, " ")
	return strings.HasPrefix(line, "Traceback (most recent call last):") || strings.HasPrefix(line, "+ Exception Group Traceback (most recent call last):")
}

// chained reports whether a traceback after these lines goes on with the one before. CPython Lib/traceback.py.
func chained(lines []string) bool {
	for i := len(lines) - 1; i >= 0; i-- {
		if line := strings.TrimSpace(lines[i]); line != "" {
			return strings.HasPrefix(line, "During handling of the above exception") ||
				strings.HasPrefix(line, "The above exception was the direct cause")
		}
	}
	return false
}

// margin is what Python puts before each line of an exception that stands for several. CPython Lib/traceback.py.
var margin = lazy.Regexp(`^ +\| `)

// code returns lines without the frames of a traceback.
func code(lines []string, raised bool) []string {
	if !raised {
		return lines
	}
	var out []string
	for _, line := range lines {
		line = margin().ReplaceAllString(line, "")
		if !strings.HasPrefix(line, "    ") && !strings.HasPrefix(line, `  File "`) {
			out = append(out, line)
		}
	}
	return out
}
