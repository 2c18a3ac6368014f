package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// This file reads what ssh's programs are told: their options and their files.

// options are what getopt(3) makes of a program's arguments.
type options struct {
	said []option
	rest []string
}

type option struct {
	letter byte
	value  string
}

// getopt reads options until the first word that is none. known has every letter, with a colon behind it if a value follows.
func getopt(known string, args []string) (o options, err error) {
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		word := args[0][1:]
		if args = args[1:]; word == "-" {
			break
		}
		for word != "" {
			letter := word[0]
			word = word[1:]
			i := strings.IndexByte(known, letter)
			switch {
			case letter == ':' || i < 0:
				return o, fmt.Errorf("there is no option -%c", letter)
			case i+1 == len(known) || known[i+1] != ':':
				o.said = append(o.said, option{letter, ""})
				continue
			case word == "" && len(args) == 0:
				return o, fmt.Errorf("option -%c needs a value", letter)
			case word == "":
				word, args = args[0], args[1:]
			}
			o.said, word = append(o.said, option{letter, word}), ""
		}
	}
	o.rest = args
	return o, nil
}

// all are the values of one option.
func (o options) all(letter byte) (values []string) {
	for _, s := range o.said {
		if s.letter == letter {
			values = append(values, s.value)
		}
	}
	return values
}

func (o options) has(letter byte) bool { return len(o.all(letter)) > 0 }

// last is the value of an option that counts where it is said last; "": it is not said.
func (o options) last(letter byte) string {
	all := o.all(letter)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

// setting is what -o NAME=VALUE says; the first counts, as with ssh.
func (o options) setting(name string) string {
	for _, text := range o.all('o') {
		if key, value := keyValue(text); strings.EqualFold(key, name) {
			return value
		}
	}
	return ""
}

// keyValue reads a line of ssh's files: NAME VALUE or NAME=VALUE.
func keyValue(line string) (key, value string) {
	line = strings.TrimSpace(line)
	i := strings.IndexAny(line, " \t=")
	if i < 0 || line[0] == '#' {
		return "", ""
	}
	return line[:i], strings.Trim(strings.TrimLeft(line[i:], " \t="), `"`)
}

// configured is what one of ssh's files says of a name, for a host, if it is ssh_config(5): the first counts. What cannot be read says nothing.
func configured(path, name, host string) string {
	text, _ := os.ReadFile(path)
	ours := true
	for line := range bytes.Lines(text[:min(len(text), 1<<20)]) {
		key, value := keyValue(string(line))
		switch {
		case strings.EqualFold(key, "Host"):
			ours = hostMatches(strings.Fields(value), host)
		case strings.EqualFold(key, "Match"):
			ours = false
		case ours && strings.EqualFold(key, name):
			return value
		}
	}
	return ""
}

// hostMatches reports whether a host is meant by patterns of ssh_config(5), with * and ?, and ! for those that are not.
func hostMatches(patterns []string, host string) (yes bool) {
	for _, p := range patterns {
		p, not := strings.CutPrefix(p, "!")
		if ok, err := filepath.Match(p, host); err == nil && ok {
			if not {
				return false
			}
			yes = true
		}
	}
	return yes
}
