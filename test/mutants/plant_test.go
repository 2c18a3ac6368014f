package mutants

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A mistake is lines of a file of which others stand there, as people get them wrong.
type mistake struct {
	number     int // from 1
	file, what string
	right      string // whole lines
	wrong      string
}

// list reads the mistakes. Each begins with # and its file; of the lines below it those with - are in the code, those with + instead of them, and the
// others in both.
func list(t *testing.T) (all []*mistake) {
	b, err := os.ReadFile("mistakes.diff")
	if err != nil {
		t.Fatal(err)
	}
	for n, line := range strings.Split(strings.TrimSuffix(string(b), "\n"), "\n") {
		if head, is := strings.CutPrefix(line, "# "); is {
			file, what, _ := strings.Cut(head, ": ")
			all = append(all, &mistake{number: len(all) + 1, file: file, what: what, right: "\n", wrong: "\n"})
			continue
		}
		if line == "" {
			continue
		}
		m, text := all[len(all)-1], line[1:]+"\n"
		switch line[0] {
		case '-':
			m.right += text
		case '+':
			m.wrong += text
		case ' ':
			m.right, m.wrong = m.right+text, m.wrong+text
		default:
			t.Fatalf("mistakes.diff:%d: %q", n+1, line)
		}
	}
	return all
}

// A source is a file in which mistakes are planted.
type source struct {
	text    string
	names   *token.File
	tree    *ast.File
	guards  map[int]string // what is put where
	wrongly string         // functions with a mistake in each
}

func read(path string) (*source, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, path, b, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &source{text: string(b), names: files.File(tree.Pos()), tree: tree, guards: map[int]string{}}, nil
}

// plant puts the function with the mistake beside the right one, which calls it when it is that mistake's turn.
func (s *source) plant(m *mistake) error {
	if n := strings.Count(s.text, m.right); n != 1 {
		return fmt.Errorf("its lines are there %d times", n)
	}
	at := strings.Index(s.text, m.right)
	for _, d := range s.tree.Decls {
		f, is := d.(*ast.FuncDecl)
		if !is || s.names.Offset(f.Pos()) > at+1 || s.names.Offset(f.End()) < at+len(m.right)-1 {
			continue
		}
		begin, name, end := s.names.Offset(f.Pos()), s.names.Offset(f.Name.Pos()), s.names.Offset(f.End())
		twin, called := fmt.Sprintf("%sMutant%d", f.Name.Name, m.number), 1+name-begin
		wrong := strings.Replace("\n"+s.text[begin:end]+"\n", m.right, m.wrong, 1)
		s.wrongly += "\n" + wrong[:called] + twin + wrong[called+len(f.Name.Name):]
		call := fmt.Sprintf("%s(%s)", twin, strings.Join(arguments(f.Type), ", "))
		if f.Recv != nil {
			call = f.Recv.List[0].Names[0].Name + "." + call
		}
		if f.Type.Results != nil {
			call = "return " + call
		} else {
			call += "; return"
		}
		s.guards[s.names.Offset(f.Body.Lbrace)+1] += fmt.Sprintf("if mutant == %d { %s };", m.number, call)
		return nil
	}
	return fmt.Errorf("its lines are in no function")
}

// arguments hand on what a function was called with.
func arguments(f *ast.FuncType) (all []string) {
	for _, field := range f.Params.List {
		_, variadic := field.Type.(*ast.Ellipsis)
		for _, name := range field.Names {
			arg := name.Name
			if variadic {
				arg += "..."
			}
			all = append(all, arg)
		}
	}
	return all
}

// planted is the file with all of its mistakes.
func (s *source) planted() string {
	var b strings.Builder
	for i := range len(s.text) {
		b.WriteString(s.guards[i])
		b.WriteByte(s.text[i])
	}
	return b.String() + s.wrongly
}

// turn is the file of a package that knows whose turn it is.
const turn = "package %s\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar mutant, _ = strconv.Atoi(os.Getenv(\"MUTANT\"))\n"

// overlay writes all files with mistakes, and for the compiler where they are to be.
func overlay(t *testing.T, all []*mistake) (path string) {
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	sources, replace := map[string]*source{}, map[string]string{}
	for _, m := range all {
		s := sources[m.file]
		if s == nil {
			if s, err = read(filepath.Join(root, m.file)); err != nil {
				t.Fatalf("mistake %d: %v", m.number, err)
			}
			sources[m.file] = s
		}
		if err := s.plant(m); err != nil {
			t.Errorf("mistake %d, in %s, %s: %v:%s", m.number, m.file, m.what, err, m.right)
		}
	}
	put := func(file, text string) {
		at := filepath.Join(dir, strings.ReplaceAll(file, "/", "-"))
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root, file)] = at
	}
	for file, s := range sources {
		put(file, s.planted())
		put(filepath.Join(filepath.Dir(file), "mutant.go"), fmt.Sprintf(turn, s.tree.Name.Name))
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
