package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-run/muster/test/golden"
	"github.com/urfave/cli/v2"
)

// docs/environment.md is what the code says of variables: -update writes it anew.
func TestGoldenEnvironment(t *testing.T) {
	var w strings.Builder
	w.WriteString("# Environment variables\n\nThis page is made from the code: `go test ./cmd/muster -run GoldenEnvironment -update`.\n\n" +
		"`muster env train.py` shows for a job which variables its workers get, with each one's reason. A variable that a user has set is not overwritten, but for those that differ from worker to worker.\n\n" +
		"## Flags\n\nEach flag is also a variable. The flag goes before it; it goes before what the platform says. An empty variable says nothing.\n\n" +
		"| variable | of | |\n|---|---|---|\n")
	flags := map[string][]string{} // variable → text, commands
	for _, c := range commands() {
		eachFlag(c, c.Name, func(of string, f cli.Flag) {
			name := variable(f.Names()[0])
			if flags[name] == nil {
				flags[name] = []string{valued(f)}
			}
			flags[name] = append(flags[name], "`"+of+"`")
		})
	}
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		fmt.Fprintf(&w, "| `%s` | %s | %s |\n", name, strings.Join(flags[name][1:], ", "), cell(flags[name][0]))
	}
	var pet []string
	for _, f := range slices.Sorted(slices.Values(fromPET)) {
		pet = append(pet, "`PET_"+strings.TrimPrefix(variable(f), "MUSTER_")+"`")
	}
	fmt.Fprintf(&w, "\nOf torchrun's own, these set the flags of their names for `run`: %s. What others of them say of the job is read as a platform's word ([platforms.md](platforms.md)).\n", strings.Join(pet, ", "))
	own := func(title, text string, all []ownVariable) {
		fmt.Fprintf(&w, "\n## %s\n\n%s\n\n| variable | |\n|---|---|\n", title, text)
		for _, v := range all {
			fmt.Fprintf(&w, "| `%s` | %s |\n", v.name, cell(v.text))
		}
	}
	own("Set by people and platforms", "These set no flag.", forPeople)
	own("For workers", "A program that trains may use these ([heartbeat.md](heartbeat.md)).", forWorkers)
	own("Between muster's own processes", "Nobody else should set these.", amongThemselves)
	w.WriteString("\n## Of others\n\nNames of variables that stand in the code: what is read of platforms and launchers, and what workers are given. What is made of them is told in " +
		"[platforms.md](platforms.md), [dialects.md](dialects.md), [frameworks.md](frameworks.md) and [nccl.md](nccl.md).\n\n| in | variables |\n|---|---|\n")
	named := variablesIn(t)
	for _, file := range slices.Sorted(maps.Keys(named)) {
		fmt.Fprintf(&w, "| [%s](../%[1]s) | `%s` |\n", file, strings.Join(named[file], "` `"))
	}
	golden.File(t, "../../docs/environment.md", w.String())
}

// eachFlag goes through the flags of a command and of those below it.
func eachFlag(c *cli.Command, name string, do func(of string, f cli.Flag)) {
	if c.Hidden {
		return
	}
	for _, sub := range c.Subcommands {
		eachFlag(sub, name+" "+sub.Name, do)
	}
	for _, f := range c.Flags {
		do(name, f)
	}
}

// valued is a flag's text behind the name of its value.
func valued(f cli.Flag) string {
	name, usage := valueName(f)
	if name == "" {
		return "1: " + usage
	}
	if inside, optional := strings.CutPrefix(name, "[="); optional {
		name = strings.TrimSuffix(inside, "]")
	}
	return name + " " + usage
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// looksLikeOne: two words in capitals at least, or one that everybody knows.
var looksLikeOne = regexp.MustCompile(`^([A-Z][A-Z0-9]*(_[A-Z0-9]+)+|RANK|NNODES|HOSTNAME|TMPDIR|PYTHONPATH|PATH|HOME|NODENAME|SHLVL|PWD)$`)

// noVariable are the beginnings of words that only look like one.
var noVariable = regexp.MustCompile(`^(MUSTER_|MULTI_|AF_|LOCAL_MACHINE$|MEGATRON_LM$|FULL_SHARD$|PCI_BUS_ID$)`)

// variablesIn are the names of variables in the code, by file.
func variablesIn(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	top := filepath.Join("..", "..")
	for _, room := range strings.Fields("affinity cmd/muster dialect discovery framework horovod launcher nccl pmi preflight topology witness worker") {
		err := filepath.WalkDir(filepath.Join(top, room), func(name string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			short, _ := filepath.Rel(top, name)
			ast.Inspect(file, func(n ast.Node) bool {
				lit, ok := n.(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING {
					return true
				}
				text, _ := strconv.Unquote(lit.Value)
				for word := range strings.FieldsSeq(text) { // a list of names is often one literal
					word, _, _ = strings.Cut(word, "=")
					if looksLikeOne.MatchString(word) && !noVariable.MatchString(word) && !slices.Contains(found[short], word) && onlyNames(text) {
						found[short] = append(found[short], word)
					}
				}
				return true
			})
			slices.Sort(found[short])
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// onlyNames reports whether a literal is nothing but names: in a sentence they are for people.
func onlyNames(text string) bool {
	for word := range strings.FieldsSeq(text) {
		word, _, _ = strings.Cut(word, "=")
		if !looksLikeOne.MatchString(word) {
			return false
		}
	}
	return true
}

// Every variable of muster's own that the code names is on the page, by a flag or by itself.
func TestOwnVariablesAreKnown(t *testing.T) {
	known := ownVariables()
	for _, c := range commands() {
		eachFlag(c, c.Name, func(_ string, f cli.Flag) { known = append(known, variable(f.Names()[0])) })
	}
	name := regexp.MustCompile(`["'](MUSTER_[A-Z_]*[A-Z])["']`)
	count := 0
	err := filepath.WalkDir(filepath.Join("..", ".."), func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == "test" || d.Name() == ".git" || d.Name() == "examples") {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return err
		}
		if ext := path.Ext(file); ext != ".go" && ext != ".py" || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(file)
		for _, m := range name.FindAllSubmatch(text, -1) {
			count++
			if !slices.Contains(known, string(m[1])) {
				t.Errorf("%s names %s, which cmd/muster/variables.go does not", file, m[1])
			}
		}
		return err
	})
	if err != nil || count < 40 {
		t.Errorf("%d names found, %v: the search does not work", count, err)
	}
}
