package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/dialect"
	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/timerslack"
)

// A diagnosis is what the words that start trainings mean in this image.
type diagnosis struct {
	Words  []meaning `json:"words"`
	Python string    `json:"python"` // that runs scripts; "": there is none
	First  string    `json:"first"`  // command line of process 1
	Advice []string  `json:"advice"`
}

// A meaning is what one word runs.
type meaning struct {
	Word    string   `json:"word"`
	Runs    string   `json:"runs"` // "": there is no such thing here
	Muster  bool     `json:"muster"`
	Version string   `json:"version,omitempty"` // of the Python package that it is, or muster's
	Behind  []string `json:"behind,omitempty"`  // files of the same name further on in PATH
}

func doctorCommand() *cli.Command {
	var asJSON bool
	return &cli.Command{
		Name: "doctor", Usage: "say what torchrun, accelerate and the like run in this image", ArgsUsage: "[--json]",
		Description: "Looks which programs and modules the words of launchers stand for, and whether muster takes their place.",
		Flags:       []cli.Flag{&cli.BoolFlag{Name: "json", Destination: &asJSON, Usage: "as one JSON object"}},
		Action: func(x *cli.Context) error {
			d := diagnose(x.Context, os.Environ())
			if asJSON {
				return json.NewEncoder(os.Stdout).Encode(d)
			}
			return d.print(os.Stdout)
		},
	}
}

// diagnose looks at this machine's files, and asks its Python for versions.
func diagnose(ctx context.Context, environ []string) (d diagnosis) {
	if first, err := os.ReadFile("/proc/1/cmdline"); err == nil {
		d.First = strings.Join(strings.FieldsFunc(string(first), func(r rune) bool { return r == 0 }), " ")
	}
	python, err := launcher.Interpreter(environ)
	if err != nil {
		d.Advice = append(d.Advice, err.Error())
	}
	d.Python = python
	for _, name := range dialect.Programs() {
		d.Words = append(d.Words, meaningOf(ctx, name, environ))
	}
	for _, l := range dialect.All() {
		for _, module := range l.Modules {
			d.Words = append(d.Words, meaningOfModule(ctx, python, module))
		}
	}
	d.advise()
	return d
}

// meaningOf is what a program's name runs.
func meaningOf(ctx context.Context, name string, environ []string) meaning {
	m := meaning{Word: name}
	for i, p := range launcher.Programs(name, environ) {
		switch {
		case i > 0:
			m.Behind = append(m.Behind, p.Path)
		case p.Muster:
			m.Runs, m.Muster, m.Version = p.Path, true, version()
		default:
			m.Runs, m.Version = p.Path, installed(ctx, interpreterOf(p.Path), dialect.Whole(name))
		}
	}
	return m
}

// meaningOfModule is what python -m runs. muster is behind none: a command line that begins with python it translates itself.
func meaningOfModule(ctx context.Context, python, module string) meaning {
	m := meaning{Word: "python -m " + module}
	if m.Version = installed(ctx, python, module); m.Version != "" {
		m.Runs = python
	}
	return m
}

// interpreterOf is the Python of a script, by its first line; "": it has none.
func interpreterOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, 512)
	n, _ := io.ReadFull(f, head)
	line, _, _ := bytes.Cut(head[:n], []byte("\n"))
	words := strings.Fields(strings.TrimPrefix(string(line), "#!"))
	if len(words) > 0 && strings.HasPrefix(filepath.Base(words[len(words)-1]), "python") {
		return words[len(words)-1]
	}
	return ""
}

// installed is the version of the package that a module is of, as an interpreter has it; "": it has not. Nothing is imported.
func installed(ctx context.Context, python, module string) string {
	if python == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	name, _, _ := strings.Cut(module, ".")
	const ask = "import sys, importlib.util as u\nn = sys.argv[1]\nif u.find_spec(n):\n" +
		" v = 'version not known'\n try:\n  from importlib.metadata import version, packages_distributions as p\n  v = version(p().get(n, [n])[0])\n" +
		" except Exception:\n  try:\n   v = version(n)\n  except Exception: pass\n print(n, v)"
	var out []byte
	err := timerslack.Given(func() (err error) {
		out, err = exec.CommandContext(ctx, python, "-c", ask, name).Output()
		return err
	})
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// advise says what to change so that muster is what starts trainings.
func (d *diagnosis) advise() {
	for _, m := range d.Words {
		if m.Runs != "" && !m.Muster && !strings.HasPrefix(m.Word, "python") {
			d.Advice = append(d.Advice, fmt.Sprintf("%s is not muster: write muster %s, or put a link of that name to muster before %s in PATH", m.Word, m.Word, filepath.Dir(m.Runs)))
		}
	}
}

func (d diagnosis) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, m := range d.Words {
		what := cmp.Or(m.Runs, "not here")
		if m.Muster {
			what += " (muster)"
		}
		if m.Version != "" && m.Runs != "" {
			what += ", " + m.Version
		}
		fmt.Fprintf(t, "%s\t%s\n", m.Word, what)
		for _, b := range m.Behind {
			fmt.Fprintf(t, "\tbehind it: %s\n", b)
		}
	}
	fmt.Fprintf(t, "scripts are run by\t%s\n", cmp.Or(d.Python, "nobody"))
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "process 1 is %.100s\n", cmp.Or(d.First, "not to be seen"))
	for _, a := range d.Advice {
		fmt.Fprintln(w, "advice:", a)
	}
	return nil
}
