package main

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/muster-run/muster/dialect"
	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/launcher/pid1"
)

// This file is a launcher's search for the best configuration (deepspeed --autotuning): the real launcher chooses what to try, and calls
// itself for each trial, which is muster by a link in its PATH.

// tune runs the real launcher, once, on this node.
func tune(words understood) error {
	if len(words.request.Others) > 0 { // each trial tells them
		if os.Getenv(noSSH) == "off" {
			return wrong("%s: %s has each trial started from this node, and %s=off says that somebody else does; unset it, and let the other nodes run sshd, a link to muster",
				words.call.As, words.request.Tuning, noSSH)
		}
		os.Setenv(noSSH, "on")
	}
	python, err := launcher.Interpreter(os.Environ())
	if err != nil {
		return err
	}
	links, err := linkDir(dialect.Programs())
	if err != nil {
		return err
	}
	defer os.RemoveAll(links)
	// With pdsh it kills what trials left on the nodes, by names that muster's workers do not have, and they leave nothing.
	nothing, err := exec.LookPath("true")
	if err == nil {
		err = os.Symlink(nothing, filepath.Join(links, "pdsh"))
	}
	if err != nil {
		return wrong("%s: %s: a pdsh that does nothing: %v", words.call.As, words.request.Tuning, err)
	}
	os.Setenv("PATH", links+string(os.PathListSeparator)+os.Getenv("PATH"))
	argv := slices.Concat([]string{python, "-m", dialect.Whole(words.call.Name)}, withoutSSH(words.request), words.call.Args)
	opt := pid1.InitOptions{Group: true, Subreaper: os.Getpid() != 1, Linger: time.Hour} // each trial knows its own limits
	return status(pid1.Init(argv, opt))
}

// withoutSSH are flags of DeepSpeed's that keep it from asking the first node for its address by ssh. It does not pass it on.
func withoutSSH(r dialect.Request) []string {
	addr := ""
	for _, f := range r.Flags {
		if f.Name == "master-addr" {
			addr = f.Value
		}
	}
	return []string{"--no_ssh_check", "--master_addr=" + cmp.Or(addr, "127.0.0.1")}
}
