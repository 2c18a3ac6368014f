package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-run/muster/proc"
)

// inits are programs that are a container's first process and do nothing but start its main one, and bury the dead.
var inits = []string{"tini", "tini-static", "dumb-init", "docker-init", "podman-init", "catatonit"}

// mainProcess reports whether the container ends when this job does: first, the parent of this agent, is the container's first process, or what
// an init started. After any other, such as a script that has more to do, or a worker that is a launcher itself, something may follow.
func mainProcess(table proc.Root, first int) bool {
	if first == 1 {
		return true
	}
	p, err := table.Process(first)
	if err != nil {
		return false
	}
	init, err := table.Process(1)
	if err != nil {
		return false
	}
	if p.Parent == 0 { // put here from outside: of a pod whose containers share their processes, and whose first is Kubernetes'
		return init.Name == "pause"
	}
	return p.Parent == 1 && (slices.Contains(inits, init.Name) || musterInit(table))
}

// musterInit reports whether the first process is ours as a plain init; with run it has workers.
func musterInit(table proc.Root) bool {
	line, _ := os.ReadFile(filepath.Join(string(table), "1", "cmdline")) // the kernel's own, which is there as long as the process
	argv := strings.Split(string(line), "\x00")
	return len(argv) > 2 && filepath.Base(argv[0]) == "muster" && argv[1] == "init"
}
