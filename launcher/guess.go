package launcher

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-run/muster/dialect"
	"github.com/muster-run/muster/framework"
)

// This file reads what workers are to run, for the frameworks that it imports.

// What is read of it has bounds: bytes of a file, names of modules, and modules of its own.
const (
	maxScript  = 1 << 20
	maxImports = 256
	maxOwn     = 16
)

// A program is what Python is to run. Its own modules begin in root.
type program struct{ name, file, root string }

// guess looks at the script, or at those that a shell script has Python run: what they import says only what is likely.
func (p *Plan) guess(c Config) (name, from string) {
	var likely []framework.Import
	var said []string
	for _, g := range c.programs() {
		text := beginning(g.file)
		if len(text) == 0 { // it may be the one that trains
			return "", ""
		}
		all := framework.Guess(text, g.own(text)...)
		var modules []string
		for _, i := range all {
			modules = append(modules, i.Module)
			if !slices.ContainsFunc(likely, func(o framework.Import) bool { return o.Framework == i.Framework }) {
				likely = append(likely, i)
			}
		}
		if len(all) > 0 {
			said = append(said, fmt.Sprintf("%s imports %s", g.name, strings.Join(modules, " and ")))
		}
	}
	switch {
	case len(likely) == 0, len(likely) == 1 && likely[0].Framework == framework.Default:
		return "", ""
	case len(likely) == 1:
		name = likely[0].Framework
		p.Notes = append(p.Notes, fmt.Sprintf("%s: --framework %s; say --framework %s if that is wrong", said[0], name, framework.Default))
		return name, said[0]
	default:
		p.Notes = append(p.Notes, fmt.Sprintf("%s: --framework %s; say --framework if that is wrong", strings.Join(said, ", "), framework.Default))
		return "", ""
	}
}

// programs are what a worker has Python run, itself or by a shell script.
func (c Config) programs() (all []program) {
	if len(c.Argv) == 0 {
		return nil
	}
	if c.Module {
		return []program{c.module(c.Argv[0])}
	}
	for _, m := range dialect.Mains(c.Host, c.Argv) {
		switch {
		case m.Module == "pip" || m.Module == "venv": // which train nothing
			continue
		case m.Module != "":
			all = append(all, c.module(m.Module))
			continue
		}
		all = append(all, program{m.Script, m.Script, filepath.Dir(m.Script)})
	}
	return all
}

// module is a program that is run as a module, where Python would find it, but for what is installed.
func (c Config) module(name string) program {
	paths, _ := c.getenv("PYTHONPATH")
	path := strings.ReplaceAll(name, ".", "/")
	for _, root := range append([]string{"."}, filepath.SplitList(paths)...) {
		for _, file := range []string{filepath.Join(root, path, "__main__.py"), filepath.Join(root, path+".py")} {
			if isThere(file) {
				return program{name, file, root}
			}
		}
	}
	return program{name: name}
}

// own are the texts of a program's own modules, as far as it imports them itself.
func (g program) own(text []byte) (texts [][]byte) {
	var seen []string
	names := framework.Modules(text)
	for _, name := range names[:min(len(names), maxImports)] {
		root := g.root
		if inner, relative := strings.CutPrefix(name, "."); relative {
			root, name = filepath.Dir(g.file), inner
		}
		if name == "" || strings.HasPrefix(name, ".") { // the package itself, or one above it
			continue
		}
		path := filepath.Join(root, strings.ReplaceAll(name, ".", "/"))
		for _, file := range []string{path + ".py", filepath.Join(path, "__init__.py")} {
			if len(seen) < maxOwn && !slices.Contains(seen, file) && isThere(file) {
				seen, texts = append(seen, file), append(texts, beginning(file))
			}
		}
	}
	return texts
}

// beginning is that of a script; empty where it is no file, or cannot be read, which others will say.
func beginning(path string) []byte {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, maxScript))
	return text
}
