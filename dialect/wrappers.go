package dialect

import (
	"path/filepath"
	"strings"

	"github.com/muster-run/muster/lazy"
)

// A wrapper is a program, or a word of the shell, that runs the command behind it.
type wrapper struct {
	word    string // that must follow: run
	letters string // options that have a value, which is the next word if it does not follow at once
	words   string // the same, of more than a letter
	takes   int    // words before the command
	not     string // options with which it runs nothing
}

// wrappers are those that people write before launchers.
var wrappers = map[string]wrapper{
	"exec":    {letters: "a"},
	"command": {not: "vV"},
	"builtin": {}, "nohup": {}, "setsid": {}, "unbuffer": {}, "catchsegv": {},
	"time":    {letters: "fo", words: "--format --output"},
	"nice":    {letters: "n", words: "--adjustment"},
	"ionice":  {letters: "cn", words: "--class --classdata", not: "pPu"},
	"chrt":    {letters: "TPD", takes: 1, not: "pm"},
	"taskset": {takes: 1, not: "p"},
	"numactl": {letters: "iNmpPCw", words: "--interleave --weighted-interleave --cpunodebind --membind --preferred --preferred-many --physcpubind", not: "Hs"},
	"sudo":    {letters: "CDghpRrTtUu", words: "--chdir --chroot --close-from --command-timeout --group --host --prompt --role --type --user", not: "lvKk"},
	"doas":    {letters: "Cu"},
	"env":     {letters: "uC", words: "--unset --chdir"},
	"stdbuf":  {letters: "ioe", words: "--input --output --error"},
	"timeout": {letters: "ks", words: "--kill-after --signal", takes: 1},
	"strace":  {letters: "aAbeEIoOPsSuUX", not: "p"},
	"nsys":    {word: "profile", letters: "bcdefnopstwxy", words: "--trace --output --sample --stats --force-overwrite --capture-range --capture-range-end --duration --delay"},
	"tini":    {letters: "pe"}, "dumb-init": {letters: "r", words: "--rewrite"},
	"conda": condaRun, "mamba": condaRun, "micromamba": condaRun,
	"uv":     {word: "run", letters: "pw", words: "--python --with --directory --project --env-file --extra --group --package"},
	"poetry": {word: "run"}, "pipenv": {word: "run"}, "pdm": {word: "run"}, "pixi": {word: "run"},
}

var condaRun = wrapper{word: "run", letters: "np", words: "--name --prefix --cwd"}

// given matches a variable that is set for a command.
var given = lazy.Regexp(`^[A-Za-z_]\w*=`)

// command is what is run in the end, whatever stands before it; nothing where that runs nothing.
func command(fields []field) []field {
	for len(fields) > 0 {
		w, ok := wrappers[filepath.Base(fields[0].text)]
		if !ok {
			return fields
		}
		if w.word != "" {
			if fields = fields[1:]; len(fields) == 0 || fields[0].text != w.word {
				return nil
			}
		}
		fields = w.behind(fields[1:])
	}
	return nil
}

// behind is what follows the wrapper's own words.
func (w wrapper) behind(fields []field) []field {
	for len(fields) > 0 {
		arg := fields[0].text
		switch {
		case arg == "--":
			return fields[min(1+w.takes, len(fields)):]
		case given().MatchString(arg):
		case !strings.HasPrefix(arg, "-") || arg == "-":
			return fields[min(w.takes, len(fields)):]
		case strings.HasPrefix(arg, "--"):
			if strings.Contains(" "+w.words+" ", " "+arg+" ") && len(fields) > 1 {
				fields = fields[1:]
			}
		default:
			i := strings.IndexAny(arg, w.letters)
			if strings.ContainsAny(arg[1:max(i, 1)], w.not) || i < 0 && strings.ContainsAny(arg[1:], w.not) {
				return nil
			}
			if i == len(arg)-1 && len(fields) > 1 {
				fields = fields[1:]
			}
		}
		fields = fields[1:]
	}
	return nil
}
