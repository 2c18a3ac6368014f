package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-run/muster/control"
	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/rendezvous"
	"github.com/muster-run/muster/rendezvous/tcpstore"
	"github.com/muster-run/muster/test/freeport"
	"github.com/muster-run/muster/test/halt"
)

// killAgent kills the agent of p, and returns when another one has taken over.
func (p *program) killAgent() {
	p.t.Helper()
	p.killAgentOf(p.cmd.Process.Pid)
}

// killAgentOf is killAgent where p is what started the first process.
func (p *program) killAgentOf(first int) {
	p.t.Helper()
	before := strings.Count(p.out.String(), tookOver)
	agents := agentsOf(first)
	if len(agents) != 1 || syscall.Kill(agents[0], syscall.SIGKILL) != nil {
		p.t.Fatalf("there are the agents %d:\n%s", agents, p.out.String())
	}
	p.saysTimes(tookOver, before+1)
}

const tookOver = "took over from an agent that died"

// saysTimes waits until p has said a text so many times.
func (p *program) saysTimes(text string, times int) {
	p.t.Helper()
	for deadline := time.After(patience); ; {
		p.out.mu.Lock()
		changed := p.out.changed
		said := strings.Count(p.out.all.String(), text)
		p.out.mu.Unlock()
		if said >= times {
			return
		}
		select {
		case <-changed:
		case <-p.done:
			p.t.Fatalf("it ended and said %q %d times, not %d:\n%s", text, said, times, p.out.String())
		case <-deadline:
			p.t.Fatalf("it says %q %d times, not %d:\n%s", text, said, times, p.out.String())
		}
	}
}

// doom kills the agents of p until no other follows.
func (p *program) doom() {
	p.t.Helper()
	for {
		select {
		case <-p.done:
			return
		case <-time.After(time.Millisecond):
		}
		if strings.Contains(p.out.String(), "workers were stopped") {
			return
		}
		for _, agent := range agentsOf(p.cmd.Process.Pid) {
			syscall.Kill(agent, syscall.SIGKILL)
		}
	}
}

// Agents are killed in turn, the leader's too, and both at once: the workers do not notice, no line is lost or comes twice,
// and the job ends as if nothing had been, with a token or without.
func TestTakeOver(t *testing.T) {
	for name, vars := range map[string][]string{"open": nil, "sealed": {"MUSTER_TOKEN=0123456789abcdef"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testTakeOver(t, vars)
		})
	}
}

func testTakeOver(t *testing.T, vars []string) {
	go1, go2 := filepath.Join(t.TempDir(), "1"), filepath.Join(t.TempDir(), "2")
	all := startNodes(t, 2, append(vars, "GO1="+go1, "GO2="+go2), "--max-restarts", "1", "--", "sh", "-c",
		`echo "up $RANK of $WORLD_SIZE, round $TORCHELASTIC_RESTART_COUNT"; i=0
		lines() { while [ ! -e $1 ]; do i=$((i+1)); echo "line $i"; sleep 0.005; done; }
		lines $GO1
		[ $TORCHELASTIC_RESTART_COUNT = 1 ] && lines $GO2 && echo "last $i" && exit 0
		echo "last $i"; : >$GO1.$RANK
		[ $RANK = 3 ] && while [ ! -e $GO1.0 ] || [ ! -e $GO1.1 ] || [ ! -e $GO1.2 ]; do sleep 0.01; done
		[ $RANK = 3 ] && echo "ValueError: three" && exit 7
		exec sleep 1000`)
	up := func(round int) {
		for rank := range 4 {
			all[rank/2].says(fmt.Sprintf("[rank %d] up %d of 4, round %d", rank, rank, round))
		}
	}
	up(0)
	for _, turn := range [][]int{{1}, {0}, {0, 1}, {1, 0}} {
		for _, n := range turn {
			all[n].killAgent()
		}
	}
	signalFile(t, go1)
	up(1) // the failure was told, and led to another round
	all[0].killAgent()
	all[1].killAgent()
	signalFile(t, go2)
	for n, p := range all {
		p.ends(0, "exited with code 7", "restart 1 of 1")
		wholeLines(t, p.out.String(), 2, 2*n, 2*n+1)
	}
}

// The rounds after a take-over have log files as those before, and its journal begins with the first. A job runs as long as its workers do, not its agent.
func TestTakeOverAndLogs(t *testing.T) {
	t.Parallel()
	for name, vars := range map[string][]string{"log-dir": {"MUSTER_LOG_DIR=logs"}, "torchrun's variables": {"PET_LOG_DIR=logs", "PET_TEE=1"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			p := muster(t, dir, vars, "run", "--max-restarts", "1", "--journal", "journal", "--", "sh", "-c",
				`echo "round $TORCHELASTIC_RESTART_COUNT"; while [ ! -e go ]; do sleep 0.01; done; exit 5`)
			p.says("round 0")
			p.reaches("running")
			killed := time.Now()
			p.killAgent()
			if s := p.reaches("running"); s.Since.After(killed) {
				t.Errorf("it seems to run since %v, when its agent was killed after %v", s.Since, killed)
			}
			signalFile(t, filepath.Join(dir, "go"))
			p.ends(5)
			all := under(t, filepath.Join(dir, "logs"))
			for i := range 2 {
				if got := all[fmt.Sprintf("attempt_%d/0/stdout.log", i)]; got != fmt.Sprintf("round %d\n", i) {
					t.Errorf("attempt %d: %q", i, got)
				}
			}
			again := muster(t, dir, nil, "replay", "journal")
			again.ends(5, "  resumed {", "restart 1 of 1 follows")
			if before, _, _ := strings.Cut(again.out.String(), "  resumed {"); !strings.Contains(before, "  opened {") {
				t.Errorf("the journal begins with another agent: %s", again.out.String())
			}
		})
	}
}

func signalFile(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// wholeLines checks that each rank's numbered lines are there, once each, as many as it says in the end of each round.
func wholeLines(t *testing.T, out string, rounds int, ranks ...int) {
	t.Helper()
	for _, rank := range ranks {
		next, ended := 1, 0
		for line := range strings.Lines(out) {
			var i int
			if n, _ := fmt.Sscanf(line, fmt.Sprintf("[rank %d] line %%d", rank), &i); n == 1 {
				if i != next {
					t.Errorf("rank %d: line %d where line %d should be", rank, i, next)
				}
				next = i + 1
			} else if n, _ := fmt.Sscanf(line, fmt.Sprintf("[rank %d] last %%d", rank), &i); n == 1 {
				if i != next-1 {
					t.Errorf("rank %d: %d lines of %d", rank, next-1, i)
				}
				next, ended = 1, ended+1
			}
		}
		if ended != rounds {
			t.Errorf("rank %d ended %d times, not %d", rank, ended, rounds)
		}
	}
}

// What an agent had begun, the next one ends: the time that workers have to stop goes on, and is not begun anew.
func TestTakeOverWhileStopping(t *testing.T) {
	t.Parallel()
	for victim := range 2 {
		t.Run(fmt.Sprintf("node %d", victim), func(t *testing.T) {
			t.Parallel()
			end := filepath.Join(t.TempDir(), "end")
			all := startNodes(t, 2, []string{"END=" + end}, "--grace", "60s", "--", "sh", "-c",
				`trap 'echo "told $RANK"; t=1' TERM; t=0; echo "up $RANK"; while [ $t = 0 ] || [ ! -e $END ]; do sleep 0.01; done; echo "saved $RANK"; exit 0`)
			for rank := range 4 {
				all[rank/2].says(fmt.Sprintf("[rank %d] up %d", rank, rank))
			}
			all[1].cmd.Process.Signal(syscall.SIGTERM)
			for rank := range 4 {
				all[rank/2].says(fmt.Sprintf("[rank %d] told %d", rank, rank))
			}
			all[victim].killAgent()
			signalFile(t, end)
			for n, p := range all {
				p.ends(143, "node 1 (", "was told to stop by SIGTERM; exit 143", fmt.Sprintf("saved %d", 2*n), fmt.Sprintf("saved %d", 2*n+1))
				if n := strings.Count(p.out.String(), "] told "); n != 2 {
					t.Errorf("TERM came %d times to two workers:\n%s", n, p.out.String())
				}
			}
		})
	}
}

// A worker that dies while its node has no agent is heard of.
func TestTakeOverAndFailure(t *testing.T) {
	t.Parallel()
	for victim := range 2 {
		t.Run(fmt.Sprintf("node %d", victim), func(t *testing.T) {
			t.Parallel()
			now := filepath.Join(t.TempDir(), "now")
			all := startNodes(t, 2, []string{fmt.Sprintf("VICTIM=%d", 2*victim), "NOW=" + now}, "--", "sh", "-c",
				`echo "up $RANK"; [ $RANK = $VICTIM ] || exec sleep 1000; while [ ! -e $NOW ]; do sleep 0.01; done; echo "no good"; exit 9`)
			for rank := range 4 {
				all[rank/2].says(fmt.Sprintf("[rank %d] up %d", rank, rank))
			}
			agent := agentOf(t, all[victim].cmd.Process.Pid)
			halt.Stop(t, agent) // it hears nothing any more
			signalFile(t, now)
			all[victim].says("no good")
			if err := syscall.Kill(agent, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			for _, p := range all {
				p.ends(9, fmt.Sprintf("rank %d on", 2*victim), "exited with code 9; all 2 nodes stopped; exit 9")
			}
		})
	}
}

// An agent that dies as its leader's whole node does is followed by one that stops the workers in order.
func TestTakeOverWithoutLeader(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 2, nil, "--", "sh", "-c",
		`trap 'echo "saved $RANK"; exit 0' TERM; echo "up $RANK"; while :; do sleep 0.01; done`)
	for rank := range 4 {
		all[rank/2].says(fmt.Sprintf("[rank %d] up %d", rank, rank))
	}
	agents := agentsOf(all[1].cmd.Process.Pid)
	halt.Stop(t, agents[0]) // it hears nothing any more
	all[0].dies()
	if err := syscall.Kill(agents[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	all[1].ends(job.ExitRetry, "saved 2", "saved 3", "node 0 (", "was lost", "connection refused", "; exit 138") // it may say besides that it stood still itself
}

// Agents that die one after the other are not followed for ever: the workers are stopped, and the other node knows.
func TestDoomedAgents(t *testing.T) {
	t.Parallel()
	for victim := range 2 {
		t.Run(fmt.Sprintf("node %d", victim), func(t *testing.T) {
			t.Parallel()
			mark := "TEST_MARK=" + t.TempDir()
			all := startNodes(t, 2, []string{mark}, "--", "sh", "-c", `echo "started $RANK"; exec sleep 1000`)
			for n, p := range all {
				p.says(fmt.Sprintf("started %d", 2*n))
				p.says(fmt.Sprintf("started %d", 2*n+1))
			}
			all[victim].doom()
			all[victim].ends(job.ExitRetry, "muster: the agent died (signal 9), as did the 5 before it; workers were stopped")
			all[1-victim].ends(job.ExitRetry, fmt.Sprintf("node %d (", victim), "was lost", "exit 138")
			if left := alive(t, mark); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
			for n, p := range all {
				if left, err := os.ReadDir(p.tmp); len(left) > 0 || err != nil {
					t.Errorf("node %d left in TMPDIR: %v, %v", n, left, err)
				}
			}
		})
	}
}

// A request to stop that came when the agent was about to die is heeded by the next one; one that was heeded changes nothing.
func TestTermAtADyingAgent(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(job.SignalName(sig), func(t *testing.T) {
			t.Parallel()
			p := muster(t, t.TempDir(), nil, "run", "--", "sh", "-c", `trap 'echo saved; exit 0' TERM; echo up; for i in 1 2 3 4 5 6; do sleep 1; done`)
			p.says("up")
			agent := agentOf(t, p.cmd.Process.Pid)
			syscall.Kill(agent, syscall.SIGSTOP)
			p.until(func() bool { return stopped(agent) })
			p.cmd.Process.Signal(sig)
			syscall.Kill(agent, syscall.SIGKILL)
			p.ends(job.ExitTERM, tookOver, "[rank 0] saved", "was told to stop by SIG")
		})
	}
}

// The next agent that is told to stop as soon as it hears tells the other node, and leaves the workers of both their grace.
func TestTermAtANewAgent(t *testing.T) {
	t.Parallel()
	for victim := range 2 {
		t.Run(fmt.Sprintf("node %d", victim), func(t *testing.T) {
			t.Parallel()
			all := startNodes(t, 2, nil, "--", "sh", "-c", `trap 'sleep 0.3; echo saved; exit 0' TERM; echo "up $RANK"; while :; do sleep 0.01; done`)
			for n, p := range all {
				p.says(fmt.Sprintf("up %d", 2*n))
				p.says(fmt.Sprintf("up %d", 2*n+1))
			}
			syscall.Kill(agentOf(t, all[victim].cmd.Process.Pid), syscall.SIGKILL)
			all[victim].cmd.Process.Signal(syscall.SIGTERM)
			for n, p := range all {
				p.ends(job.ExitTERM, fmt.Sprintf("[rank %d] saved", 2*n), fmt.Sprintf("[rank %d] saved", 2*n+1), fmt.Sprintf("node %d (", victim))
			}
		})
	}
}

// What an agent had started for itself, and nobody else knows of, is ended by the next one.
func TestTakeOverEndsStrays(t *testing.T) {
	t.Parallel()
	mark := "TEST_MARK=" + t.TempDir()
	p := muster(t, t.TempDir(), []string{mark}, "run", "--worker-store", "agent", "--", "sh", "-c", training)
	p.says("up 0 of 1")
	stray := filepath.Join(t.TempDir(), "stray")
	if err := os.WriteFile(stray, []byte("#!/bin/sh\nsleep 1001 &\nsleep 1002\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	strays := func() bool { return strings.Contains(strings.Join(alive(t, mark), "\n"), "sleep 100") }
	asked := p.asks("ctl", "upgrade", stray) // which is tried first
	p.until(strays)
	p.killAgent()
	asked.ends(1, "it hung up")
	p.until(func() bool { return !strays() })
	p.status() // the store, which serves, was not ended
	p.asks("ctl", "stop").ends(0)
	p.ends(143, "saved 0", "was told to stop by muster ctl")
}

// An agent that takes over and finds no other one, be it that leads or that hosts the store, heeds a request to stop all the
// same, and ends as if it had been told alone.
func TestTakeOverAloneAndTerm(t *testing.T) {
	t.Parallel()
	for victim := range 2 {
		t.Run(fmt.Sprintf("node %d", victim), func(t *testing.T) {
			t.Parallel()
			endpoint := fmt.Sprintf("127.0.0.1:%d", freeport.Take(t))
			var all []*program
			for n := range 2 { // the other one hosts the store
				all = append(all, muster(t, t.TempDir(), nil, "run", "--nnodes", "2", "--node-rank", fmt.Sprint(n), "--nproc-per-node", "1", "--local-addr", fmt.Sprintf("127.0.0.%d", n+1),
					"--rdzv-endpoint", endpoint, "--serve", []string{"no", "yes"}[(n+victim)%2], "--", "sh", "-c", training))
			}
			for n, p := range all {
				p.says(fmt.Sprintf("up %d of 2", n))
			}
			other := []int{all[1-victim].cmd.Process.Pid, agentOf(t, all[1-victim].cmd.Process.Pid)}
			for _, pid := range other {
				syscall.Kill(pid, syscall.SIGSTOP)
				defer syscall.Kill(pid, syscall.SIGKILL)
			}
			all[victim].killAgent()
			all[victim].cmd.Process.Signal(syscall.SIGTERM)
			told := time.Now()
			all[victim].says(fmt.Sprintf("saved %d", victim))
			t.Logf("its worker was told within %v", time.Since(told))
			all[victim].ends(job.ExitTERM, fmt.Sprintf("saved %d", victim), fmt.Sprintf("node %d (", victim), "was told to stop by SIGTERM; exit 143")
		})
	}
}

// The agent that hosts the store and leads is killed when the world was published, which another node knows and its own first
// process perhaps not yet. The next one is in that world.
func TestTakeOverAsTheWorldIsMade(t *testing.T) {
	t.Parallel()
	for try := range 4 {
		t.Run(fmt.Sprint(try), func(t *testing.T) {
			t.Parallel()
			endpoint := fmt.Sprintf("127.0.0.1:%d", freeport.Take(t))
			p := muster(t, t.TempDir(), nil, "run", "--nnodes", "2", "--node-rank", "0", "--nproc-per-node", "1", "--rdzv-id", "j7", "--rdzv-endpoint", endpoint,
				"--", "sh", "-c", training)
			p.says("1 of 2 nodes here")
			agent := agentOf(t, p.cmd.Process.Pid)
			s, err := tcpstore.Dial(t.Context(), endpoint, tcpstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			session, err := rendezvous.Join(t.Context(), s, job.Spec{ID: "j7", Terms: job.Terms{Nodes: 2}, Self: job.Node{Name: "other", Index: 1, Slots: 1, Incarnation: "1"}}, rendezvous.Options{})
			syscall.Kill(agent, syscall.SIGKILL)
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			member, err := fleet.Follow(ctx, session.Seat(), fleet.Options{})
			if err != nil {
				t.Fatalf("%v:\n%s", err, p.out.String())
			}
			p.says("up 0 of 2")
			member.Close()
			p.ends(job.ExitRetry, "another one takes over", "node 1 (other) was lost: its agent left the job")
		})
	}
}

// An order on its way to the leader when its agent dies is carried out by the next one, and answered.
func TestTakeOverAndOrder(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 2, nil, "--", "sh", "-c", training)
	up(all, 0)
	leader := agentOf(t, all[0].cmd.Process.Pid)
	halt.Stop(t, leader) // it hears nothing any more
	stood := time.Now()
	asked := all[1].asks("ctl", "restart")
	// After 10 s the leader is lost. On a machine so busy that this takes long, the next one hears of an order that was not on its way yet.
	all[1].until(func() bool {
		return time.Since(stood) > 4*time.Second || strings.Contains(all[1].journal(), `"ordered"`)
	})
	if err := syscall.Kill(leader, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	asked.ends(0, "the next round follows")
	up(all, 1)
	all[1].asks("ctl", "stop").ends(0)
	for _, p := range all {
		p.ends(job.ExitTERM)
	}
}

// journal is what p's agent saw so far.
func (p *program) journal() string {
	p.t.Helper()
	var r launcher.BugReport
	if err := control.Find(p.tmp)[0].Ask(p.t.Context(), control.Request{Do: "bugreport"}, &r); err != nil {
		p.t.Fatal(err)
	}
	i := slices.IndexFunc(r.Parts, func(part launcher.Part) bool { return part.Name == "journal" })
	return string(r.Parts[max(i, 0)].Data)
}

// until waits for something while p runs.
func (p *program) until(done func() bool) {
	p.t.Helper()
	for !done() {
		select {
		case <-p.done:
			p.t.Fatalf("it ended:\n%s", p.out.String())
		case <-time.After(time.Millisecond):
		}
	}
}

// stopped reports whether no thread of a process runs any more.
func stopped(pid int) bool {
	threads, _ := proc.Root(fmt.Sprintf("/proc/%d/task", pid)).All()
	return !slices.ContainsFunc(threads, func(p proc.Process) bool { return p.State != 'T' })
}

// A request to stop that comes while an agent takes over is heard, and ends the job as any other.
func TestTakeOverAndTerm(t *testing.T) {
	t.Parallel()
	for victim := range 2 {
		t.Run(fmt.Sprintf("node %d", victim), func(t *testing.T) {
			t.Parallel()
			all := startNodes(t, 2, nil, "--", "sh", "-c", `trap 'echo "saved $RANK"; exit 0' TERM; echo "up $RANK"; while :; do sleep 0.01; done`)
			for rank := range 4 {
				all[rank/2].says(fmt.Sprintf("[rank %d] up %d", rank, rank))
			}
			p := all[victim].cmd.Process
			if err := syscall.Kill(agentOf(t, p.Pid), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			p.Signal(syscall.SIGTERM)
			for n, p := range all {
				p.ends(143, fmt.Sprintf("node %d (", victim), "was told to stop by SIGTERM; exit 143", fmt.Sprintf("saved %d", 2*n), fmt.Sprintf("saved %d", 2*n+1))
			}
		})
	}
}

// Who left its worker's tree is found by an agent that is younger than itself, also when there is no first process any more.
func TestTakeOverAndNobodyIsLeft(t *testing.T) {
	t.Parallel()
	mark := "TEST_MARK=" + t.TempDir()
	p := muster(t, t.TempDir(), []string{mark}, "run", "--", "sh", "-c", `(setsid sh -c 'sleep 1000 & sleep 1000' &); echo up; exec sleep 1000`)
	p.says("up")
	p.killAgent()
	p.cmd.Process.Kill()
	p.says("the first process on")
	for left := alive(t, mark); len(left) > 0; left = alive(t, mark) {
		if t.Context().Err() != nil {
			t.Fatalf("left behind: %q", left)
		}
		runtime.Gosched()
	}
}

// What an agent has in memory stays as long as it or its first process lives. When both were killed, the machine's next agent removes it.
func TestLeftInMemory(t *testing.T) {
	t.Parallel()
	id := fmt.Sprint("left-", os.Getpid())
	left := func() int {
		found, _ := filepath.Glob("/dev/shm/muster-" + id + "-*")
		return len(found)
	}
	next := func() { muster(t, t.TempDir(), nil, "run", "--", "true").ends(0) }
	p := muster(t, t.TempDir(), nil, "run", "--rdzv-id", id, "--", "sh", "-c", "echo here; exec sleep 1000")
	p.says("here")
	p.killAgent()
	next()
	if n := left(); n != 1 {
		t.Fatalf("%d directories of a job that lives", n)
	}
	agent := agentsOf(p.cmd.Process.Pid)[0]
	p.cmd.Process.Signal(syscall.SIGSTOP) // or it would start another one
	syscall.Kill(agent, syscall.SIGKILL)
	next()
	if n := left(); n != 1 {
		t.Fatalf("%d directories of a first process that lives", n)
	}
	p.cmd.Process.Kill()
	<-p.done
	for range 20 { // until the kernel is done with it
		if next(); left() == 0 {
			return
		}
	}
	t.Error("a directory of a job that was killed is left")
}
