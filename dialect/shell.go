package dialect

import (
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
	Call   string // as the script has it: "torchrun", "/opt/conda/bin/torchrun", "python -m torch.distributed.run"
	Linked bool   // it is called by its bare name, which PATH makes a link to muster
}

// InShell finds the first launcher that a command line's shell script calls.
func InShell(h job.Host, argv []string) (In, bool) {
	file, text := script(h, argv)
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		if m := called.FindStringSubmatch(line); m != nil {
			call := strings.Join(strings.Fields(m[1]), " ")
			return In{Script: file, Call: call, Linked: !strings.Contains(call, "/") && !strings.Contains(call, " -m ")}, true
		}
	}
	return In{}, false
}

// called matches a launcher where a command may stand: at the beginning of a line, behind what separates commands, and
// behind the words that run another one.
var called = regexp.MustCompile(`^(?:(?:[^#'"]|"[^"]*"|'[^']*')*(?:[;&|({` + "`" + `]|(?:^|\s)(?:then|do|else)\s))?\s*` +
	`(?:(?:exec|time|nohup|nice|sudo|stdbuf -\S+|timeout(?: -\S+)* \S+|(?:/usr/bin/)?env)\s+)*(?:[A-Za-z_]\w*=\S*\s+)*` +
	`["']?(` + programs() + `)["']?(?:\s|$)`)

// programs is a pattern of all launchers' programs and modules.
func programs() string {
	var names, modules []string
	for _, d := range dialects {
		for _, p := range d.Programs {
			names = append(names, strings.ReplaceAll(regexp.QuoteMeta(p), " ", `\s+`))
		}
		for _, m := range d.Modules {
			modules = append(modules, regexp.QuoteMeta(m))
		}
	}
	return `(?:\S*/)?(?:` + strings.Join(names, "|") + `)|(?:\S*/)?python[0-9.]*\s+(?:-\w\s+)*-m\s*(?:` + strings.Join(modules, "|") + `)`
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
