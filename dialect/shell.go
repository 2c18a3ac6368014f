package dialect

import (
	"cmp"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/muster-run/muster/job"
)

// This file finds launchers in shell scripts, by reading them as text: what a script will do nobody knows before it has done it.

// shells are programs that read commands.
var shells = strings.Fields("sh bash dash ash zsh ksh mksh busybox")

// maxScript bounds what is read of a script.
const maxScript = 1 << 20

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

// InShell finds the first launcher that a command line's shell script calls, or a script that it calls by name.
func InShell(h job.Host, argv []string) (In, bool) {
	file, text := script(h, argv)
	all := inText(h, file, text, map[string]bool{})
	if len(all) == 0 {
		return In{}, false
	}
	first := all[0]
	for _, in := range all {
		if name, _, _ := strings.Cut(in.Call, " "); in.Linked && Knows(name) && !slices.Contains(first.Names, name) {
			first.Names = append(first.Names, name)
		}
	}
	return first, true
}

// maxCalls bounds how many launchers a line may call, and maxScripts how many scripts a script.
const (
	maxCalls   = 16
	maxScripts = 64
)

// inText finds the launchers that a script calls, and the scripts that it calls which were not read before.
func inText(h job.Host, file, text string, readBefore map[string]bool) (all []In) {
	readBefore[file] = true
	lines := slices.Collect(strings.Lines(strings.ReplaceAll(text, "\\\n", " ")))
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		all = append(all, inLine(h, file, line)...)
		if m := shellIn.FindStringSubmatchIndex(line); m != nil && len(readBefore) < maxScripts {
			words, _ := plainWords(line[m[2]:])
			if len(words) > 1 && (words[0] == "source" || words[0] == ".") {
				words[0] = "sh"
			}
			if name, inner := script(h, words); name == "" || !readBefore[name] {
				all = append(all, inText(h, cmp.Or(name, file), inner, readBefore)...)
			}
		}
		if m := hereDocument.FindStringSubmatch(line); m != nil && !readsCommands.MatchString(line) {
			i += 1 + slices.IndexFunc(lines[i+1:], func(l string) bool { return strings.TrimSpace(l) == m[1] }) // or it is none
		}
	}
	return all
}

// inLine finds the launchers that a line calls.
func inLine(h job.Host, file, line string) (all []In) {
	for end := len(line); len(all) < maxCalls; {
		m := called.FindStringSubmatchIndex(line[:end]) // the last one
		if m == nil {
			break
		}
		if end = m[2]; theirs(h, line[m[2]:m[3]]) {
			all = append([]In{callIn(file, line, m[2], m[3])}, all...)
		}
	}
	return all
}

// theirs reports whether a program is a launcher's, and not another one of its name.
func theirs(h job.Host, program string) bool {
	exists := func(path string) bool {
		return h.List != nil && slices.Contains(h.List(filepath.Dir(path)), filepath.Base(path))
	}
	switch {
	case filepath.IsAbs(program):
	case strings.Contains(program, "/"):
		program = filepath.Join(h.Dir, program)
	case filepath.Base(program) == "ds":
		dirs := filepath.SplitList(h.Getenv("PATH"))
		if i := slices.IndexFunc(dirs, func(d string) bool { return exists(filepath.Join(d, program)) }); i >= 0 {
			program = filepath.Join(dirs[i], program)
		}
	}
	return Theirs(program, exists)
}

// callIn is the launcher whose name stands at a place of a line.
func callIn(file, line string, from, to int) In {
	in := In{Script: file, Call: strings.Join(strings.Fields(line[from:to]), " ")}
	program, _, _ := strings.Cut(in.Call, " ")
	in.Linked = filepath.Base(program) == "muster" || !strings.Contains(program, "/") && !isPython(program)
	if from > 0 && strings.ContainsRune(`"'`, rune(line[from-1])) {
		from--
	}
	in.Words, in.Unknown = plainWords(line[from:])
	return in
}

// hereDocument matches where a here-document is announced, of which the text follows, and readsCommands the shell that takes it for commands.
var (
	hereDocument  = regexp.MustCompile(`(?:^|[^<])<<-?\s*["'\\]?([A-Za-z_]\w*)`)
	readsCommands = regexp.MustCompile(`^\s*(?:(?:exec|sudo|env|time)\s+)*(?:\S*/)?(?:` + strings.Join(shells, "|") + `)\s`)
)

// plainWords are those of a shell's command, as far as to what ends it; or what only the shell can know of it.
func plainWords(text string) (words []string, unknown string) {
	var word strings.Builder
	var quote rune
	begun, skip := false, false // a word has; the next one is the file of a redirection
	end := func() {
		if begun && !skip {
			words = append(words, word.String())
		}
		skip = skip && !begun
		begun = false
		word.Reset()
	}
	runes := []rune(strings.TrimRight(text, "\n"))
	for i := 0; i < len(runes); i++ {
		r := runes[i]
		switch {
		case quote == 0 && strings.ContainsRune(";|&)\n", r) || quote == 0 && r == '#' && !begun:
			end()
			return words, ""
		case quote == 0 && (r == '<' || r == '>'):
			if strings.Trim(word.String(), "0123456789") == "" { // 2>
				begun = false
				word.Reset()
			}
			end()
			for skip = true; i+1 < len(runes) && strings.ContainsRune("<>&|", runes[i+1]); i++ {
			}
		case quote != '\'' && (r == '$' || r == '`') || quote == 0 && strings.ContainsRune("*?[{(~", r) && !skip:
			rest := strings.Fields(string(runes[i:]))
			return nil, rest[0]
		case quote != '\'' && r == '\\' && i+1 < len(runes):
			i++
			word.WriteRune(runes[i])
			begun = true
		case r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, begun = r, true
		case quote == 0 && (r == ' ' || r == '\t'):
			end()
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if quote != 0 {
		return nil, "a quoted text of several lines"
	}
	end()
	return words, ""
}

// A launcher stands where a command may: at the beginning of a line, behind what separates commands, and behind the words that run another one.
// So does a shell, or a script, that may have one in it.
const commandIn = `^(?:(?:[^#'"]|"[^"]*"|'[^']*')*(?:[;&|({` + "`" + `]|(?:^|\s)(?:then|do|else)\s))?\s*` +
	`(?:(?:exec|time|nohup|nice|sudo|command|stdbuf -\S+|timeout(?: -\S+)* \S+|(?:/usr/bin/)?env)\s+)*(?:[A-Za-z_]\w*=\S*\s+)*`

var (
	called  = regexp.MustCompile(commandIn + `["']?(` + programs() + `)["']?(?:\s|$)`)
	shellIn = regexp.MustCompile(commandIn + `((?:(?:\S*/)?(?:` + strings.Join(shells, "|") + `)|source|\.)\s.*|[^\s'"$=]*(?:/[^\s'"$=]*|\.sh)(?:\s.*)?$)`)
)

// programs is a pattern of all launchers' programs and modules, and of muster, which starts jobs in their words and its own.
func programs() string {
	var names, modules []string
	own := []string{"run"}
	for _, d := range dialects {
		if !Knows(d.Name) {
			own = append(own, d.Name)
		}
		for _, p := range d.Programs {
			names = append(names, strings.ReplaceAll(regexp.QuoteMeta(p), " ", `\s+`))
		}
		for _, m := range d.Modules {
			modules = append(modules, regexp.QuoteMeta(m))
		}
	}
	python := `(?:\S*/)?python[0-9.]*\s+(?:-[WX]\s*\S+\s+|-\w+\s+)*-\w*m\s*(?:` + strings.Join(modules, "|") + `)`
	return `(?:\S*/)?(?:` + strings.Join(names, "|") + `)|` + python + `|(?:\S*/)?muster\s+(?:` + strings.Join(slices.Concat(own, names, []string{python}), "|") + `)`
}

// script returns the text that a shell is to run, and the file that it is in. A program that is no shell may be a script itself.
func script(h job.Host, argv []string) (file, text string) {
	if len(argv) == 0 {
		return "", ""
	}
	if !slices.Contains(shells, filepath.Base(argv[0])) {
		if text = read(h, argv[0]); isShellScript(text) {
			return argv[0], text
		}
		return "", ""
	}
	commands := false
	for rest := argv[1:]; len(rest) > 0; rest = rest[1:] {
		arg := rest[0]
		switch letters := strings.TrimLeft(arg, "-+"); {
		case letters == arg && commands: // of -c, -lc, -euxc
			return "", arg
		case letters == arg:
			return arg, read(h, arg)
		case strings.HasPrefix(arg, "--"):
			if (letters == "rcfile" || letters == "init-file") && len(rest) > 1 {
				rest = rest[1:]
			}
			continue
		default:
			commands = commands || strings.Contains(letters, "c")
			if strings.ContainsAny(letters, "oO") && len(rest) > 1 { // the name of an option follows
				rest = rest[1:]
			}
		}
	}
	return "", ""
}

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

func read(h job.Host, path string) string {
	b, err := h.ReadFile(path)
	if err != nil || len(b) > maxScript {
		return ""
	}
	return string(b)
}
