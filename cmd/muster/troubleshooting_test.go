package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// What docs/troubleshooting.md says that muster says is what the code says, but for names and numbers.
func TestTroubleshootingSays(t *testing.T) {
	said, quoted := texts(t), messages(readFile(t, "../../docs/troubleshooting.md"))
	for _, message := range quoted {
		if !has(said, message) && !hasParts(said, message) {
			t.Errorf("%q: no text of the code has it", message)
		}
	}
	if len(quoted) < 200 {
		t.Errorf("%d messages are found", len(quoted))
	}
}

// Every exit code and every class of verdicts leads to a part of the page, and every such part is there.
func TestTroubleshootingIsWhole(t *testing.T) {
	page := readFile(t, "../../docs/troubleshooting.md")
	byCode, rest, _ := strings.Cut(page, "## By class")
	byClass, _, _ := strings.Cut(rest, "\n## ")
	for name, value := range constants(t, "../../job/exit.go") {
		code, err := strconv.Atoi(value)
		switch {
		case err != nil && !strings.Contains(byClass, "`"+strings.Trim(value, `"`)+"`"):
			t.Errorf("no line of the classes is for %s", value)
		case strings.HasPrefix(name, "Exit") && !hasCode(byCode, code, false):
			t.Errorf("no line of the codes is for %d, %s", code, name)
		}
	}
	for code := range 114 + 11 {
		if !hasCode(byCode, code, true) {
			t.Errorf("no line of the codes is for %d", code)
		}
	}
	for _, m := range regexp.MustCompile(`\(#([^)]*)\)`).FindAllStringSubmatch(page, -1) {
		if !slices.Contains(anchors(page), m[1]) {
			t.Errorf("there is no heading #%s", m[1])
		}
	}
}

// messages are what stands as code in the first column of tables whose head is "it says".
func messages(page string) (all []string) {
	inside := false
	for line := range strings.Lines(page) {
		switch {
		case strings.HasPrefix(line, "| it says |"):
			inside = true
		case !strings.HasPrefix(line, "|"):
			inside = false
		case inside:
			first, _, _ := strings.Cut(line[1:], " | ")
			for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(first, -1) {
				all = append(all, m[1])
			}
		}
	}
	return all
}

// has reports whether one of the texts has the message, in which … stands for a value.
func has(texts []string, message string) bool {
	return slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, message) })
}

// hasParts reports whether the texts, of which a message may be put together, have each part that stands between values. One
// of them has to be long enough to be nobody else's words.
func hasParts(texts []string, message string) bool {
	longest := 0
	for part := range strings.SplitSeq(message, "…") {
		part = strings.Trim(part, " ,:;()")
		if longest = max(longest, len(part)); !has(texts, part) {
			return false
		}
	}
	return longest >= 8
}

// hasCode reports whether a row's first cell has the number: by itself or, where that is enough, in a range.
func hasCode(table string, code int, ranges bool) bool {
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		first, _, _ := strings.Cut(line[2:], " |")
		for word := range strings.SplitSeq(first, ", ") {
			low, high, isRange := strings.Cut(word, "–")
			from, err := strconv.Atoi(low)
			to := from
			if isRange && ranges {
				to, _ = strconv.Atoi(high)
			}
			if err == nil && from <= code && code <= to {
				return true
			}
		}
	}
	return false
}

// anchors are the names by which a page's headings are reached.
func anchors(page string) (all []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		name := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(name, " ", "-"))
	}
	return all
}

// texts are all strings of the program's own code. Of those that are put together of several, the parts between values.
func texts(t *testing.T) (all []string) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (path == "../../test" || path == "../../bin" || path == "../../.git" || entry.Name() == "testdata"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			e, isExpr := n.(ast.Expr)
			if !isExpr {
				return true
			}
			text, isText := folded(e)
			if isText {
				all = append(all, text)
			}
			return !isText
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// folded is the text of a literal, or of a sum in which one is; what is not known of it is "…".
func folded(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return placeholders.ReplaceAllString(text, "…"), err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, isLeft := folded(e.X)
		right, isRight := folded(e.Y)
		if !isLeft {
			left = "…"
		}
		if !isRight {
			right = "…"
		}
		return left + right, e.Op == token.ADD && (isLeft || isRight)
	case *ast.ParenExpr:
		return folded(e.X)
	}
	return "", false
}

// placeholders are the places of values in formats.
var placeholders = regexp.MustCompile(`%[-+#0-9.\[\]]*[a-zA-Z]`)

// constants are those that a file declares, each with its text in the source.
func constants(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, is := n.(*ast.ValueSpec); is && len(spec.Values) == 1 {
			if lit, is := spec.Values[0].(*ast.BasicLit); is {
				found[spec.Names[0].Name] = lit.Value
			}
		}
		return true
	})
	return found
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
