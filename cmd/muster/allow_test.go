package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-run/muster/job"
)

// withStranger are hosts, and a third one that only the first is wired to: it is 10.77.1.3, and reaches 10.77.0.1.
func withStranger(t *testing.T) (names []string, on func(host int, args ...string) *program) {
	t.Helper()
	names, _ = hosts(t)
	names = append(names, strings.TrimSuffix(names[0], "a")+"c")
	ip(t, "netns add "+names[2])
	t.Cleanup(func() { ip(t, "netns del "+names[2]) })
	ip(t, fmt.Sprintf("link add s netns %s type veth peer name s netns %s", names[0], names[2]))
	for host, addr := range map[int]string{0: "10.77.1.1", 2: "10.77.1.3"} {
		ip(t, fmt.Sprintf("-n %s link set lo up", names[host]))
		ip(t, fmt.Sprintf("-n %s link set s up", names[host]))
		ip(t, fmt.Sprintf("-n %s addr add %s/24 dev s", names[host], addr))
	}
	ip(t, fmt.Sprintf("-n %s route add 10.77.0.0/24 via 10.77.1.1", names[2]))
	return names, func(host int, args ...string) *program {
		t.Helper()
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		return startProgram(t, t.TempDir(), nil, append([]string{"ip", "netns", "exec", names[host], self}, args...)...)
	}
}

// An allowing job's workers reach their store, and stay until it is open.
type allowing struct {
	t    *testing.T
	open string // a file
	on   func(host int, args ...string) *program
}

func allows(t *testing.T) *allowing {
	_, on := withStranger(t)
	return &allowing{t, filepath.Join(t.TempDir(), "open"), on}
}

// joins starts the job's node of a host.
func (a *allowing) joins(host int, flags string) *program {
	self, err := os.Executable()
	if err != nil {
		a.t.Fatal(err)
	}
	args := []string{"run", "--rdzv-endpoint", "10.77.0.1:29400", "--node-rank", fmt.Sprint(min(host, 1)), "--nproc-per-node", "1", "--worker-store", "agent", "--worker-port", "29555"}
	return a.on(host, append(append(args, strings.Fields(flags)...), "--", "sh", "-c", fmt.Sprintf(
		`%s store set --endpoint $MASTER_ADDR:$MASTER_PORT k v && echo "rank $RANK of $WORLD_SIZE is let in"; while [ ! -e %s ]; do sleep 0.02; done`, self, a.open))...)
}

// end lets all workers end well.
func (a *allowing) end(all ...*program) {
	a.t.Helper()
	if err := os.WriteFile(a.open, nil, 0o644); err != nil {
		a.t.Fatal(err)
	}
	for _, p := range all {
		p.ends(0)
	}
}

// barred holds that the third host reaches neither store.
func (a *allowing) barred() {
	a.t.Helper()
	stranger := func(port int) *program {
		return a.on(2, "store", "set", "--endpoint", fmt.Sprint("10.77.0.1:", port), "--timeout", "2s", "k", "stranger")
	}
	meeting, workers := stranger(29400), stranger(29555)
	meeting.ends(job.ExitStore, "this node's address is not among those that are let in there")
	workers.ends(job.ExitStore, "not a c10d store")
}

const barredLine = "err=its address is not among those that are let in"

// The workers' store of muster's lets in the nodes of its world, as it is in each round, and nobody else. Where they meet anybody may come.
func TestStoreAllowsTheWorld(t *testing.T) {
	t.Parallel()
	a := allows(t)
	const flags = "--nnodes 2 --max-restarts 1 --store-allow world"
	all := []*program{a.joins(0, flags), a.joins(1, flags)}
	for rank, p := range all {
		p.says(fmt.Sprintf("rank %d of 2 is let in", rank))
	}
	a.on(2, "store", "num-keys", "--endpoint", "10.77.0.1:29400").ends(0)
	stranger := func(host int) {
		a.on(host, "store", "get", "--endpoint", "10.77.0.1:29555", "--timeout", "2s", "k").ends(job.ExitStore, "not a c10d store")
	}
	stranger(2)
	all[0].says("peer=10.77.1.3:")
	all[0].says(barredLine)
	all[1].dies()
	next := a.joins(2, flags)
	next.says("rank 1 of 2 is let in")
	stranger(1)
	a.end(all[0], next)
}

// A network holds for both stores, also when another agent has taken over. A node from elsewhere cannot join, and says why.
func TestStoreAllowsNetworks(t *testing.T) {
	t.Parallel()
	a := allows(t)
	const flags = "--nnodes 2 --store-allow 10.77.0.0/24"
	all := []*program{a.joins(0, flags), a.joins(1, flags)}
	for rank, p := range all {
		p.says(fmt.Sprintf("rank %d of 2 is let in", rank))
	}
	a.barred()
	all[0].says(barredLine)
	late := a.on(2, "run", "--nnodes", "2", "--node-rank", "1", "--rdzv-endpoint", "10.77.0.1:29400", "--join-timeout", "4", "--", "true")
	late.says("waiting for the store at 10.77.0.1:29400, ")
	late.says(" s: this node's address is not among those that are let in there (--store-allow)\n")
	late.ends(job.ExitStore, "its --store-allow has to name that")
	syscall.Kill(agentsOf(all[0].cmd.Process.Pid)[0], syscall.SIGKILL)
	all[0].says("took over from an agent that died")
	a.barred()
	a.end(all...)
}

// Jobs that share a port have each its own rule, whoever listens there.
func TestStoreAllowsWhereShared(t *testing.T) {
	t.Parallel()
	_, on := withStranger(t)
	joins := func(host int, id string, flags ...string) *program {
		args := append([]string{"run", "--nnodes", "2", "--node-rank", fmt.Sprint(min(host, 1)), "--rdzv-endpoint", "10.77.0.1:29400", "--rdzv-id", id, "--join-timeout", "1m"}, flags...)
		return on(host, append(args, "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE")...)
	}
	const near = "10.77.0.0/24"
	owner := joins(0, "owner", "--store-allow", near)
	owner.says("missing node 1")
	free, strict := joins(0, "free"), joins(0, "strict", "--store-allow", near)
	for _, guest := range []*program{free, strict} {
		guest.says("which hands over what calls for this one")
	}
	joins(2, "free").ends(0, "rank 1 of 2")
	free.ends(0)
	for _, id := range []string{"owner", "strict"} {
		joins(2, id, "--join-timeout", "3").ends(job.ExitStore, "this node's address is not among those that are let in there (--store-allow)")
	}
	strict.says("peer=10.77.1.3:")
	for id, first := range map[string]*program{"owner": owner, "strict": strict} {
		joins(1, id).ends(0, "rank 1 of 2")
		first.ends(0)
	}
}

// What the agent adds to the list is read when somebody comes who was not on it.
func TestGuestsMayBeMore(t *testing.T) {
	path, a, b := filepath.Join(t.TempDir(), "list"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("10.0.0.1")
	g := &guests{path: path}
	if err := g.read(); err != nil || !g.has(a) || g.has(b) {
		t.Fatal(err, g.list)
	}
	write("10.0.0.1,10.")
	if g.has(b) || !g.has(a) {
		t.Error("half of a word counts")
	}
	write("10.0.0.1,10.0.0.2")
	if !g.has(b) || !g.has(a) {
		t.Error("what was added does not count")
	}
}

// Where rank 0 hosts the workers' store itself, that it is not restricted is said.
func TestStoreAllowOfRank0(t *testing.T) {
	t.Parallel()
	muster(t, t.TempDir(), nil, "run", "--nnodes", "1", "--store-allow", "world", "--", "true").ends(0, "--store-allow: the workers' store is rank 0's own in this job")
	muster(t, t.TempDir(), []string{"MUSTER_STORE_ALLOW=world,10.0.0.0/33"}, "run", "--nnodes", "1", "--", "true").ends(job.ExitUsage,
		`MUSTER_STORE_ALLOW: "10.0.0.0/33" is neither world nor an address, nor a network such as 10.0.0.0/16 or fd00::/48`)
}
