package framework

import (
	"regexp"
	"slices"
)

// imported is how a script names a framework. Libraries on top of PyTorch count for it.
var imported = regexp.MustCompile(`(?m)^[ \t]*(?:import[ \t]+(?:[\w. \t]+,[ \t]*)*|from[ \t]+)(torch|accelerate|deepspeed|lightning|pytorch_lightning|` +
	`transformers|torchvision|torchaudio|timm|diffusers|peft|trl|composer|megatron|fairscale|jax|tensorflow|paddle)\b`)

// Guess returns the frameworks other than the default of which a Python script may be, by what it imports; none where it
// imports PyTorch: then the others are for something beside the training, as TensorFlow often is for its data or its log files.
func Guess(script []byte) (likely []string) {
	for _, m := range imported.FindAllSubmatch(script, -1) {
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
