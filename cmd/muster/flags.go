package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/job"
)

// A usageError is a command line that cannot be right. It ends with code 2.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func wrong(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// normalise writes the flags of one command in one way, as the parser below wants them: underscores become
// dashes, and what torchrun's users are used to (--nproc_per_node=2) is understood. It stops where the user's own
// command begins, of which not a byte is changed. given has the flags that it saw, by their names.
func normalise(flags []cli.Flag, args []string) (out []string, given map[string]string, err error) {
	given = map[string]string{}
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" || arg == "-" || !strings.HasPrefix(arg, "-") {
			return append(out, args[i:]...), given, nil
		}
		name, value, inline := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		name = strings.ReplaceAll(name, "_", "-")
		flag := lookup(flags, name)
		if flag == nil {
			return nil, nil, unknown(flags, arg, name)
		}
		switch {
		case inline:
		case isBool(flag):
			value = "true"
		case i+1 == len(args):
			return nil, nil, wrong("%s needs a value", arg)
		default:
			i++
			value = args[i]
		}
		by := dashes(name) + name
		if value, err = checked(flag, by, value); err != nil {
			return nil, nil, err
		}
		given[flag.Names()[0]] = by
		out = append(out, by+"="+value)
	}
	return out, given, nil
}

// fromEnv returns the flags that variables set and the command line does not, and adds them to given. An empty
// variable says nothing, nor does what kubelet sets in the name of a Service called "muster": MUSTER_PORT=tcp://….
func fromEnv(flags []cli.Flag, given map[string]string) (out []string, err error) {
	for _, f := range flags {
		name := f.Names()[0]
		by, value := setBy(name)
		if _, seen := given[name]; seen || value == "" || strings.HasPrefix(value, "tcp://") {
			continue
		}
		if value, err = checked(f, by, value); err != nil {
			return nil, err
		}
		given[name] = by
		out = append(out, "--"+name+"="+value)
	}
	return out, nil
}

// fromPET are flags of torchrun that muster run has and that torchrun's own variables set, as the operators of a platform do: PET_ and the
// name. What those say of the job itself is read with the platform's other words.
var fromPET = strings.Fields("standalone module no-python local-addr rdzv-conf monitor-interval start-method")

// setBy is the variable that sets a flag, and its value.
func setBy(flag string) (by, value string) {
	by = variable(flag)
	if value = os.Getenv(by); value != "" || !slices.Contains(fromPET, flag) {
		return by, value
	}
	by = "PET_" + strings.TrimPrefix(by, "MUSTER_")
	return by, os.Getenv(by)
}

// misspelt names variables in environ that are nobody's, and whose names miss one of ours by a slip: a node that is not told how
// many nodes there are would train alone.
func misspelt(flags []cli.Flag, environ []string) (notes []string) {
	var names []string
	for _, f := range flags {
		names = append(names, variable(f.Names()[0]))
	}
	names = append(names, ownVariables()...)
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, variable("")) || slices.Contains(names, name) || strings.HasPrefix(value, "tcp://") {
			continue
		}
		if best := nearest(name, names); best != "" && distance(name, best) <= 2 {
			notes = append(notes, fmt.Sprintf("%s is not known here; did you mean %s?", name, best))
		}
	}
	return notes
}

// variable sets a flag when the command line does not: MUSTER_ and its name.
func variable(flag string) string {
	return "MUSTER_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// checked returns a flag's value as the parser below wants it. What is wrong with a value is told here, with the
// name under which it was given; the parser would name the flag where a variable was set.
func checked(f cli.Flag, by, value string) (string, error) {
	var err error
	switch f := f.(type) {
	case *cli.GenericFlag:
		err = f.Value.Set(value)
	case *cli.BoolFlag:
		value, err = truth(value)
	case *cli.StringFlag, *cli.StringSliceFlag:
		if value == "" {
			err = errors.New("the value is empty")
		}
	default:
		panic(fmt.Sprintf("flag %s: a %T is not known here", by, f))
	}
	if err != nil {
		return "", wrong("%s: %v", by, err)
	}
	return value, nil
}

// truth takes what people write for true and false.
func truth(text string) (string, error) {
	switch strings.ToLower(text) {
	case "true", "t", "1", "yes", "y", "on":
		return "true", nil
	case "false", "f", "0", "no", "n", "off":
		return "false", nil
	}
	return "", fmt.Errorf("%q is neither true nor false", text)
}

func dashes(name string) string {
	if len(name) == 1 {
		return "-"
	}
	return "--"
}

func lookup(flags []cli.Flag, name string) cli.Flag {
	i := slices.IndexFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
	if i < 0 {
		return nil
	}
	return flags[i]
}

// isBool reports whether a flag may stand without a value.
func isBool(f cli.Flag) bool {
	if g, ok := f.(*cli.GenericFlag); ok {
		alone, ok := g.Value.(interface{ IsBoolFlag() bool })
		return ok && alone.IsBoolFlag()
	}
	_, ok := f.(*cli.BoolFlag)
	return ok
}

// unknown names the flag that was probably meant.
func unknown(flags []cli.Flag, arg, name string) error {
	var names []string
	for _, f := range flags {
		for _, n := range f.Names() {
			if len(n) > 1 {
				names = append(names, n)
			}
		}
	}
	shown, _, _ := strings.Cut(arg, "=")
	if instead, ok := notHere[name]; ok {
		return wrong("%s is torchrun's, and not in this version: %s", shown, instead)
	}
	if why, ok := notObserved[name]; ok && slices.Contains(names, "observe") {
		return wrong("there is no %s with --observe: %s (docs/observe.md)", shown, why)
	}
	if best := nearest(name, names); best != "" {
		return wrong("unknown flag %s; did you mean --%s?", shown, best)
	}
	return wrong("unknown flag %s; --help lists them, and the script's own flags stand behind the script", shown)
}

// nearest returns the one of names that takes the fewest edits to become, if those are few enough to be a slip:
// a third of the word, or the beginning of one word alone.
func nearest(word string, names []string) string {
	best, edits := "", len(word)/3+1
	for _, n := range names {
		if d := distance(word, n); d < edits {
			best, edits = n, d
		}
	}
	if best != "" || len(word) < 3 {
		return best
	}
	for _, n := range names {
		if strings.HasPrefix(n, word) {
			if best != "" {
				return ""
			}
			best = n
		}
	}
	return best
}

// distance is the number of slips of a finger between two words: a letter too many, too few or wrong, or two
// neighbours exchanged (optimal string alignment).
func distance(a, b string) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			wrong := 1
			if a[i-1] == b[j-1] {
				wrong = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+wrong)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}

// seconds is a duration as a flag: 90s, 10m, or a bare number of seconds, as torchrun has it.
type seconds struct{ d *time.Duration }

func (s seconds) Set(text string) error {
	if n, err := strconv.ParseFloat(text, 64); err == nil && n >= 0 && n < 1e9 {
		*s.d = time.Duration(n * float64(time.Second))
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return fmt.Errorf("%q is no duration: give 90s, 10m or a number of seconds", text)
	}
	*s.d = d
	return nil
}

func (s seconds) String() string {
	if s.d == nil {
		return ""
	}
	return s.d.String()
}

// wait is a duration as a flag that cannot be none: who waits for peers no time at all never meets any.
type wait struct{ d *time.Duration }

func (v wait) Set(text string) error {
	var d time.Duration
	if err := (seconds{&d}).Set(text); err != nil {
		return err
	}
	if d == 0 {
		return fmt.Errorf("%q is no time to wait", text)
	}
	*v.d = d
	return nil
}

func (v wait) String() string { return seconds(v).String() }

// number is a whole number between two bounds as a flag.
type number struct {
	n         *int
	low, high int
}

func (v number) Set(text string) error {
	n, err := strconv.Atoi(text)
	if v.low == v.high && (err != nil || n != v.low) {
		return fmt.Errorf("%q is not in this version, which knows only %d", text, v.low)
	}
	if err != nil || n < v.low || n > v.high {
		return fmt.Errorf("%q is no whole number from %d to %d", text, v.low, v.high)
	}
	*v.n = n
	return nil
}

func (v number) String() string {
	if v.n == nil {
		return ""
	}
	return strconv.Itoa(*v.n)
}

// port is a number that a listener can have.
func port(n *int) number { return number{n, 1, 65535} }

// choice is one of a few words as a flag.
type choice struct {
	word  *string
	among string // separated by blanks
}

func (v choice) Set(text string) error {
	among := strings.Fields(v.among)
	if !slices.Contains(among, text) {
		return fmt.Errorf("%q is none of %s", text, strings.Join(among, ", "))
	}
	*v.word = text
	return nil
}

func (v choice) choices() []string { return strings.Fields(v.among) }

func (v choice) String() string {
	if v.word == nil {
		return ""
	}
	return *v.word
}

// nodes is --nnodes: N, or MIN:MAX.
type nodes struct{ fewest, all *int }

func (v nodes) Set(text string) (err error) {
	*v.fewest, *v.all, err = job.ParseNodes(text)
	return err
}

func (v nodes) String() string {
	if v.all == nil || *v.all == 0 {
		return ""
	}
	return job.Terms{Nodes: *v.all, Least: *v.fewest}.Size()
}
