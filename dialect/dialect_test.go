package dialect

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/test/golden"
)

// host is a machine with nothing on it but these variables and files.
func host(name string, env, files map[string]string) job.Host {
	return job.Host{
		Hostname: name,
		Getenv:   func(name string) string { return env[name] },
		ReadFile: func(path string) ([]byte, error) {
			if text, ok := files[path]; ok {
				return []byte(text), nil
			}
			return nil, &os.PathError{Op: "open", Path: path, Err: os.ErrNotExist}
		},
	}
}

// Every testdata/*.lines holds command lines, one a line, and its .want what they mean.
func TestLines(t *testing.T) {
	files, err := filepath.Glob("testdata/*.lines")
	if err != nil || len(files) == 0 {
		t.Fatal("no testdata/*.lines: ", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".lines"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for line := range strings.Lines(string(text)) {
				if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
					fmt.Fprintf(&got, "$ %s\n%s\n", line, told(strings.Fields(line)))
				}
			}
			golden.File(t, strings.TrimSuffix(file, ".lines")+".want", got.String())
		})
	}
}

// told is what a command line means, as text. Words before it of the form NAME=VALUE are the environment; a host name
// is given by HOSTNAME. Its files are those of testdata.
func told(words []string) string {
	env := map[string]string{}
	for len(words) > 0 && strings.Contains(words[0], "=") && words[0][0] != '-' {
		name, value, _ := strings.Cut(words[0], "=")
		env[name], words = value, words[1:]
	}
	c, ok := Of(words)
	if !ok {
		return "  no launcher\n"
	}
	h := host(env["HOSTNAME"], env, nil)
	h.Dir = "/here"
	h.ReadFile = func(path string) ([]byte, error) { return os.ReadFile(filepath.Join("testdata", path)) }
	r, err := c.Parse(h)
	if err != nil {
		return fmt.Sprintf("  error: %v\n", err)
	}
	if r.Help {
		return "  help\n"
	}
	var b strings.Builder
	for _, f := range r.Flags {
		fmt.Fprintf(&b, "  --%s=%s\t(%s)\n", f.Name, f.Value, f.From)
	}
	for _, v := range r.Env {
		fmt.Fprintf(&b, "  %s=%s\t(%s)\n", v.Name, v.Value, v.Why)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "  note: %s\n", note)
	}
	if r.PIDFile != "" {
		fmt.Fprintf(&b, "  pid file %s\n", r.PIDFile)
	}
	if r.Tuning != "" {
		fmt.Fprintf(&b, "  %s\n", r.Tuning)
	}
	if r.Cores.Asked {
		fmt.Fprintf(&b, "  cores %q\t(%s)\n", r.Cores.List+r.Cores.Near, r.Cores.From)
	}
	if len(r.Without) > 0 {
		fmt.Fprintf(&b, "  without %s\n", strings.Join(r.Without, " "))
	}
	if r.Idle != "" {
		fmt.Fprintf(&b, "  idle: %s\n", r.Idle)
	}
	if r.Virtual != "" {
		fmt.Fprintf(&b, "  each worker sees its own GPU alone (%s)\n", r.Virtual)
	}
	fmt.Fprintf(&b, "  command %q script=%v template=%v local-rank=%q\n", r.Command, r.Script, r.Template, r.LocalRank)
	return b.String()
}

func TestOf(t *testing.T) {
	for line, want := range map[string]string{
		"torchrun a.py": "torchrun: a.py",
		"/opt/conda/bin/torchrun --nnodes 2 a.py":                  "torchrun: --nnodes 2 a.py",
		"python -m torch.distributed.run a.py":                     "torch.distributed.run: a.py",
		"python3.12 -u -m torch.distributed.launch --use_env a.py": "torch.distributed.launch: --use_env a.py",
		"python3 /usr/local/bin/torchrun a.py":                     "torchrun: a.py",
		"python3 -m pytest a.py":                                   "",
		"python3 train.py torchrun":                                "",
		"pythonx -m torch.distributed.run a.py":                    "",
		"python3 -m":                                               "",
		"bash torchrun":                                            "",
		"":                                                         "",
	} {
		c, ok := Of(strings.Fields(line))
		got := ""
		if ok {
			got = c.As + ": " + strings.Join(c.Args, " ")
		}
		if got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// What Python runs is found behind all of its own flags.
func TestPythonsLines(t *testing.T) {
	text, err := os.ReadFile("testdata/calls.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if words[0] == "#" {
			continue
		}
		if c, ok := Of(words[1:]); ok != (words[0] == "yes") || ok && c.Python != words[1] {
			t.Errorf("%s: %v, by %q", strings.Join(words[1:], " "), ok, c.Python)
		}
	}
}

// A program of Python's says in its first lines which one is its own.
func TestPythonOf(t *testing.T) {
	for program, want := range map[string]string{
		"#!/opt/venv/bin/python3\nimport torch\n":                               "/opt/venv/bin/python3",
		"#! /opt/venv/bin/python3.13t -sE\n":                                    "/opt/venv/bin/python3.13t",
		"#!/usr/bin/env python3\n":                                              "",
		"#!/bin/sh\nexec python3\n":                                             "",
		"#!/bin/sh\n'''exec' /a/long/bin/python3 \"$0\" \"$@\"\n' '''\n":        "/a/long/bin/python3",
		"#!/bin/sh\n'''exec' \"/a path/bin/python\" \"$0\" \"$@\"\n' '''\n":     "/a path/bin/python",
		"#!/bin/sh\n'''exec' \"$(dirname -- \"$0\")\"/'python' \"$0\"\n' '''\n": "",
		"\x7fELF":                 "",
		"/opt/venv/bin/python3\n": "",
		"":                        "",
	} {
		if got := PythonOf(program); got != want {
			t.Errorf("%q: %q", program, got)
		}
	}
}
