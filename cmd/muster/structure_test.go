package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-run/muster/test/golden"
	"github.com/urfave/cli/v2"
)

const module = "github.com/muster-run/muster"

// Every package says in exactly one place what it is.
func TestPackageComments(t *testing.T) {
	for _, dir := range strings.Fields(run1(t, "go", "list", "-f", "{{.Dir}}", module+"/...")) {
		var commented []string
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil {
				commented = append(commented, filepath.Base(name))
			}
		}
		if len(commented) != 1 {
			t.Errorf("%s: the package comment should stand in one file, not in %q", dir, commented)
		}
	}
}

// Every package that has tests looks at what they leave; those that play whole programs, this one and what is in test, do not.
func TestPackagesLookForLeaks(t *testing.T) {
	looks := regexp.MustCompile(`(?s)func TestMain\(m \*testing\.M\).*\bleak\.(Main|Run)\(m\)`)
	files := "{{.ImportPath}} {{.Dir}}{{range .TestGoFiles}} {{.}}{{end}}{{range .XTestGoFiles}} {{.}}{{end}}"
	for _, row := range strings.Split(strings.TrimSpace(run1(t, "go", "list", "-tags", "full", "-f", files, module+"/...")), "\n") {
		words := strings.Fields(row)
		found := len(words) == 2 || words[0] == module+"/cmd/muster" || words[0] == module+"/heartbeat/page" || strings.HasPrefix(words[0], module+"/test/")
		for _, name := range words[2:] {
			text, err := os.ReadFile(filepath.Join(words[1], name))
			found = found || err == nil && looks.Match(text)
		}
		if !found {
			t.Errorf("%s: no TestMain calls leak.Main", words[0])
		}
	}
}

// What every start of the program would pay for, and hardly one needs: for a variable of a package no pattern is compiled, and no function called that
// is written there. Those that are compiled at their first use can be.
func TestPackagesBeginWithoutWork(t *testing.T) {
	for _, dir := range strings.Fields(run1(t, "go", "list", "-deps", "-f", "{{if .Module}}{{if .Module.Main}}{{.Dir}}{{end}}{{end}}", ".")) {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			names := token.NewFileSet()
			f, err := parser.ParseFile(names, name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				if g, ok := d.(*ast.GenDecl); ok {
					ast.Inspect(g, func(n ast.Node) bool {
						call, ok := n.(*ast.CallExpr)
						switch {
						case ok && onTheSpot(call.Fun):
							t.Errorf("%s: work for every start; lazy.Regexp and sync.OnceValue leave it until it is needed", names.Position(call.Pos()))
						case ok && isOf(call.Fun, "lazy"):
							if _, err := regexp.Compile(literal(call.Args[0])); err != nil || literal(call.Args[0]) == "" {
								t.Errorf("%s: no literal that is a pattern: %v", names.Position(call.Pos()), err)
							}
						}
						_, later := n.(*ast.FuncLit)
						return !later
					})
				}
			}
		}
	}
}

// onTheSpot reports whether what is called compiles a pattern, or is a function that was written for this call.
func onTheSpot(fun ast.Expr) bool {
	_, written := fun.(*ast.FuncLit)
	return written || isOf(fun, "regexp")
}

// isOf reports whether a function is one of a package.
func isOf(fun ast.Expr, name string) bool {
	f, ok := fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	from, ok := f.X.(*ast.Ident)
	return ok && from.Name == name
}

// literal is the text that stands in the source; "": it is no text, or a name's.
func literal(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.BasicLit:
		text, _ := strconv.Unquote(x.Value)
		return text
	case *ast.BinaryExpr:
		return literal(x.X) + literal(x.Y)
	}
	return ""
}

// The linker leaves methods out that nobody calls, as long as nothing looks for methods by their names, as templates do: with them the program is a
// tenth larger, and slower to start.
func TestProgramLooksForNoMethods(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "build", "-ldflags=-dumpdep", "-o", os.DevNull, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	graph, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %.2000s", err, graph)
	}
	if !bytes.Contains(graph, []byte("main.main")) {
		t.Fatalf("the linker said %.200q", graph)
	}
	if before, after, found := bytes.Cut(graph, []byte("<ReflectMethod>")); found {
		from, _, _ := bytes.Cut(after, []byte("\n"))
		t.Errorf("methods are looked for by their names: %s<ReflectMethod>%s", before[bytes.LastIndexByte(before, '\n')+1:], from)
	}
}

// What this program starts, or becomes, gets the timers that it was started with: nothing starts one without package timerslack.
func TestProgramsGetTheirTimers(t *testing.T) {
	ways := regexp.MustCompile(`\b(exec\.Command(Context)?|(syscall|unix)\.(Exec|ForkExec)|os\.StartProcess)\(`)
	own := regexp.MustCompile(`timerslack\.(Given|Exec)\(`)
	found := 0
	for _, row := range strings.Fields(run1(t, "go", "list", "-deps", "-tags", "full", "-f", "{{if .Module}}{{if .Module.Main}}{{.Dir}}{{end}}{{end}}", ".")) {
		files, err := filepath.Glob(filepath.Join(row, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") || filepath.Base(row) == "timerslack" {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			calls := len(ways.FindAll(text, -1))
			found += calls
			if calls > 0 && !own.Match(text) {
				t.Errorf("%s starts a program that would get muster's late timers: timerslack.Given", name)
			}
		}
	}
	if found < 6 {
		t.Errorf("%d places found: the search does not work", found)
	}
}

// The map of the house: which room opens which, in the build that everybody runs, and what is different in the full one, which
// that one carries. It forbids nothing; a new arrow is a line in the diff.
func TestGoldenImports(t *testing.T) {
	lean, full := imports(t, ""), imports(t, "full")
	rows := slices.Clone(lean)
	for _, row := range full {
		if !slices.Contains(lean, row) {
			rows = append(rows, "full build, "+row)
		}
	}
	golden.File(t, "testdata/imports.txt", strings.Join(rows, "\n")+"\n")
}

// imports is a row for each of our packages, with those that it imports when built with tags.
func imports(t *testing.T, tags string) (rows []string) {
	t.Helper()
	list := run1(t, "go", "list", "-tags", tags, "-f", `{{.ImportPath}}:{{range .Imports}} {{.}}{{end}}`, module+"/...")
	for _, row := range strings.Split(strings.TrimSpace(list), "\n") {
		words := strings.Fields(row)
		room := strings.TrimPrefix(strings.TrimSuffix(words[0], ":"), module+"/")
		var ours []string
		for _, p := range words[1:] {
			if rest, ok := strings.CutPrefix(p, module+"/"); ok {
				ours = append(ours, rest)
			}
		}
		rows = append(rows, strings.TrimSpace(room+": "+strings.Join(ours, " ")))
	}
	slices.Sort(rows)
	return rows
}

func run1(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return string(out)
}

// What a person reads who asks for help: every page as a whole, within the height of a screen where it is the first.
func TestGoldenHelp(t *testing.T) {
	var all strings.Builder
	overview(&all)
	for _, c := range commands() {
		pageOf(&all, c)
	}
	golden.File(t, "testdata/help.txt", all.String())
	var first strings.Builder
	help(&first, runCommand(), false)
	if n := strings.Count(first.String(), "\n"); n > 40 {
		t.Errorf("`muster run --help` has %d lines, more than 40", n)
	}
}

func pageOf(w *strings.Builder, c *cli.Command) {
	w.WriteString("\n----\n")
	if len(c.Subcommands) == 0 {
		help(w, c, true)
		return
	}
	group(w, c)
	for _, sub := range c.Subcommands {
		sub.Name = c.Name + " " + sub.Name
		pageOf(w, sub)
	}
}

// Each flag has one variable and a text; no two have the same name.
func TestFlagsAreComplete(t *testing.T) {
	for _, c := range commands() {
		seen := map[string]bool{}
		for _, f := range c.Flags {
			checked(f, "test", "") // panics at a kind of flag that it does not know
			if usageOf(f) == "" {
				t.Errorf("%s: --%s has no text", c.Name, f.Names()[0])
			}
			for _, n := range f.Names() {
				if seen[n] {
					t.Errorf("%s: two flags are called %s", c.Name, n)
				}
				seen[n] = true
			}
		}
	}
}

func TestNormalise(t *testing.T) {
	flags := runCommand().Flags
	for _, c := range []struct{ in, want, err string }{
		{"--nproc_per_node=2 --nnodes 2 train.py --nnodes 7 --x_y", "--nproc-per-node=2 --nnodes=2 train.py --nnodes 7 --x_y", ""},
		{"-m pkg.mod --a_b", "-m=true pkg.mod --a_b", ""},
		{"--standalone -- ./a.out -x", "--standalone=true -- ./a.out -x", ""},
		{"-nnodes 2 a", "--nnodes=2 a", ""},
		{"--rdzv_endpoint host_0:1 a", "--rdzv-endpoint=host_0:1 a", ""},
		{"--standalone=No a", "--standalone=false a", ""},
		{"--master_prot=1 a", "", "unknown flag --master_prot; did you mean --master-port?"},
		{"--join-t a", "", "did you mean --join-timeout?"},
		{"--zzz a", "", "the script's own flags stand behind the script"},
		{"--nnodes", "", "--nnodes needs a value"},
		{"--nnodes -- a", "", `--nnodes: "--" is no number of nodes`},
		{"--rdzv-id= a", "", "--rdzv-id: the value is empty"},
		{"--standalone=perhaps a", "", `--standalone: "perhaps" is neither true nor false`},
	} {
		out, _, err := normalise(flags, strings.Fields(c.in))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", c.in, err, c.err)
			}
		} else if got := strings.Join(out, " "); err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", c.in, got, err, c.want)
		}
	}
}

// Every listener stands in docs/ports.md, with the file that opens it.
func TestPortsAreDocumented(t *testing.T) {
	top := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(top, "docs", "ports.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	err = filepath.WalkDir(top, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, filepath.Join(top, "test")) {
			return err
		}
		code, err := os.ReadFile(path)
		for _, call := range []string{"net.Listen(", "unix.Bind(", "net.ListenPacket("} {
			if n := strings.Count(string(code), call); n > 0 {
				found += n
				if name, _ := filepath.Rel(top, path); !strings.Contains(string(page), "`"+name+"`") {
					t.Errorf("%s opens a port that docs/ports.md does not name", name)
				}
			}
		}
		return err
	})
	if err != nil || found < 4 {
		t.Errorf("%d listeners found, %v: the search does not work", found, err)
	}
}
