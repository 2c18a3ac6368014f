// Package remote runs commands on other nodes of a job, as ssh does, for those who share a secret with them.
package remote

import "slices"

// A Command is what is to be run on another node. Its texts are bytes, for that is what a system's arguments and variables are.
type Command struct {
	Line  []byte            `json:"line,omitempty"`  // of a shell; empty: Args say what is run
	Args  [][]byte          `json:"args,omitempty"`  // of the program that serves, which is started once more
	Env   [][]byte          `json:"env,omitempty"`   // NAME=VALUE, over the environment of who serves
	Dir   []byte            `json:"dir,omitempty"`   // empty: the home directory
	Files map[string][]byte `json:"files,omitempty"` // by absolute path: what the command is to read in place of its own
}

// size is how many bytes a command has.
func (c Command) size() int {
	n := len(c.Line) + len(c.Dir)
	for _, text := range slices.Concat(c.Args, c.Env) {
		n += len(text) + 8
	}
	for path, text := range c.Files {
		n += len(path) + len(text) + 8
	}
	return n
}

// Bounds of what one side takes from the other.
const (
	maxData    = 64 << 10 // bytes of a frame
	maxCommand = 16 << 20 // bytes of a command, encoded
	maxKeys    = 8        // secrets that a caller may have
	maxText    = 2 << 10  // bytes of a message for people
)

// bytesOf is a list of texts as they travel.
func bytesOf(texts []string) (list [][]byte) {
	for _, text := range texts {
		list = append(list, []byte(text))
	}
	return list
}

// Strings is a list of texts as programs have it.
func Strings(list [][]byte) (texts []string) {
	for _, b := range list {
		texts = append(texts, string(b))
	}
	return texts
}

// Again is the command to start the program that serves once more, with these arguments and variables.
func Again(args, env []string) Command {
	return Command{Args: bytesOf(args), Env: bytesOf(env)}
}
