package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/dialect"
)

// commandLines finds command lines of muster's in a page: lines of code, and code within a line.
var commandLines = regexp.MustCompile("(?m)(?:^(?:    |\\$ |)|`)(muster [a-z][^`\n]*)")

// pages are those of docs, and all that there are.
func pages(t *testing.T) (docs, all []string) {
	t.Helper()
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := filepath.Glob("../../examples/*/README.md")
	if err != nil {
		t.Fatal(err)
	}
	return docs, slices.Concat(docs, examples, []string{"../../README.md"})
}

// Whatever our pages say to type is there: the command, and each of its flags.
func TestPages(t *testing.T) {
	_, all := pages(t)
	lines := 0
	for _, page := range all {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range commandLines.FindAllStringSubmatch(fenced(string(text)), -1) {
			lines++
			if why := untrue(strings.Fields(m[1])[1:]); why != "" {
				t.Errorf("%s: %q: %s", page, m[1], why)
			}
		}
	}
	if lines < 200 {
		t.Errorf("%d command lines are found", lines)
	}
}

// Every page can be found from the README, and every link within the project leads somewhere: to a file, and to a heading of it.
func TestLinks(t *testing.T) {
	docs, all := pages(t)
	found := map[string]bool{}
	for _, page := range append(all, "../../CHANGELOG.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range links.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], ":") {
				continue
			}
			path := page
			if m[1] != "" {
				path = filepath.Join(filepath.Dir(page), m[1])
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if m[2] != "" && !slices.Contains(headings(t, path), m[2]) {
				t.Errorf("%s: %s has no heading %s", page, path, m[2])
			}
			found[path] = found[path] || strings.HasSuffix(page, "../README.md")
		}
	}
	for _, page := range docs {
		if !found[page] {
			t.Errorf("README.md does not lead to %s", page)
		}
	}
}

var links = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)

// headings are those of a page, as links name them: small letters, no marks, and dashes for spaces.
func headings(t *testing.T, page string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
		name := strings.ReplaceAll(marks.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		for n, once := 1, name; slices.Contains(all, name); n++ {
			name = fmt.Sprint(once, "-", n)
		}
		all = append(all, name)
	}
	return all
}

var (
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	marks   = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// fenced leaves of a page its inline code and, indented, its lines of code.
func fenced(page string) string {
	var b strings.Builder
	code := false
	for line := range strings.Lines(page) {
		switch {
		case strings.HasPrefix(line, "```"):
			code = !code
		case code:
			b.WriteString("    " + line)
		case strings.HasPrefix(line, "    "), strings.Contains(line, "`"):
			b.WriteString(strings.ReplaceAll(line, "\nmuster", "\n muster"))
		}
	}
	return b.String()
}

// untrue says what of a command line is not there; "": all is.
func untrue(words []string) string {
	c := find(commands(), words[0])
	if c == nil {
		if _, launches := dialect.Of(dialect.Command(words)); launches || dialect.Knows(words[0]) || slices.ContainsFunc(stands(), func(s stand) bool { return s.name == words[0] }) {
			return ""
		}
		return "no such command"
	}
	words = words[1:]
	for len(c.Subcommands) > 0 && len(words) > 0 {
		sub := find(c.Subcommands, strings.Trim(words[0], ",;.:"))
		if sub == nil {
			return ""
		}
		c, words = sub, words[1:]
	}
	takes := map[string]bool{"help": false, "help-all": false} // flag → whether it takes a value
	for _, f := range c.Flags {
		for _, name := range f.Names() {
			_, plain := f.(*cli.BoolFlag)
			takes[name] = !plain
		}
	}
	for i := 0; i < len(words); i++ {
		word := strings.TrimLeft(words[i], "[")
		if word == "--" || word == "#" || !strings.HasPrefix(word, "--") {
			return "" // what follows is another program's
		}
		name, _, valued := strings.Cut(strings.TrimRight(strings.TrimPrefix(word, "--"), "],.;:"), "=")
		name = strings.ReplaceAll(name, "_", "-")
		if c.Name == "check" && name == "peers" {
			return "" // flags of run may follow
		}
		value, known := takes[name]
		if !known {
			return "no flag --" + name
		}
		if value && !valued {
			i++
		}
	}
	return ""
}
