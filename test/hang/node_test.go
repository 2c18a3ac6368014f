package hang

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-run/muster/test/stage"
)

// patience is how long a scene waits for anything that is to happen; the machine may be busy with much else.
const patience = 12 * time.Minute

// A job is two nodes, and what their agents and workers say.
type job struct {
	*stage.Stage
	t     *testing.T
	nodes [2]*stage.Machine
}

// kept is where each node keeps evidence, below its own directory.
const kept = "kept"

// open makes two nodes, which reach each other by h0 and h1, and have another wire, e1, for the data.
func open(t *testing.T, muster string) *job {
	j := &job{Stage: stage.Open(t, 2), t: t}
	j.Dull = func(text string) bool { return strings.Contains(text, "] step ") }
	for i, name := range []string{"h0", "h1"} {
		j.nodes[i] = j.Add(name, name, muster, "init", "--")
	}
	return j
}

// run starts an agent on a node, with more in its environment.
func (j *job) run(i int, env []string, argv ...string) {
	j.t.Helper()
	j.nodes[i].Run(append(env, "GLOO_SOCKET_IFNAME=e1", "MUSTER_EVIDENCE="+filepath.Join(j.nodes[i].Dir, kept)), argv...)
}

// cut lets nothing through the wire for data, as a switch does that has died.
func (j *job) cut() {
	for _, n := range j.nodes {
		n.Network("nft", "add table t; add chain t c { type filter hook input priority 0; }; add rule t c iifname e1 drop")
	}
	j.must(os.WriteFile(filepath.Join(j.nodes[0].Dir, "cut"), nil, 0o644)) // for the rank that waits for it
}

func (j *job) heal() {
	for _, n := range j.nodes {
		n.Network("nft", "delete table t")
	}
}

// wake lets a process of a node go on that is stopped.
func (j *job) wake(i int, pid string) {
	j.t.Helper()
	n, err := strconv.Atoi(pid)
	j.must(err)
	j.nodes[i].Signal(n, syscall.SIGCONT)
}

// A line is what was said on a node.
type line = stage.Line

func verdict(l line) bool { return strings.HasPrefix(l.Text, "muster: hang: ") }

// has are the lines with some words.
func has(words string) func(line) bool {
	return func(l line) bool { return strings.Contains(l.Text, words) }
}

// on are those of them that were said on a node.
func (j *job) on(i int, is func(line) bool) func(line) bool {
	return func(l line) bool { return l.By.On == j.nodes[i] && is(l) }
}

// until waits for a line.
func (j *job) until(what string, is func(line) bool) (l line) {
	j.t.Helper()
	if !j.Await(patience, func() (ok bool) { l, ok = j.Find(is); return ok }) {
		j.t.Fatalf("in vain waited for %s", what)
	}
	return l
}

// end waits for the agents to end, for as long as anything is said, and returns their exit codes.
func (j *job) end() (codes [2]int) {
	j.t.Helper()
	for said := -1; !j.Await(patience, j.Over); said = len(j.Lines()) {
		if said == len(j.Lines()) {
			j.t.Fatalf("not all agents have ended, and nothing was said for %v", patience)
		}
	}
	for i, n := range j.nodes {
		codes[i] = n.Program().Code()
	}
	return codes
}

func (j *job) must(err error) {
	j.t.Helper()
	if err != nil {
		j.t.Fatal(err)
	}
}
