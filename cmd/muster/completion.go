package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/dialect"
)

// A shell asks muster itself what may stand at the cursor: the scripts below know nothing of commands and flags.
var (
	//go:embed shells/muster.bash
	inBash string
	//go:embed shells/muster.zsh
	inZsh string
	//go:embed shells/muster.fish
	inFish string
)

var shells = map[string]string{"bash": inBash, "zsh": inZsh, "fish": inFish}

func completionCommand() *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "what a shell needs to complete muster's command lines", ArgsUsage: "bash|zsh|fish",
		Description: "  source <(muster completion bash)                                      # in ~/.bashrc\n" +
			"  muster completion zsh > \"${fpath[1]}/_muster\"                         # once\n" +
			"  muster completion fish > ~/.config/fish/completions/muster.fish       # once",
		Action: func(x *cli.Context) error {
			text, ok := shells[x.Args().First()]
			if !ok || x.NArg() != 1 {
				return wrong("completion: give one of bash, zsh, fish")
			}
			fmt.Print(text)
			return nil
		},
	}
}

// completeCommand is what the shells ask: the words behind muster, up to the cursor, of which the last may be a part, or nothing. It answers
// what else fits there (nothing, files, directories, commands), and with a line for each word.
func completeCommand() *cli.Command {
	return &cli.Command{
		Name: "complete", Usage: "say what may stand at a shell's cursor", ArgsUsage: "-- [word...]", Hidden: true,
		Action: func(x *cli.Context) error {
			words := x.Args().Slice()
			if len(words) == 0 {
				words = []string{""}
			}
			a := complete(words)
			fmt.Println(a.also)
			for _, w := range a.words {
				fmt.Printf("%s\t%s\n", w.text, w.doc)
			}
			return nil
		},
	}
}

// An answer is what may stand at the cursor.
type answer struct {
	also  string // what fits beside the words
	words []suggestion
}

type suggestion struct{ text, doc string }

// complete looks where in a command line its last word stands.
func complete(words []string) answer {
	all, last := commands(), len(words)-1
	for i, word := range words[:last] {
		c := find(all, word)
		if c == nil {
			return answer{also: "files"} // another launcher's words
		}
		if all = c.Subcommands; len(all) == 0 {
			return inCommand(c, words[i+1:])
		}
	}
	return only(words[last], "nothing", standing(all, last == 0))
}

// standing are commands, and at the top what else may stand behind muster.
func standing(all []*cli.Command, top bool) (words []suggestion) {
	for _, c := range all {
		if !c.Hidden {
			words = append(words, suggestion{c.Name, c.Usage})
		}
	}
	if !top {
		return words
	}
	for _, d := range dialect.All() {
		words = append(words, suggestion{d.Name, d.Doc})
	}
	for _, s := range stands() {
		if s.doc != "" {
			words = append(words, suggestion{s.name, s.doc})
		}
	}
	return append(words, suggestion{"--help", "every command"}, suggestion{"--version", "which build this is"})
}

// inCommand is about the words behind a command: its flags, their values, or what it takes besides.
func inCommand(c *cli.Command, words []string) answer {
	last, word := len(words)-1, words[len(words)-1]
	for i := 0; i < last; i++ {
		if words[i] == "--" {
			return behind(c, word, i+1 == last)
		}
		if words[i] == "-" || !strings.HasPrefix(words[i], "-") {
			if strings.Contains(c.ArgsUsage, " [--") {
				continue // whose flags may stand behind as well
			}
			return behind(c, word, false)
		}
		name, _, inline := strings.Cut(strings.TrimLeft(words[i], "-"), "=")
		if f := lookup(c.Flags, strings.ReplaceAll(name, "_", "-")); f != nil && !inline && !isBool(f) {
			if i++; i == last {
				return valueOf(f, "", word)
			}
		}
	}
	if name, _, inline := strings.Cut(word, "="); inline && strings.HasPrefix(word, "-") {
		if f := lookup(c.Flags, strings.ReplaceAll(strings.TrimLeft(name, "-"), "_", "-")); f != nil {
			return valueOf(f, name+"=", word)
		}
		return answer{also: "nothing"}
	}
	if strings.HasPrefix(word, "-") {
		return only(word, "nothing", flagWords(c, word))
	}
	return behind(c, word, false)
}

// behind is about a word that is neither a flag nor a flag's value; first: it is the first behind --.
func behind(c *cli.Command, word string, first bool) answer {
	takes := c.ArgsUsage
	switch {
	case first && (c.Name == "run" || c.Name == "env"), strings.Contains(takes, "command"):
		return answer{also: "commands"}
	case strings.Contains(takes, "script.py"), strings.Contains(takes, "FILE"):
		return answer{also: "files"}
	case strings.Contains(takes, "DIR"):
		return answer{also: "directories"}
	}
	var words []suggestion
	for choice := range strings.SplitSeq(takes, "|") {
		if strings.Contains(takes, "|") && !strings.ContainsAny(takes, " []") {
			words = append(words, suggestion{choice, ""})
		}
	}
	return only(word, "nothing", words)
}

// flagWords are a command's flags: the rare ones when one is asked for by its first letter.
func flagWords(c *cli.Command, word string) (words []suggestion) {
	for _, f := range c.Flags {
		if v, ok := f.(cli.VisibleFlag); ok && !v.IsVisible() && strings.Trim(word, "-") == "" {
			continue
		}
		words = append(words, suggestion{"--" + f.Names()[0], usageOf(f)})
	}
	return append(words, suggestion{"--help", "what it does, and its flags"}, suggestion{"--help-all", "the rare flags, too"})
}

// valueOf is about a flag's value, before which stands --flag= or nothing.
func valueOf(f cli.Flag, before, word string) answer {
	also := "nothing"
	name, _ := valueName(f)
	switch name {
	case "FILE":
		also = "files"
	case "DIR":
		also = "directories"
	}
	if strings.Contains(name, ",...") { // several, and this is about the last one
		before = word[:max(len(before), strings.LastIndex(word, ",")+1)]
	}
	var words []suggestion
	for _, v := range choicesOf(f, name) {
		words = append(words, suggestion{before + v, ""})
	}
	return only(word, also, words)
}

// choicesOf are the values that a flag can have, where those are a few words.
func choicesOf(f cli.Flag, name string) []string {
	if g, ok := f.(*cli.GenericFlag); ok {
		if among, ok := g.Value.(interface{ choices() []string }); ok {
			return among.choices()
		}
	}
	if strings.Contains(name, "|") {
		return strings.Split(name, "|")
	}
	return nil
}

// only keeps the words that begin as what stands there.
func only(word, also string, words []suggestion) answer {
	word = strings.ReplaceAll(word, "_", "-")
	return answer{also, slices.DeleteFunc(words, func(w suggestion) bool { return !strings.HasPrefix(w.text, word) })}
}
