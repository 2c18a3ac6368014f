package framework

import (
	"bytes"
	"slices"

	"github.com/muster-run/muster/lazy"
)

// imported is how a script names a framework. Libraries on top of PyTorch count for it.
var imported = lazy.Regexp(`(?m)^[ \t]*(?:import[ \t]+(?:[\w. \t]+,[ \t]*)*|from[ \t]+)(torch|accelerate|deepspeed|lightning|pytorch_lightning|` +
	`transformers|torchvision|torchaudio|timm|diffusers|peft|trl|composer|megatron|fairscale|jax|tensorflow|paddle)\b`)

// horovodImport is how a script says that it is Horovod's, whatever else it imports: not where it tries whether there is one.
var horovodImport = lazy.Regexp(`(?m)^(?:import|from)[ \t]+horovod\b`)

// Guess returns the frameworks other than the default of which a Python script may be, by what it imports; none where it
// imports PyTorch: then the others are for something beside the training, as TensorFlow often is for its data or its log files.
func Guess(script []byte) (likely []string) {
	script = code(script)
	if horovodImport().Match(script) {
		return []string{horovodRun.Name}
	}
	for _, m := range imported().FindAllSubmatch(script, -1) {
		name := string(m[1])
		if !slices.Contains(Names(), name) || name == Default {
			return nil
		}
		if !slices.Contains(likely, name) {
			likely = append(likely, name)
		}
	}
	return likely
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
