package dialect

import (
	"path/filepath"
	"slices"
	"strings"
)

// This file reads the command line of a Python interpreter, as far as to what it runs (Python/getopt.c, Modules/main.c).

// isPython reports whether a program is an interpreter of Python by its name: python, python3, python3.12.
func isPython(program string) bool {
	version, ok := strings.CutPrefix(filepath.Base(program), "python")
	return ok && strings.Trim(version, "0123456789.") == ""
}

// ofPython returns the module or the script that an interpreter with these arguments runs, and those of that; neither where it runs a
// command, its standard input, or nothing.
func ofPython(args []string) (module, script string, rest []string) {
	for ; len(args) > 0; args = args[1:] {
		arg := args[0]
		switch {
		case arg == "--" && len(args) > 1:
			return "", args[1], args[2:]
		case arg == "-" || arg == "--":
			return "", "", nil
		case arg == "--check-hash-based-pycs" && len(args) > 1:
			args = args[1:]
			continue
		case strings.HasPrefix(arg, "--"):
			continue
		case !strings.HasPrefix(arg, "-"):
			return "", arg, args[1:]
		}
		i := strings.IndexAny(arg, "cmWX")
		if i < 0 { // letters that stand alone: -uB
			continue
		}
		value := arg[i+1:]
		if value == "" && len(args) > 1 {
			value, args = args[1], args[1:]
		}
		switch arg[i] {
		case 'm':
			return value, "", args[1:]
		case 'c':
			return "", "", nil
		}
	}
	return "", "", nil
}

// moduleOf is the launcher's module that a script is, by its path: python .../torch/distributed/launch.py; "": none.
func moduleOf(script string) string {
	for _, d := range dialects {
		i := slices.IndexFunc(d.Modules, func(m string) bool {
			return strings.HasSuffix(script, "/"+strings.ReplaceAll(m, ".", "/")+".py")
		})
		if i >= 0 {
			return d.Modules[i]
		}
	}
	return ""
}

// PythonOf returns the interpreter that a program of Python's names in its first lines, by its path; "" where they name none, or leave it to PATH
// (#!/usr/bin/env python3).
func PythonOf(program string) string {
	line, rest, _ := strings.Cut(program, "\n")
	line, ok := strings.CutPrefix(line, "#!")
	exe, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	if again, long := strings.CutPrefix(rest, "'''exec' "); exe == "/bin/sh" && long { // as pip and uv write a path that is too long for the kernel, or has blanks
		end := " "
		if again != "" && strings.ContainsAny(again[:1], `"'`) {
			end, again = again[:1], again[1:]
		}
		exe, _, _ = strings.Cut(again, end)
	}
	if !ok || !filepath.IsAbs(exe) || !strings.HasPrefix(filepath.Base(exe), "python") {
		return ""
	}
	return exe
}
