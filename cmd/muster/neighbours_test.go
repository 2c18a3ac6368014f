package main

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/test/halt"
)

// neighbours are a job that has the port, and waits for its second node, and another one that is told the same port.
func neighbours(t *testing.T, flags string) (owner, guest *crowd) {
	owner, guest = newCrowd(t, "--nnodes 2"), newCrowd(t, "--nnodes 2 --rdzv-id guest "+flags)
	guest.port = owner.port
	owner.joins("a")
	owner.nodes["a"].says("missing node 1")
	return owner, guest
}

// Who hosts a job that shares another one's port is known by its claim: the one that comes in its place, when its first process was killed, waits for
// it, and one that was started twice is told which is there.
func TestGuestIsThere(t *testing.T) {
	t.Parallel()
	owner, guest := neighbours(t, "--max-restarts 3")
	guest.joins("a", "b")
	guest.works(0, "a", "b")
	a := guest.nodes["a"]
	a.says("is another job's, which hands over what calls for this one")
	at := fmt.Sprintf("port %d (pid %d, muster.test run)", owner.port, a.cmd.Process.Pid)
	muster(t, t.TempDir(), nil, append(guest.agent("a", "2"), "--max-restarts", "0", "--", "true")...).ends(job.ExitStranger, "another agent of guest does, at "+at)
	syscall.Kill(a.cmd.Process.Pid, syscall.SIGKILL)
	guest.joins("a")
	guest.works(1, "a", "b")
	guest.end("a", "b")
	owner.joins("b")
	owner.end("a", "b")
}

// An agent that has the port and stands still is named, with what helps. Who comes waits for it, and who is there says that nobody can come.
func TestNeighbourStandsStill(t *testing.T) {
	t.Parallel()
	owner, guest := neighbours(t, "")
	before := newCrowd(t, "--nnodes 2 --rdzv-id before")
	before.port = owner.port
	before.joins("a", "b")
	before.works(0, "a", "b")
	agent := agentsOf(owner.nodes["a"].cmd.Process.Pid)[0]
	halt.Stop(t, agent)
	stopped := fmt.Sprintf("agent (pid %d, muster.test run)", agent)
	cure := fmt.Sprintf("it was stopped: let it go on (kill -CONT %d), or end it", agent)
	guest.joins("a")
	hasty := muster(t, t.TempDir(), nil, "run", "--nnodes", "2", "--rdzv-id", "hasty", "--rdzv-endpoint", fmt.Sprint("127.0.0.1:", owner.port), "--serve", "yes",
		"--join-timeout", "1", "--", "true")
	guest.nodes["a"].says("another job's " + stopped + " has it and does not answer; " + cure)
	before.nodes["a"].says("whose " + stopped + " does not answer, and nobody new reaches this job; " + cure)
	hasty.ends(job.ExitStranger, "another job's "+stopped+" has port", cure)
	if err := syscall.Kill(agent, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	before.nodes["a"].says("the other job's agent answers again")
	guest.joins("b")
	guest.works(0, "a", "b")
	guest.end("a", "b")
	before.end("a", "b")
	owner.joins("b")
	owner.end("a", "b")
}

// An agent on the machine of its job's host waits for that one as it would for one elsewhere, and names it when it stands still.
func TestOwnHostStandsStill(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "--nnodes 2")
	c.joins("a")
	c.nodes["a"].says("missing node 1")
	agent := agentsOf(c.nodes["a"].cmd.Process.Pid)[0]
	halt.Stop(t, agent)
	silent := fmt.Sprintf("this job's agent (pid %d, muster.test run) hosts it and does not answer", agent)
	cure := fmt.Sprintf("it was stopped: let it go on (kill -CONT %d), or end it", agent)
	c.joinsWith("b", "--serve", "auto", "--join-timeout", "6")
	b := c.nodes["b"]
	b.says(silent + "; " + cure)
	b.ends(job.ExitStore, "no store at 127.0.0.1:", "within 6s: "+silent, cure)
	c.joinsWith("b", "--serve", "auto")
	c.nodes["b"].says(silent)
	if err := syscall.Kill(agent, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.works(0, "a", "b")
	c.end("a", "b")
}
