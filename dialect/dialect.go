// Package dialect reads other launchers' command lines and says the same in muster's words: one file and one line a
// launcher.
package dialect

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-run/muster/job"
)

// A Dialect is the words of one launcher.
type Dialect struct {
	Name string // by which muster has it as a command
	Doc  string // one line
	// Programs are the names that the launcher's own program has, and a link that takes its place. One with a
	// blank in it launches only when its first argument is the word that follows: "accelerate launch".
	Programs []string
	Modules  []string // that do the same by python -m
	Whole    string   // the module that is all of the launcher's program, also where that does not launch
	// parse reads what follows the program or module that it was called as.
	parse func(h job.Host, as string, args []string) (Request, error)
}

// dialects is every launcher that muster understands.
var dialects = []Dialect{torchrun, accelerate, deepspeed, paddle}

// All returns every launcher that muster understands, as the help lists them.
func All() []Dialect { return slices.Clone(dialects) }

// A Request is what another launcher's command line asks for, in the words of muster run.
type Request struct {
	Flags   []Flag   // of muster run
	Command []string // the script, module or program, and its arguments
	Python  string   // that runs scripts, for the launcher was called by it, and uses its own; "": the usual one
	Program string   // the launcher's, as it was called; "": Python called it
	Script  bool     // Command[0] is a Python script, whatever its name; --module and --no-python are flags
	Env     job.Env  // that this launcher gives to every worker, over what the framework expects
	// LocalRank is a flag by which each worker's script is told its local rank, before its own arguments:
	// "--local_rank" for --local_rank=0; "": none is.
	LocalRank string
	// Virtual is the flag by which each worker sees only the GPU of its local rank, and is told that this rank is 0; "": none is.
	Virtual  string
	Template bool // ${local_rank} in the arguments stands for the local rank
	// Without are variables that the framework's contract gives to workers where the user does not, and this launcher
	// leaves alone.
	Without []string
	Cores   Cores  // on which cores workers are to run
	Binds   bool   // the launcher has words for that, so that nobody else decides it where they were not said
	Tuning  string // the words by which the launcher is to try configurations, calling itself for each; "": they start a job
	PIDFile string // is for the number of muster's process, while it runs, with it in its name where %d stands; "": none
	Idle    string // why the job is to run without this node, which then ends at once, and well; "": it takes part
	// Others are the nodes beside this one that the launcher would start by ssh; none: each is started by somebody else.
	Others []string
	Notes  []string
	Free   string // a port of 0 of which the launcher's words say it on one node, for all that they tell; "": there is none
	Meet   string // what says where the nodes meet, in the launcher's words; "": as muster's do
	Hint   string // what to do where the platform says another number of nodes
	Help   bool   // only how to use it is asked for
	PerCPU bool   // auto means a worker for each CPU where there is no GPU
}

// A Flag is a flag of muster run that a word of the other launcher means.
type Flag struct {
	Name, Value string // without dashes; "true" for one that stands alone
	From        string // as the user knows it: "--num_machines", "num_machines in default_config.yaml"
	Default     bool   // nobody said so; the launcher itself does. The platform's word and muster's own variables win
}

// set adds a flag to what is asked for.
func (r *Request) set(name, value, from string) {
	r.Flags = append(r.Flags, Flag{Name: name, Value: value, From: from})
}

// A Call is a command line that is a launcher's.
type Call struct {
	Dialect
	As     string   // the program or module, as Programs and Modules have it
	Args   []string // what follows
	Python string   // that was to run it, as it was called; "": none was named
	// Program is the launcher's own as it was called: a name, or a path; "": Python was to run it.
	Program string
}

// Parse reads the command line. Its error is one of use: a line that says what is wrong and what to do.
func (c Call) Parse(h job.Host) (Request, error) {
	r, err := c.parse(h, c.As, c.Args)
	r.Python, r.Program = c.Python, c.Program
	return r, err
}

// Named finds the launcher that muster has as a command, or that a link stands for, under this name. A program
// that launches only with a certain first argument is not called without it.
func Named(name string, args []string) (Call, bool) {
	name = filepath.Base(name)
	for _, d := range dialects {
		for _, program := range d.Programs {
			base, word, two := strings.Cut(program, " ")
			switch {
			case base != name:
			case !two:
				return Call{Dialect: d, As: program, Args: args}, true
			case len(args) > 0 && args[0] == word:
				return Call{Dialect: d, As: program, Args: args[1:]}, true
			}
		}
	}
	return Call{}, false
}

// Knows reports whether a launcher's program has this name, whatever it is told.
func Knows(name string) bool { return Whole(name) != "" }

// Programs are the names of all launchers' programs.
func Programs() (names []string) {
	for _, d := range dialects {
		for _, program := range d.Programs {
			if base, _, _ := strings.Cut(program, " "); !slices.Contains(names, base) {
				names = append(names, base)
			}
		}
	}
	return names
}

// Theirs reports whether a file with the name of a launcher's program is that launcher's. Many call a tool of their own ds; DeepSpeed's
// lies beside its deepspeed.
func Theirs(file string, exists func(path string) bool) bool {
	return filepath.Base(file) != "ds" || exists(filepath.Join(filepath.Dir(file), "deepspeed"))
}

// Command is a command line behind muster as it would be without: a launcher whose program has another name than muster's command has it.
func Command(words []string) []string {
	for _, d := range dialects {
		if len(words) > 0 && words[0] == d.Name && !Knows(d.Name) {
			return append([]string{d.Programs[0]}, words[1:]...)
		}
	}
	return words
}

// NameOf is the launcher that a command calls, as it is called by its bare name; "" for none.
func NameOf(command string) string {
	call, _ := Of(append(strings.Fields(command), "x"))
	if len(call.Programs) == 0 {
		return ""
	}
	return call.Programs[0]
}

// Whole is the module that is all of the program with this name; "": no launcher has one.
func Whole(name string) string {
	for _, d := range dialects {
		_, _, more := strings.Cut(d.Programs[0], " ") // a program that does not only launch
		for _, program := range d.Programs {
			switch base, _, two := strings.Cut(program, " "); {
			case base != filepath.Base(name):
			case more && !two:
				return d.Modules[0]
			default:
				return d.Whole
			}
		}
	}
	return ""
}

// Default returns what the launcher itself takes for a flag of muster run that nobody gave.
func (r Request) Default(name string) Flag {
	i := slices.IndexFunc(r.Flags, func(f Flag) bool { return f.Default && f.Name == name })
	if i < 0 {
		return Flag{}
	}
	return r.Flags[i]
}

// Of finds the launcher that a command line calls: by its program, or as a module of Python.
func Of(argv []string) (Call, bool) {
	if len(argv) == 0 {
		return Call{}, false
	}
	if c, ok := Named(argv[0], argv[1:]); ok {
		c.Program = argv[0]
		return c, true
	}
	if !isPython(argv[0]) {
		return Call{}, false
	}
	mod, script, args := ofPython(argv[1:])
	c, ok := module(mod, args)
	if script != "" {
		if c, ok = Named(script, args); !ok {
			c, ok = module(moduleOf(script), args)
		}
	}
	c.Python = argv[0]
	return c, ok
}

func module(name string, args []string) (Call, bool) {
	for _, d := range dialects {
		if slices.Contains(d.Modules, name) {
			return Call{Dialect: d, As: name, Args: args}, true
		}
		if _, launch, two := strings.Cut(d.Programs[0], " "); two && name == d.Whole && len(args) > 0 && args[0] == launch {
			return Call{Dialect: d, As: name + " " + launch, Args: args[1:]}, true
		}
	}
	return Call{}, false
}
