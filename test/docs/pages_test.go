package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const top = "../.."

// A typed is a command that a page has its reader type, and whatever the page shows below it in the same block.
type typed struct {
	page  string
	at    int // its line
	text  string
	shown []string
}

// A shown is a block of a page without a command: what something says, or a drawing. Code within the text may be what something says, too.
type shown struct {
	page   string
	at     int
	lines  []string
	within bool
}

// programs are those with which a command begins. What begins otherwise is output, or no command line.
var programs = strings.Fields(`muster make go git kubectl docker buildah podman curl cat echo perl ln source prometheus promtool sbatch srun systemctl openssl
	sha256sum torchrun sudo apt apt-get cd export pip wget tar`)

// names is a command of muster's without anything that one would have to know of it.
var names = regexp.MustCompile(`^muster [a-z]+( [a-z]+)?$`)

// read finds what the pages have one type, and what they show.
func read(t *testing.T) (commands []typed, blocks []shown) {
	t.Helper()
	for _, p := range pages(t) {
		c, b := parse(p.name, p.text)
		commands, blocks = append(commands, c...), append(blocks, b...)
	}
	return commands, blocks
}

// A page is what people read, by its name from the top.
type page struct{ name, text string }

func pages(t *testing.T) (all []page) {
	t.Helper()
	for _, pattern := range []string{"README.md", "docs/*.md", "examples/*/README.md"} {
		paths, err := filepath.Glob(filepath.Join(top, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatal(pattern, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(top, path)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, page{name, string(text)})
		}
	}
	return all
}

// A table is a head, a rule and rows of as many cells, with nothing between them: a row elsewhere, or after an empty line, is shown as text with bars.
func TestTables(t *testing.T) {
	for _, p := range pages(t) {
		fence, cells, before := false, 0, ""
		lines := strings.Split(p.text, "\n")
		for i, line := range lines {
			if strings.HasPrefix(line, "```") {
				fence = !fence
			}
			row := !fence && strings.HasPrefix(line, "|")
			switch n := strings.Count(line, "|") - strings.Count(line, `\|`); {
			case !row && !fence && strings.HasPrefix(before, "|") && line != "":
				t.Errorf("%s:%d: the table ends without an empty line", p.name, i+1)
			case !row:
			case !strings.HasPrefix(before, "|"):
				if before != "" || !rule.MatchString(lines[i+1]) {
					t.Errorf("%s:%d: %.60q is no head of a table", p.name, i+1, line)
				}
				cells = n
			case n != cells:
				t.Errorf("%s:%d: %.60q has %d bars, and not %d as the rows before", p.name, i+1, line, n, cells)
			}
			before = line
		}
	}
}

var rule = regexp.MustCompile(`^\|( ?:?-+:? ?\|)+$`)

// parse is read for one page. A block is indented by four spaces, or fenced.
func parse(page, text string) (commands []typed, blocks []shown) {
	var block, prose []string
	begin, fence := 0, false
	end := func() {
		c, b := look(page, begin, block)
		commands, blocks = append(commands, c...), append(blocks, b...)
		block = nil
	}
	for i, line := range strings.Split(text, "\n") {
		mark := strings.HasPrefix(line, "```")
		code, indented := strings.CutPrefix(line, "    ")
		inside := !mark && (fence || indented)
		if !inside && len(block) > 0 {
			end()
		}
		if mark {
			fence = !fence
		}
		if inside {
			if len(block) == 0 {
				begin = i + 1
			}
			if !fence {
				line = code
			}
			block = append(block, line)
			line = ""
		} else if mark {
			line = ""
		}
		prose = append(prose, line)
	}
	c, b := within(page, strings.Join(prose, "\n"))
	return append(commands, c...), append(blocks, b...)
}

// look divides a block. A comment is none of the command, and a line that ends in \ goes on.
func look(page string, begin int, block []string) (commands []typed, blocks []shown) {
	last := func() *typed { return &commands[len(commands)-1] }
	goes := false
	for i, line := range block {
		switch command := strings.TrimSpace(comment.ReplaceAllString(strings.TrimPrefix(line, "$ "), "")); {
		case goes:
			last().text += " " + strings.TrimSuffix(command, `\`)
		case slices.Contains(programs, first(command)):
			commands = append(commands, typed{page: page, at: begin + i, text: strings.TrimSuffix(command, `\`)})
		case len(commands) > 0:
			if strings.TrimSpace(line) != "" {
				last().shown = append(last().shown, line)
			}
		default:
			return nil, []shown{{page: page, at: begin, lines: block}}
		}
		goes = strings.HasSuffix(line, `\`)
	}
	return commands, nil
}

var comment = regexp.MustCompile(`\s+# .*$`)

func first(command string) string {
	word, _, _ := strings.Cut(command, " ")
	return word
}

// within finds commands in the text: code with more than a word that begins with a program.
func within(page, prose string) (commands []typed, said []shown) {
	for _, m := range code.FindAllStringSubmatchIndex(prose, -1) {
		text := strings.Join(strings.Fields(prose[m[2]:m[3]]), " ")
		if strings.Contains(text, " ") && slices.Contains(programs, first(text)) {
			commands = append(commands, typed{page: page, at: 1 + strings.Count(prose[:m[2]], "\n"), text: text})
		} else {
			said = append(said, shown{page: page, lines: []string{text}, within: true})
		}
	}
	return commands, said
}

var code = regexp.MustCompile("`([^`]+)`")

// masked is a line of output with everything in it that differs from time to time taken out.
func masked(line string) string {
	line = figures.ReplaceAllString(line, "0")
	return strings.Join(strings.Fields(line), " ")
}

// A duration is a figure, whatever its units; where a column has none yet, it has a dash.
var figures = regexp.MustCompile(`(\d+(\.\d+)?(h|ms|m|µs|s)\b)+|(\d+(h|m))+\d+(\.\d+)?s|\d+(\.\d+)?`)

// like reports whether output is what a page shows, figures aside. An … stands for anything.
func like(page, output string) bool {
	pattern := "^" + strings.Join(quoted(elision.Split(masked(page), -1)), ".*") + "$"
	return regexp.MustCompile(pattern).MatchString(masked(output))
}

var elision = regexp.MustCompile(`\w*…`)

func quoted(parts []string) []string {
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return parts
}
