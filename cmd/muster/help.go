package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"
)

// help prints the page of one command: what it does, its flags (the rare ones only when all are asked for), where
// they come from, and a line to paste.
func help(w io.Writer, c *cli.Command, all bool) {
	fmt.Fprintf(w, "muster %s: %s\n\n", c.Name, c.Usage)
	fmt.Fprintf(w, "  muster %s %s\n\n", c.Name, c.ArgsUsage)
	if c.Description != "" {
		fmt.Fprintf(w, "%s\n\n", c.Description)
	}
	hidden := flagLines(w, c.Flags, all)
	if len(c.Flags) > 0 {
		fmt.Fprintln(w, "\nEvery flag is also a variable: MUSTER_ and its name. - and _ are the same.")
	}
	if hidden > 0 {
		fmt.Fprintf(w, "%d more flags: muster %s --help-all\n", hidden, c.Name)
	}
}

// flagLines prints a line for each flag and returns how many it kept back.
func flagLines(w io.Writer, flags []cli.Flag, all bool) (hidden int) {
	for _, f := range flags {
		v, ok := f.(cli.VisibleFlag)
		if ok && !v.IsVisible() && !all {
			hidden++
			continue
		}
		fmt.Fprintf(w, "  %-26s %s\n", flagNames(f), usageOf(f))
	}
	return hidden
}

// flagNames is "--nnodes N" or "-m, --module": the word that a usage text puts in backquotes names the value.
func flagNames(f cli.Flag) string {
	var names []string
	for _, n := range f.Names() {
		if len(n) == 1 {
			names = append([]string{"-" + n}, names...)
		} else {
			names = append(names, "--"+n)
		}
	}
	value, _ := valueName(f)
	return strings.TrimSpace(strings.Join(names, ", ") + " " + value)
}

func usageOf(f cli.Flag) string {
	_, usage := valueName(f)
	return usage
}

// valueName splits "`N` workers per node" into the value's name and the text.
func valueName(f cli.Flag) (name, usage string) {
	d, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return "", ""
	}
	usage = d.GetUsage()
	if rest, found := strings.CutPrefix(usage, "`"); found {
		name, usage, _ = strings.Cut(rest, "`")
		usage = strings.TrimSpace(usage)
	}
	return name, usage
}
