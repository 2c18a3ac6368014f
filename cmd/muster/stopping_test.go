package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/test/freeport"
)

// What tells workers to stop, whom, and when.
func TestStopping(t *testing.T) {
	t.Parallel()
	const wait = `echo "up $RANK"; while :; do sleep 0.05; done`
	for name, c := range map[string]struct {
		flags  []string
		script string
		sig    syscall.Signal // sent when all workers are up; 0: none
		code   int
		says   []string
	}{
		"deadline":                {[]string{"--deadline", "10s"}, `trap 'echo saved $RANK; exit 0' TERM; ` + wait, 0, job.ExitDeadline, []string{"saved 1", "the job has not ended within 10s (--deadline"}},
		"preemption signal":       {[]string{"--preempt-signal", "USR1"}, `[ $RANK = 0 ] && trap 'echo saved; exit 0' USR1; ` + wait, syscall.SIGTERM, 143, []string{"[rank 0] saved", "told to stop by SIGTERM"}},
		"a signal that one knows": {nil, `[ $RANK = 1 ] && trap 'echo got it; exit 5' USR2; ` + wait, syscall.SIGUSR2, 5, []string{"[rank 1] got it", "rank 1 on"}},
		"HUP that one knows":      {nil, `trap 'echo read again; exit 6' HUP; ` + wait, syscall.SIGHUP, 6, []string{"read again"}},
		"HUP that nobody knows":   {nil, wait, syscall.SIGHUP, 143, []string{"told to stop by SIGHUP"}},
		"the tree is told":        {[]string{"--signal-scope", "tree"}, `sh -c 'trap "echo child; exit 0" TERM; echo "up $RANK"; while :; do sleep 0.05; done'`, syscall.SIGTERM, 143, []string{"[rank 0] child"}},
		"rank 0 is enough":        {[]string{"--success", "rank0"}, `[ $RANK = 0 ] && exit 0; exec sleep 1000`, 0, 0, nil},
		"nobody is stopped":       {[]string{"--on-worker-exit", "leave"}, `[ $RANK = 0 ] && exit 4; sleep 0.3; echo done`, 0, 4, []string{"[rank 1] done", "exited with code 4; exit 4"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append(append([]string{"run", "--nproc-per-node", "2"}, c.flags...), "--", "sh", "-c", c.script)
			p := muster(t, t.TempDir(), nil, args...)
			if c.sig != 0 {
				p.says("[rank 0] up 0")
				p.says("[rank 1] up 1")
				p.cmd.Process.Signal(c.sig)
			}
			p.ends(c.code, c.says...)
		})
	}
}

// Peers that do not come in time for the start are not waited for any longer; who is missing is said.
func TestStartTimeout(t *testing.T) {
	t.Parallel()
	flags := strings.Fields(fmt.Sprintf("run --nnodes 2 --node-rank 0 --rdzv-endpoint 127.0.0.1:%d --start-timeout 10s", freeport.Take(t)))
	p := muster(t, t.TempDir(), nil, append(flags, "--", "true")...)
	p.ends(job.ExitSlowStart, "the workers were not started within 10s (--start-timeout", "1 of 2 nodes here", "missing node 1; exit 73")
	p = muster(t, t.TempDir(), nil, append(flags, "--serve", "no", "--", "true")...)
	p.ends(job.ExitSlowStart, "the workers were not started within 10s (--start-timeout", "waiting for the store at", "connection refused; exit 73")
}
