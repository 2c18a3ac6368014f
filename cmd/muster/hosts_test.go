package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/muster-run/muster/job"
)

// hosts makes two network namespaces with a cable between them, 10.77.0.1 and .2, fd77::1 and ::2, and returns a
// function that starts a program on one of them. It needs root, as the kernel asks.
func hosts(t *testing.T) (names []string, on func(host int, args ...string) *program) {
	t.Helper()
	tag := fmt.Sprintf("m%d", os.Getpid()%100000)
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

// The cable is cut. Each side finds out by itself, stops its workers and asks to be tried again.
func TestCutCable(t *testing.T) {
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
