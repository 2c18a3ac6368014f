package framework

import (
	"bytes"
	"slices"
	"strings"

	"github.com/muster-run/muster/lazy"
)

// importing is how a program names modules: one behind "from", with what is imported from it, or several behind "import".
var importing = lazy.Regexp(`(?m)^([ \t]*)(?:from[ \t]+([\w.]+)[ \t]+import\b[ \t]*([\w \t,]*)|import[ \t]+([\w. \t,]+))`)

// How much an import says of what a program is: what it imports in a function, or tries to, may not be there, or be for something beside the training.
const (
	perhaps = 1 + iota
	surely
)

// An Import is a module that a program imports, of which a framework is likely.
type Import struct {
	Framework, Module string
	weight            int
}

// Guess returns of which frameworks a program may be, given its text and that of modules of its own: of those that are likely the likeliest, each once. Where
// there are several nobody knows, as where TensorFlow may be for the data of a program that imports PyTorch in a function. Horovod stands on others, and counts whatever is imported beside.
func Guess(program []byte, modules ...[]byte) []Import {
	all := importsOf(program)
	most := likeliest(all)
	if len(most) == 0 || most[0].weight < surely {
		for _, text := range modules {
			all = append(all, importsOf(text)...)
		}
		most = likeliest(all)
	}
	if i := slices.IndexFunc(all, func(i Import) bool { return i.Framework == Default }); i >= 0 && len(most) == 1 && isBeside(most[0].Framework) {
		most = append(most, all[i])
	}
	return most
}

// isBeside reports whether who imports a framework may be PyTorch's all the same.
func isBeside(name string) bool {
	return slices.ContainsFunc(frameworks, func(f Framework) bool { return f.Name == name && f.Beside })
}

func likeliest(all []Import) (most []Import) {
	for _, i := range all {
		switch {
		case i.Framework == horovodRun.Name && i.weight == surely:
			return []Import{i}
		case i.Framework == horovodRun.Name:
		case len(most) > 0 && i.weight > most[0].weight:
			most = []Import{i}
		case len(most) == 0 || i.weight == most[0].weight && !slices.ContainsFunc(most, func(o Import) bool { return o.Framework == i.Framework }):
			most = append(most, i)
		}
	}
	return most
}

// importsOf are the imports of a text that tell of frameworks.
func importsOf(text []byte) (found []Import) {
	for _, m := range importing().FindAllSubmatch(code(text), -1) {
		for _, name := range modulesOf(m) {
			top, _, _ := strings.Cut(name, ".")
			for _, f := range frameworks {
				sure := slices.Contains(strings.Fields(f.Imports), top)
				if !sure && !slices.Contains(strings.Fields(f.Perhaps), top) {
					continue
				}
				weight := perhaps
				if sure && len(m[1]) == 0 {
					weight = surely
				}
				found = append(found, Import{f.Name, top, weight})
			}
		}
	}
	return found
}

// modulesOf are those that an import names, of which what is imported from one may be, too.
func modulesOf(m [][]byte) (names []string) {
	from, list := string(m[2]), string(m[3])+string(m[4])
	if from != "" {
		names = append(names, from)
		from = strings.TrimSuffix(from, ".") + "."
	}
	for part := range strings.SplitSeq(list, ",") {
		if words := strings.Fields(part); len(words) > 0 {
			names = append(names, from+words[0])
		}
	}
	return names
}

// Modules are those that a text imports, by their whole names: "." begins one of its own package.
func Modules(text []byte) (names []string) {
	for _, m := range importing().FindAllSubmatch(code(text), -1) {
		names = append(names, modulesOf(m)...)
	}
	return names
}

// Loaded returns the frameworks whose libraries are among the files that a process has mapped, as /proc/PID/maps lists them; the default first.
func Loaded(maps []byte) (names []string) {
	for _, f := range frameworks {
		if f.Library != "" && bytes.Contains(maps, []byte("/"+f.Library)) {
			names = append(names, f.Name)
		}
	}
	return names
}

// code is a Python script without its comments and without what is in its strings, which may tell of imports.
func code(script []byte) (out []byte) {
	for i := 0; i < len(script); i++ {
		switch c := script[i]; c {
		case '#':
			for i+1 < len(script) && script[i+1] != '\n' {
				i++
			}
		case '"', '\'':
			i += stringAt(script[i:]) - 1
			out = append(out, c, c)
		default:
			out = append(out, c)
		}
	}
	return out
}

// stringAt is how long the string is with which a script goes on. One that does not end goes to the end of its line, or of the script.
func stringAt(script []byte) int {
	quote := script[:1]
	if triple := bytes.Repeat(quote, 3); bytes.HasPrefix(script, triple) {
		quote = triple
	}
	for i := len(quote); i < len(script); i++ {
		switch {
		case script[i] == '\\':
			i++
		case bytes.HasPrefix(script[i:], quote):
			return i + len(quote)
		case script[i] == '\n' && len(quote) == 1:
			return i
		}
	}
	return len(script)
}
