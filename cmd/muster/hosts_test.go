package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/muster-run/muster/job"
)

// networks counts the pairs of hosts, for their names.
var networks atomic.Int32

// hosts makes two network namespaces with a cable between them, 10.77.0.1 and .2, fd77::1 and ::2, and returns a
// function that starts a program on one of them. It needs root, as the kernel asks.
func hosts(t *testing.T) (names []string, on func(host int, args ...string) *program) {
	t.Helper()
	tag := fmt.Sprintf("m%dn%d", os.Getpid()%100000, networks.Add(1))
	names = []string{tag + "a", tag + "b"}
	for _, n := range names {
		ip(t, "netns add "+n)
		t.Cleanup(func() { ip(t, "netns del "+n) })
	}
	ip(t, fmt.Sprintf("link add %[1]s netns %[1]s type veth peer name %[2]s netns %[2]s", names[0], names[1]))
	for i, n := range names {
		ip(t, fmt.Sprintf("-n %s link set lo up", n))
		ip(t, fmt.Sprintf("-n %[1]s link set %[1]s up", n))
		ip(t, fmt.Sprintf("-n %[1]s addr add 10.77.0.%[2]d/24 dev %[1]s", n, i+1))
		ip(t, fmt.Sprintf("-n %[1]s addr add fd77::%[2]d/64 dev %[1]s nodad", n, i+1))
	}
	return names, func(host int, args ...string) *program {
		t.Helper()
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		return startProgram(t, t.TempDir(), nil, append([]string{"ip", "netns", "exec", names[host], self}, args...)...)
	}
}

func ip(t *testing.T, args string) {
	t.Helper()
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", args, err, out)
	}
}

// Two hosts that have nothing but a network: the same line on both, by IPv4 and by IPv6. The host that the endpoint
// names serves, and the workers get an address that the other host can reach.
func TestTwoHosts(t *testing.T) {
	t.Parallel()
	_, on := hosts(t)
	for _, endpoint := range []string{"10.77.0.1:29400", "10.77.0.2:29400", "[fd77::2]:29400"} {
		var all []*program
		for host := range 2 {
			all = append(all, on(host, "run", "--nnodes", "2", "--rdzv-endpoint", endpoint, "--join-timeout", "1m", "--",
				"sh", "-c", `echo "$RANK of $WORLD_SIZE at $MASTER_ADDR"`))
		}
		for _, p := range all {
			p.ends(0)
		}
		worldOfHosts(t, all)
	}
}

// worldOfHosts holds that workers on two hosts that have said "RANK of 2 at ADDRESS" make a world, and that each reaches the leader there: by
// the address that answered first, which on a slow machine may be any of the leader's.
func worldOfHosts(t *testing.T, all []*program) {
	t.Helper()
	for _, p := range all {
		if said := p.out.String(); !strings.Contains(said, " of 2 at 10.77.0.") && !strings.Contains(said, " of 2 at fd77::") {
			t.Errorf("the other host cannot reach the workers' store: %s", said)
		}
	}
	if a, b := all[0].out.String(), all[1].out.String(); strings.Contains(a, "] 0 of") == strings.Contains(b, "] 0 of") {
		t.Errorf("both hosts have the same ranks:\n%s%s", a, b)
	}
}

// Another machine's agent has the place of the one that hosts the store, and nobody else can: it goes on to do so, also when its agent dies, and those who
// have places meet without it, for the next world too.
func TestHostIsReplacedByAnotherMachine(t *testing.T) {
	t.Parallel()
	_, on := hosts(t)
	for _, flags := range []string{"--nnodes 2", "--nnodes 2 --spares 1"} {
		open := filepath.Join(t.TempDir(), "open")
		joins := func(host, index int) *program {
			args := append([]string{"run", "--rdzv-id", "twice", "--rdzv-endpoint", "10.77.0.1:29400", "--nproc-per-node", "1", "--node-rank", fmt.Sprint(index)}, strings.Fields(flags)...)
			return on(host, append(args, "--", "sh", "-c", fmt.Sprintf(`echo "rank $RANK of $WORLD_SIZE in round $TORCHELASTIC_RESTART_COUNT"; while [ ! -e %s ]; do sleep 0.02; done`, open))...)
		}
		const serves = "; this node takes no place, and serves the meeting point to the others until they do not need it any more"
		old := joins(0, 0)
		old.says("1 of 2 nodes here")
		fresh := joins(1, 0)
		old.says(serves)
		syscall.Kill(agentsOf(old.cmd.Process.Pid)[0], syscall.SIGKILL)
		old.saysTimes(serves, 2)
		second := joins(1, 1)
		fresh.says("rank 0 of 2 in round 0")
		all := []*program{fresh, second}
		if strings.Contains(flags, "spares") {
			spare := joins(1, 2)
			spare.says("generation 1 of this job has been running")
			second.dies()
			fresh.says("rank 0 of 2 in round 1")
			all = []*program{fresh, spare}
		}
		if err := os.WriteFile(open, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			p.ends(0)
		}
		old.ends(job.ExitRefused, "another process took my place as ", "(node 0) at ")
	}
}

// An agent that only serves the store can be told to stop.
func TestServingOnIsStopped(t *testing.T) {
	t.Parallel()
	_, on := hosts(t)
	joins := func(host int) *program {
		return on(host, "run", "--nnodes", "2", "--rdzv-endpoint", "10.77.0.1:29400", "--node-rank", "0", "--", "true")
	}
	old := joins(0)
	old.says("1 of 2 nodes here")
	fresh := joins(1)
	old.says("serves the meeting point to the others")
	for _, p := range []*program{old, fresh} {
		p.cmd.Process.Signal(syscall.SIGTERM)
	}
	old.ends(job.ExitRefused, "another process took my place as ", "told to stop by SIGTERM")
	fresh.ends(job.ExitTERM)
}

// The cable is cut. Each side finds out by itself, stops its workers and asks to be tried again.
func TestCutCable(t *testing.T) {
	t.Parallel()
	names, on := hosts(t)
	var all []*program
	for host := range 2 {
		all = append(all, on(host, "run", "--nnodes", "2", "--node-rank", fmt.Sprint(host), "--rdzv-endpoint", "10.77.0.1:29400", "--",
			"sh", "-c", `echo "started $RANK"; exec sleep 1000`))
	}
	for host, p := range all {
		p.says(fmt.Sprintf("started %d", host))
	}
	ip(t, fmt.Sprintf("-n %[1]s link set %[1]s down", names[0]))
	for host, p := range all {
		p.ends(job.ExitRetry, fmt.Sprintf("node %d (", 1-host), "was lost", "exit 138")
	}
}
