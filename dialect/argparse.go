package dialect

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// An option is one of a launcher's flags, as Python's argparse has it.
type option struct {
	names string // separated by blanks, the one for messages first: "--nproc-per-node -n"
	alone bool   // it has no value (store_true)
	takes func(value string) error
}

// name is the option's first one, without dashes and with underscores, as argparse's dest.
func (o option) name() string {
	first, _, _ := strings.Cut(o.names, " ")
	return strings.ReplaceAll(strings.TrimLeft(first, "-"), "-", "_")
}

// options is a parser of Python's argparse: some flags, then a positional argument, and the rest is the script's.
type options struct {
	known      []option
	abbreviate bool // a long option may be written by its beginning, as long as that is unique (allow_abbrev)
	spellings  bool // a long option may be written with dashes or with underscores, but not with both
}

// A said is one option as it was given.
type said struct {
	name  string // the option's, as option.name has it
	value string
	as    string // as the user wrote it: "--num-machines"
}

// A line is a command line after parsing.
type line struct {
	said []said
	rest []string // from the first argument on that is no option
}

// last returns the option with this name that counts: of several, argparse takes the last.
func (l line) last(name string) (said, bool) {
	for _, s := range slices.Backward(l.said) {
		if s.name == name {
			return s, true
		}
	}
	return said{}, false
}

// has reports whether an option was given.
func (l line) has(name string) bool { _, ok := l.last(name); return ok }

// given is an option that says something: neither nothing nor -1 nor None, which are often defaults.
func (l line) given(name string) said {
	if s, ok := l.last(name); ok && s.value != "" && s.value != "-1" && s.value != "None" {
		return s
	}
	return said{}
}

// A without is some options, separated by blanks, that change nothing, and why.
type without struct{ names, why string }

// notes tells of those options that were given.
func (r *Request) notes(l line, table []without) {
	for _, w := range table {
		var as []string
		for _, name := range strings.Fields(w.names) {
			if s := l.given(name); s.as != "" {
				as = append(as, s.as)
			}
		}
		if len(as) > 0 {
			r.Notes = append(r.Notes, strings.Join(as, ", ")+": without effect, for "+w.why)
		}
	}
}

// parse reads args up to the first one that is no option.
func (o options) parse(args []string) (line, error) {
	var l line
	for len(args) > 0 {
		arg := args[0]
		if arg == "--" {
			l.rest = args[1:]
			return l, nil
		}
		if len(arg) < 2 || arg[0] != '-' {
			l.rest = args
			return l, nil
		}
		s, n, err := o.one(args)
		if err != nil {
			return l, err
		}
		l.said = append(l.said, s)
		args = args[n:]
	}
	return l, nil
}

// one reads the option at the head of args, and says how many of them it takes.
func (o options) one(args []string) (s said, n int, err error) {
	as, value, inline := strings.Cut(args[0], "=")
	if !strings.HasPrefix(args[0], "--") && len(args[0]) > 2 { // -r3
		as, value, inline = args[0][:2], strings.TrimPrefix(args[0][2:], "="), true
	}
	opt, err := o.find(as)
	if err != nil {
		return s, 0, err
	}
	s = said{name: opt.name(), value: value, as: as}
	switch {
	case opt.alone && inline:
		return s, 0, fmt.Errorf("%s takes no value, but %q was given", as, value)
	case opt.alone:
		s.value = "true"
		return s, 1, nil
	case !inline && (len(args) < 2 || looksLikeOption(args[1])):
		return s, 0, fmt.Errorf("%s needs a value", as)
	case !inline:
		s.value, n = args[1], 1
	}
	if opt.takes != nil {
		if err := opt.takes(s.value); err != nil {
			return s, 0, fmt.Errorf("%s: %w", as, err)
		}
	}
	return s, n + 1, nil
}

// looksLikeOption reports whether argparse would take an argument for an option and not for a value: a negative
// number is a value.
func looksLikeOption(arg string) bool {
	if len(arg) < 2 || arg[0] != '-' {
		return false
	}
	_, err := strconv.ParseFloat(arg, 64)
	return err != nil && !strings.Contains(arg, " ")
}

// find returns the option with this name, or with a name that it alone begins.
func (o options) find(as string) (option, error) {
	var begins []option
	for _, opt := range o.known {
		for _, name := range strings.Fields(opt.names) {
			spelt := o.spelt(name)
			if slices.Contains(spelt, as) {
				return opt, nil
			}
			if o.abbreviate && strings.HasPrefix(as, "--") && slices.ContainsFunc(spelt, func(s string) bool { return strings.HasPrefix(s, as) }) {
				begins = append(begins, opt)
			}
		}
	}
	switch len(begins) {
	case 1:
		return begins[0], nil
	case 0:
		return option{}, unknownError{as, o}
	}
	var names []string
	for _, opt := range begins {
		names = append(names, "--"+opt.name())
	}
	return option{}, fmt.Errorf("%s may be any of %s", as, strings.Join(names, ", "))
}

// spelt are the ways in which a name may be written.
func (o options) spelt(name string) []string {
	bare, long := strings.CutPrefix(name, "--")
	if !o.spellings || !long {
		return []string{name}
	}
	return []string{"--" + strings.ReplaceAll(bare, "_", "-"), "--" + strings.ReplaceAll(bare, "-", "_")}
}

// An unknownError is an option that the launcher does not have.
type unknownError struct {
	as string
	of options
}

func (e unknownError) Error() string { return "there is no flag " + e.as }

// Names are those that the launcher has, from which a person may have meant one.
func (e unknownError) Names() (names []string) {
	for _, opt := range e.of.known {
		for _, name := range strings.Fields(opt.names) {
			names = append(names, strings.TrimLeft(name, "-"))
		}
	}
	return names
}

// whole takes whole numbers from low on.
func whole(low int) func(string) error {
	return func(value string) error {
		if n, err := strconv.Atoi(value); err != nil || n < low {
			return fmt.Errorf("%q is no whole number from %d on", value, low)
		}
		return nil
	}
}

// aPort takes the number of a port; 0 stands for a free one.
func aPort(value string) error {
	if n, err := strconv.Atoi(value); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("%q is no whole number from 1 to 65535", value)
	}
	return nil
}

// unknownPort reports that several nodes are to meet at a free port, which none of them could tell the others.
func unknownPort(s said) error {
	if s.value != "0" {
		return nil
	}
	return fmt.Errorf("%s 0 is a free port, of which the other nodes would not know: give all of them the same one, from 1 to 65535", s.as)
}

// yesOrNo takes what people write for true and false (distutils.util.strtobool).
func yesOrNo(value string) error {
	if _, ok := truth(value); !ok {
		return fmt.Errorf("%q is neither true nor false", value)
	}
	return nil
}

// among takes some words, separated by blanks.
func among(words string) func(string) error {
	return func(value string) error {
		if !slices.Contains(strings.Fields(words), value) {
			return fmt.Errorf("%q is none of %s", value, strings.Join(strings.Fields(words), ", "))
		}
		return nil
	}
}
