package dialect

import (
	"cmp"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/muster-run/muster/job"
)

// This file finds launchers in shell scripts, by reading them: what a script will do nobody knows before it has done it.

// shells are programs that read commands; the last is one in some of its words.
var shells = strings.Fields("sh bash dash ash zsh ksh mksh busybox")

// What is read of scripts has bounds, so that it ends soon.
const (
	maxScript  = 128 << 10 // bytes of one
	maxParsed  = 512 << 10 // and of all that the parser is given, which begins anew behind what it does not take
	maxNesting = 200       // brackets and compound commands in each other, for each of which it calls itself
	maxFiles   = 256       // that are looked at
	maxDepth   = 8         // texts of commands in each other
	maxCalls   = 64        // launchers
)

// In is a launcher that a shell script calls.
type In struct {
	Script string // the file; "": it is in the command line
	Call   string // as the script has it: "torchrun", "/opt/conda/bin/torchrun", "python -m torch.distributed.run", "muster run"
	Linked bool   // it is called by its bare name, which PATH makes a link to muster, or is muster
	// Words are the whole command line; nil where it has something in it that the shell alone knows, which Unknown then is.
	Words   []string
	Unknown string
	Names   []string // of all programs of launchers that the script calls by their bare names
}

// InShell finds the first launcher that a command line's shell script calls, or a script that it calls by name. What stands behind a program that
// runs another (uv run torchrun, env A=b torchrun) is found as in a script; but env alone, which changes nothing, has each worker run what follows.
func InShell(h job.Host, argv []string) (In, bool) {
	r := newReading(h)
	inner := command(plain(argv))
	alone := len(argv) > 1 && filepath.Base(argv[0]) == "env" && !strings.HasPrefix(argv[1], "-") && !given().MatchString(argv[1])
	wrapped := !alone && len(inner) > 0 && len(inner) < len(argv) && filepath.Base(inner[0].text) != "muster"
	switch {
	case wrapped && r.launches(&text{}, inner):
	case wrapped:
		r.script(r.textOf(inner))
	default:
		r.script(r.textOf(plain(argv)))
	}
	if len(r.all) == 0 {
		return In{}, false
	}
	first := r.all[0]
	for _, in := range r.all {
		if name, _, _ := strings.Cut(in.Call, " "); in.Linked && Knows(name) && !slices.Contains(first.Names, name) {
			first.Names = append(first.Names, name)
		}
	}
	return first, true
}

// A Main is what an interpreter of Python runs: a script, or a module.
type Main struct{ Script, Module string }

// Mains are those that a command line has Python run, itself or by a shell script.
func Mains(h job.Host, argv []string) []Main {
	r := newReading(h)
	r.call(&text{}, plain(argv), nil)
	return r.mains
}

// A reading is what was read so far.
type reading struct {
	job.Host
	all       []In
	mains     []Main
	seen      map[string]bool // files
	parsed    int             // bytes
	expanded  int             // bytes that were put together
	depth     int             // texts that are open
	variables map[string]*variable
	perhaps   int // what is open and may not happen: if, a loop, a function
}

func newReading(h job.Host) reading {
	return reading{Host: h, seen: map[string]bool{}, variables: map[string]*variable{}}
}

// A text is a script, or what is given to a shell as one.
type text struct {
	file    string // "": it is in a command line
	code    string
	args    []field // of the script
	unknown string  // what of it the shell alone knows; "": nothing
}

// script reads a text of commands, as far as it is one. Behind what the parser does not take it begins anew.
func (r *reading) script(t text) {
	if r.depth == maxDepth {
		return
	}
	r.depth++
	defer func() { r.depth-- }()
	t.code = shallow(t.code)
	for t.code != "" && r.parsed+len(t.code) <= maxParsed {
		r.parsed += len(t.code)
		all, whole := statements(strings.NewReader(t.code))
		taken := 0
		for _, statement := range all {
			if len(r.all) < maxCalls {
				taken = int(statement.End().Offset())
				r.statement(&t, statement)
			}
		}
		if whole {
			return
		}
		t.code = behindLine(t.code[min(taken, len(t.code)):])
	}
}

// statements are those of a text up to what the parser does not take, which whole then tells. Nor does it take what makes it panic: people's scripts are not ours.
func statements(code io.Reader) (all []*syntax.Stmt, whole bool) {
	defer func() {
		if recover() != nil {
			whole = false
		}
	}()
	whole = true
	for statement, err := range syntax.NewParser(syntax.Variant(syntax.LangBash)).StmtsSeq(code) {
		switch { // the loop is not left: behind an error the parser may call for it once more
		case err != nil:
			whole = false
		case whole:
			all = append(all, statement)
		}
	}
	return all, whole
}

// shallow is as much of a text, in lines, as has not too much in each other.
func shallow(code string) string {
	deep, end := 0, 0
	for line := range strings.Lines(code[:min(len(code), maxScript)]) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			if deep = deeper(deep, line); deep > maxNesting {
				break
			}
		}
		end += len(line)
	}
	return code[:end]
}

// deeper is how deep in brackets and compound commands a line is at most, after another one that ended in a depth.
func deeper(deep int, line string) int {
	for i := range len(line) {
		switch line[i] {
		case '(', '[', '{':
			deep++
		case ')', ']', '}':
			deep = max(deep-1, 0)
		}
		if deep > maxNesting {
			return deep
		}
	}
	for _, word := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\n;", r) }) {
		switch word {
		case "if", "while", "until", "case", "for", "select":
			deep++
		case "fi", "done", "esac":
			deep = max(deep-1, 0)
		}
	}
	return deep
}

// behindLine is what follows the first line that has something in it.
func behindLine(code string) string {
	for code != "" {
		line, rest, _ := strings.Cut(code, "\n")
		code = rest
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			break
		}
	}
	return code
}

// statement reads a statement, and those in it.
func (r *reading) statement(t *text, s *syntax.Stmt) {
	var open []bool // the nodes above: whether what is in them may not happen
	syntax.Walk(s, func(n syntax.Node) bool {
		if n == nil {
			if open[len(open)-1] {
				r.perhaps--
			}
			open = open[:len(open)-1]
			return true
		}
		switch n := n.(type) {
		case *syntax.Stmt:
			r.command(t, n)
		case *syntax.DeclClause:
			r.assign(t, n.Args)
		case *syntax.WordIter:
			r.loses(n.Name.Value)
		}
		open = append(open, conditional(n))
		if open[len(open)-1] {
			r.perhaps++
		}
		return true
	})
}

// conditional reports whether what is in a node may not happen, or not in this shell.
func conditional(n syntax.Node) bool {
	switch n := n.(type) {
	case *syntax.IfClause, *syntax.WhileClause, *syntax.ForClause, *syntax.CaseClause, *syntax.FuncDecl, *syntax.Subshell, *syntax.CmdSubst, *syntax.BinaryCmd,
		*syntax.ProcSubst, *syntax.CoprocClause:
		return true
	case *syntax.Stmt:
		return n.Background
	}
	return false
}

// command reads a simple command. Where a variable may have one of several values, each is tried, until there is a launcher.
func (r *reading) command(t *text, s *syntax.Stmt) {
	c, ok := s.Cmd.(*syntax.CallExpr)
	if !ok {
		return
	}
	if len(c.Args) == 0 {
		r.assign(t, c.Assigns)
		return
	}
	for pick, found := 0, len(r.all); pick < maxValues && found == len(r.all); pick++ {
		e := expansion{reading: r, text: t, pick: pick}
		for _, w := range c.Args {
			e.word(w)
		}
		r.call(t, e.fields, s.Redirs)
		if !e.more {
			return
		}
	}
}

// call reads the words of a command.
func (r *reading) call(t *text, fields []field, redirs []*syntax.Redirect) {
	fields = command(fields)
	if len(fields) == 0 {
		return
	}
	words := texts(fields)
	switch name := filepath.Base(words[0]); {
	case slices.Contains(assigning, name):
		for _, w := range words[1:] {
			r.loses(w)
		}
	case name == "shift" || name == "set" && !onlyOptions(words[1:]):
		t.args = []field{{text: "$@", unknown: "$@"}}
	case name == "eval":
		r.inner(text{file: t.file, code: strings.Join(words[1:], " "), args: t.args, unknown: unknownOf(fields)})
	case r.launches(t, fields), r.interprets(t, words):
	case fields[0].unknown != "" && strings.HasPrefix(words[0], "$") && !strings.Contains(words[0], "/"): // it may be nothing, or what runs the rest: $SUDO
		r.call(t, fields[1:], redirs)
	default:
		if name == "source" || words[0] == "." {
			fields[0].text = "sh"
		}
		inner := r.textOf(fields)
		switch beside := filepath.Join(filepath.Dir(t.file), filepath.Base(inner.file)); {
		case inner.code == "" && inner.file == "" && slices.Contains(shells, name):
			inner = hereDocument(t, redirs)
		case inner.code == "" && inner.unknown != "" && !strings.ContainsAny(filepath.Base(inner.file), "$`"): // "$(dirname "$0")/train.sh"
			inner.file, inner.code = beside, r.read(beside)
		}
		inner.file = cmp.Or(inner.file, t.file)
		r.inner(inner)
	}
}

// onlyOptions reports whether the words of set are options only: -e, -o pipefail.
func onlyOptions(words []string) bool {
	for i, w := range words {
		if w == "--" || !strings.HasPrefix(w, "-") && !strings.HasPrefix(w, "+") && (i == 0 || !strings.HasSuffix(words[i-1], "o")) {
			return false
		}
	}
	return true
}

// inner reads a text within another. Of its launchers' words those are not known that the shell had to make.
func (r *reading) inner(t text) {
	before := len(r.all)
	r.script(t)
	for i := range r.all[before:] {
		if in := &r.all[before+i]; t.unknown != "" && in.Words != nil {
			in.Words, in.Unknown = nil, t.unknown
		}
	}
}

// launches notes the launcher that words call, if they do.
func (r *reading) launches(t *text, fields []field) bool {
	words := texts(fields)
	n := calls(words)
	if n == 0 && fields[0].unknown != "" && len(words) > 1 && strings.HasPrefix(words[1], "-") { // $PYTHON -m torch.distributed.run
		n = calls(append([]string{"python"}, words[1:]...))
	}
	own := filepath.Base(words[0]) == "muster"
	if n == 0 || !own && !r.theirs(words[n-1]) {
		return false
	}
	in := In{Script: t.file, Call: strings.Join(words[:n], " "), Words: words, Unknown: unknownOf(fields)}
	in.Linked = own || n == 1 && !strings.Contains(words[0], "/") || n == 2 && Knows(words[0])
	if in.Unknown != "" {
		in.Words = nil
	}
	r.all = append(r.all, in)
	return true
}

// interprets notes what Python runs, if the words have it run something.
func (r *reading) interprets(t *text, words []string) bool {
	var m Main
	if isPython(words[0]) {
		m.Module, m.Script, _ = ofPython(words[1:])
	} else if strings.HasSuffix(words[0], ".py") {
		m.Script = words[0]
	}
	if m == (Main{}) {
		return false
	}
	if strings.ContainsAny(m.Script, "$`") { // "$(dirname "$0")/train.py"
		m.Script = filepath.Join(filepath.Dir(t.file), filepath.Base(m.Script))
	}
	if len(r.mains) < maxCalls && !slices.Contains(r.mains, m) {
		r.mains = append(r.mains, m)
	}
	return true
}

// calls is how many of the words say which launcher they call, or that they call muster, which starts jobs in their words and its own; 0: they call none.
func calls(words []string) int {
	if filepath.Base(words[0]) == "muster" && len(words) > 1 {
		if n := calls(Command(words[1:])); n > 0 || words[1] == "run" {
			return 1 + max(n, 1)
		}
		return 0
	}
	c, ok := Of(words)
	if !ok {
		return 0
	}
	return len(words) - len(c.Args)
}

// theirs reports whether a program is a launcher's, and not another one of its name.
func (r *reading) theirs(program string) bool {
	exists := func(path string) bool {
		return r.List != nil && slices.Contains(r.List(filepath.Dir(path)), filepath.Base(path))
	}
	switch {
	case filepath.IsAbs(program):
	case strings.Contains(program, "/"):
		program = filepath.Join(r.Dir, program)
	case filepath.Base(program) == "ds":
		dirs := filepath.SplitList(r.Getenv("PATH"))
		if i := slices.IndexFunc(dirs, func(d string) bool { return exists(filepath.Join(d, program)) }); i >= 0 {
			program = filepath.Join(dirs[i], program)
		}
	}
	return Theirs(program, exists)
}

// hereDocument is what a shell is given as its standard input.
func hereDocument(t *text, redirs []*syntax.Redirect) text {
	for _, redir := range redirs {
		if redir.Hdoc != nil {
			from, to := int(redir.Hdoc.Pos().Offset()), int(redir.Hdoc.End().Offset())
			return text{code: t.code[min(from, len(t.code)):min(to, len(t.code))]}
		}
	}
	return text{}
}

// textOf is what a shell is to run. A program that is no shell may be a script itself.
func (r *reading) textOf(fields []field) (t text) {
	if len(fields) == 0 {
		return t
	}
	if !slices.Contains(shells, filepath.Base(fields[0].text)) {
		if code := r.read(fields[0].text); code == "" || isShellScript(code) {
			t = text{fields[0].text, code, fields[1:], fields[0].unknown}
		}
		return t
	}
	switch rest, commands, input := behindOptions(fields[1:]); {
	case input || len(rest) == 0:
		return t
	case commands:
		return text{code: rest[0].text, args: rest[min(2, len(rest)):], unknown: rest[0].unknown}
	default:
		return text{rest[0].text, r.read(rest[0].text), rest[1:], rest[0].unknown}
	}
}

// behindOptions are a shell's words from the first that is no option: the commands of -c, -lc or -euxc, or a file's name, unless -s says that they come
// on its standard input.
func behindOptions(words []field) (rest []field, commands, input bool) {
	for rest = words; len(rest) > 0; rest = rest[1:] {
		arg := rest[0].text
		switch letters := strings.TrimLeft(arg, "-+"); {
		case letters == arg:
			return rest, commands, false
		case strings.HasPrefix(arg, "--"):
			if (letters == "rcfile" || letters == "init-file") && len(rest) > 1 {
				rest = rest[1:]
			}
		case strings.Contains(letters, "s") && !commands:
			return rest, false, true
		default:
			commands = commands || strings.Contains(letters, "c")
			if strings.ContainsAny(letters, "oO") && len(rest) > 1 { // the name of an option follows
				rest = rest[1:]
			}
		}
	}
	return nil, commands, false
}

// ReadsInput reports whether a command line is a shell's that reads its commands from standard input: bash, sh -s x, bash /dev/stdin.
func ReadsInput(argv []string) bool {
	fields := command(plain(argv))
	if len(fields) > 1 && filepath.Base(fields[0].text) == "busybox" {
		fields = fields[1:]
	}
	if len(fields) == 0 || !slices.Contains(shells[:len(shells)-1], filepath.Base(fields[0].text)) {
		return false
	}
	rest, commands, input := behindOptions(fields[1:])
	switch {
	case input || commands:
		return input
	case len(rest) > 0:
		return slices.Contains(inputs, rest[0].text)
	}
	return !slices.ContainsFunc(fields, func(f field) bool { return f.text == "--version" || f.text == "--help" })
}

// inputs are the files that are standard input.
var inputs = []string{"/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"}

// isShellScript reports whether a file's first line names a shell.
func isShellScript(text string) bool {
	first, _, _ := strings.Cut(text, "\n")
	interpreter, ok := strings.CutPrefix(first, "#!")
	if !ok {
		return false
	}
	words := strings.Fields(interpreter)
	return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(shells, filepath.Base(w)) })
}

// read is a file's text; "" if it was read before.
func (r *reading) read(path string) string {
	if r.seen[path] || len(r.seen) == maxFiles {
		return ""
	}
	r.seen[path] = true
	b, err := r.ReadFile(path)
	if err != nil || len(b) > maxScript {
		return ""
	}
	return string(b)
}
