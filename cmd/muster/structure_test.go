package main

import (
	"flag"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const module = "github.com/muster-run/muster"

// golden compares got with a file under testdata, or writes it there.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; `make golden`, and read the diff. Got:\n%s", path, got)
	}
}

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
	golden(t, "imports.txt", strings.Join(rows, "\n")+"\n")
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
	golden(t, "help.txt", all.String())
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
