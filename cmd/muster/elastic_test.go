package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/ports"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/test/freeport"
)

// A crowd is the agents of one job on this machine, and what they are told alike.
type crowd struct {
	*testing.T
	port  int
	host  string // who serves the store,
	serve string // as its --serve has it
	open  string // as soon as this file is there, workers end well
	flags []string
	nodes map[string]*program
}

func newCrowd(t *testing.T, flags string) *crowd {
	return &crowd{t, freeport.Take(t), "a", "yes", filepath.Join(t.TempDir(), "open"), strings.Fields(flags), map[string]*program{}}
}

// joins starts an agent, which serves the store if it is the one to do so.
func (c *crowd) joins(names ...string) {
	c.Helper()
	for _, name := range names {
		c.nodes[name] = muster(c.T, c.TempDir(), []string{"NODE_NAME=machine-" + name}, append(c.agent(name, "2"), "--", "sh", "-c",
			fmt.Sprintf(`echo "rank $RANK of $WORLD_SIZE in round $TORCHELASTIC_RESTART_COUNT"; while [ ! -e %s ]; do sleep 0.02; done`, c.open))...)
	}
}

// hurries is joins for one that has less patience.
func (c *crowd) hurries(name, joinTimeout string) {
	c.Helper()
	c.joinsWith(name, "--join-timeout", joinTimeout)
}

// joinsWith is joins for one that is told something besides.
func (c *crowd) joinsWith(name string, flags ...string) {
	c.Helper()
	alike := c.flags
	c.flags = append(slices.Clone(alike), flags...)
	c.joins(name)
	c.flags = alike
}

// agent is the command line of an agent, up to its program.
func (c *crowd) agent(name, workers string) []string {
	at, serve := 1+int(name[0]-'a'), "no"
	if name == c.host {
		serve = c.serve
	}
	return append([]string{"run", "--nproc-per-node", workers, "--rdzv-id", "crowd", "--rdzv-endpoint", fmt.Sprint("127.0.0.1:", c.port),
		"--local-addr", fmt.Sprint("127.0.0.", at), "--node-rank", fmt.Sprint(at - 1), "--serve", serve}, c.flags...)
}

// works waits until these nodes make a world of their own, in this order, in a round.
func (c *crowd) works(round int, names ...string) {
	c.Helper()
	for group, name := range names {
		for local := range 2 {
			c.nodes[name].says(fmt.Sprintf("rank %d of %d in round %d", 2*group+local, 2*len(names), round))
		}
	}
}

// A node on which workers could not run offers no place, and a spare has it before the first round.
func TestOwnCheckFails(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "--nnodes 2 --spares 1")
	c.joins("a")
	c.broken("b").ends(67, "no GPU for the workers")
	c.nodes["a"].says("node 1) cannot run workers: no GPU for the workers")
	c.joins("c")
	c.works(0, "a", "c")
	c.end("a", "c")
}

// broken starts an agent on a node without GPUs.
func (c *crowd) broken(name string) *program {
	return muster(c.T, c.TempDir(), []string{"CUDA_VISIBLE_DEVICES="}, append(c.agent(name, "gpu"), "--", "true")...)
}

// A node that hosts the store stays for the others when its own check fails, over the loss of one of them, and ends with its own sentence.
func TestOwnCheckOfTheHostFails(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "--nnodes 2 --spares 2")
	host := c.broken("a")
	host.says("serves the meeting point to the others until the job is over")
	c.joins("b")
	c.nodes["b"].says("node 0) cannot run workers: no GPU for the workers")
	c.joins("c")
	c.works(0, "b", "c")
	c.joins("d")
	c.nodes["d"].says("generation 1 of this job has been running")
	syscall.Kill(agentsOf(host.cmd.Process.Pid)[0], syscall.SIGKILL)
	host.saysTimes("serves the meeting point to the others until the job is over", 2)
	c.dies("b")
	c.works(1, "d", "c")
	c.end("c", "d")
	host.ends(67, "no GPU for the workers", "the job went on without this node: all workers of all 2 nodes ended well")
}

// Without a spare all nodes end with what is wrong on the host, those that come later too.
func TestNoJobWithoutTheHost(t *testing.T) {
	t.Parallel()
	const why = "node 0) cannot run workers: no GPU for the workers"
	c := newCrowd(t, "--nnodes 3")
	host := c.broken("a")
	c.joins("b")
	c.nodes["b"].ends(67, why, "the job needs 3 nodes")
	c.joins("c")
	c.nodes["c"].ends(67, why)
	host.ends(67, why)
}

// Whatever else keeps workers from running on the host of the store is as bad as no GPU: the others go on where they can do without it, and else end
// with what is wrong there, at once. Where it is wrong on all nodes, none waits for another.
func TestHostCannotStartWorkers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name, program, why string
		code               int
		vars               []string
	}{
		{"no script", "train.py", "no script train.py", 127, nil},
		{"no program", "./train", "no such file", 127, nil},
		{"not executable", write("plain", "exit 0\n", 0o644), "permission denied; is it executable", 126, nil},
		// Without a spare, all start their workers, and end with that.
		{"no interpreter", write("script", "#!/no/such -u\n", 0o755), "its interpreter /no/such is not there", 127, nil},
		{"no directory", "true", "make a directory for this run", 71, []string{"TMPDIR=/no/such", "XDG_RUNTIME_DIR="}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bad := func(crowd *crowd, name string) *program {
				return muster(t, crowd.TempDir(), c.vars, append(crowd.agent(name, "2"), "--", c.program)...)
			}
			crowd := newCrowd(t, "--nnodes 2 --spares 1")
			host := bad(crowd, "a")
			host.says("serves the meeting point to the others until the job is over")
			crowd.joins("b", "c")
			crowd.works(0, "b", "c")
			crowd.end("b", "c")
			host.ends(c.code, c.why, "the job went on without this node")

			crowd = newCrowd(t, "--nnodes 2")
			host = bad(crowd, "a")
			crowd.joins("b")
			if c.name == "no interpreter" {
				crowd.nodes["b"].ends(127, "could not be started: ", c.why)
				host.ends(127, "could not be started: ", c.why)
				return
			}
			crowd.nodes["b"].ends(67, "node 0) cannot run workers: ", c.why)
			host.ends(c.code, c.why, "the job needs 2 nodes")

			crowd = newCrowd(t, "--nnodes 2")
			host = bad(crowd, "a")
			host.says("serves the meeting point to the others")
			bad(crowd, "b").ends(c.code, c.why)
			host.ends(c.code, c.why)
		})
	}
}

// So is a core on which workers are to run, and which this node has not.
func TestHostHasNotTheCore(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), strconv.Itoa(freeport.Take(t))
	if err := os.WriteFile(filepath.Join(dir, "train.py"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	node := func(rank, core string) *program {
		return muster(t, dir, []string{"MUSTER_JOIN_TIMEOUT=2m"}, "deepspeed", "--no_ssh", "--num_nodes", "2", "--num_gpus", "1", "--node_rank", rank,
			"--master_addr", "127.0.0.1", "--master_port", port, "--bind_cores_to_rank", "--bind_core_list", core, "train.py")
	}
	const why = "core 1000 is not one on which this node's workers may run"
	host, other := node("0", "1000"), node("1", "0")
	other.ends(67, "node 0) cannot run workers: ", why)
	host.ends(67, why)
}

// Where no node has GPUs, none waits for another.
func TestAllChecksFail(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "--nnodes 2")
	host := c.broken("a")
	host.says("serves the meeting point to the others")
	c.broken("b").ends(67, "no GPU for the workers")
	host.ends(67, "node 1) cannot run workers: no GPU", "node 0) cannot run workers: no GPU")
}

// dies kills all of a node.
func (c *crowd) dies(name string) {
	c.Helper()
	c.nodes[name].dies()
}

// dies kills a node's agent and first process, which starts no other agent before that.
func (p *program) dies() {
	p.t.Helper()
	first := p.cmd.Process.Pid
	syscall.Kill(first, syscall.SIGSTOP)
	p.until(func() bool { return stopped(first) })
	for _, agent := range agentsOf(first) {
		syscall.Kill(agent, syscall.SIGKILL)
	}
	syscall.Kill(first, syscall.SIGKILL)
	<-p.done
}

// A node is given up after the time-out that the first leader was given, by all, and its own first process ends its workers then.
func TestNodeTimeout(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "--nnodes 1:2 --max-restarts 3 --node-timeout 6s")
	c.joins("a")
	c.joinsWith("b", "--node-timeout", "60")
	c.works(0, "a", "b")
	c.nodes["b"].says("the flags of the job's first leader count: --node-timeout 6s, not 1m0s")
	agent := agentOf(t, c.nodes["b"].cmd.Process.Pid)
	syscall.Kill(agent, syscall.SIGSTOP)
	c.nodes["a"].says("was lost: silent for 6")
	c.nodes["b"].says("muster: the agent did not answer for 6")
	c.works(1, "a")
	syscall.Kill(agent, syscall.SIGCONT)
	c.works(2, "a", "b")
	c.end("a", "b")
}

// Where the first process of the host was killed, its agent stays for the others for a while, and holds the port. The one that comes in its place knows
// it for what it is, and waits.
func TestFirstProcessOfTheHostIsKilled(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "--nnodes 2 --max-restarts 3")
	c.joins("a", "b")
	c.works(0, "a", "b")
	syscall.Kill(c.nodes["a"].cmd.Process.Pid, syscall.SIGKILL)
	c.joins("a")
	c.works(1, "a", "b")
	c.end("a", "b")
}

// Where only the endpoint's address shows who is to host, the one that comes in its place meets in the store of that agent, and hosts it once it is
// gone. So whoever comes later finds a store, also when the agent that hosts it now has died and another one has taken over.
func TestFirstProcessOfWhoMayHostIsKilled(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "--nnodes 2:3 --last-call 1s --max-restarts 3")
	c.serve = "auto"
	c.joins("a")
	c.nodes["a"].says("1 of 2:3 nodes here")
	c.joins("b")
	c.works(0, "a", "b")
	syscall.Kill(c.nodes["a"].cmd.Process.Pid, syscall.SIGKILL)
	c.joins("a")
	c.works(1, "a", "b")
	a := c.nodes["a"]
	a.until(func() bool { return slices.Contains(ports.Holders(c.port), a.cmd.Process.Pid) })
	a.killAgent()
	c.joins("c")
	c.works(2, "a", "b", "c")
	c.end("a", "b", "c")
}

// While it was gone, another agent of its machine may have taken its stead: it meets the others there.
func TestHostIsBackBesideItsSuccessor(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "--nnodes 1:2 --max-restarts 3")
	c.joins("a")
	c.joinsWith("b", "--serve", "auto")
	c.works(0, "a", "b")
	first := c.nodes["a"].cmd.Process.Pid
	agents := agentsOf(first)
	for _, pid := range append([]int{first}, agents...) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	b := c.nodes["b"]
	c.works(1, "b")
	b.until(func() bool { return slices.Contains(ports.Holders(c.port), b.cmd.Process.Pid) })
	c.joins("a")
	c.works(2, "b", "a")
	c.end("a", "b")
}

// One that lives, as when a command is given twice by mistake, is another thing.
func TestHostIsThere(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "--nnodes 2")
	c.joins("a")
	a := c.nodes["a"]
	a.says("missing node 1")
	agent := c.agent("a", "2")
	twice := muster(t, t.TempDir(), nil, append(agent, "--", "true")...)
	at := fmt.Sprintf("port %d (pid %d, muster.test run)", c.port, a.cmd.Process.Pid)
	twice.ends(job.ExitStranger, "another agent of crowd does, at "+at)
	c.joins("b")
	c.end("a", "b")
}

// kill kills a worker of a node.
func (c *crowd) kill(name string) {
	c.Helper()
	first := c.nodes[name].cmd.Process.Pid
	children, err := proc.Root("/proc").Children(first)
	agents := agentsOf(first)
	for _, child := range children {
		if !slices.Contains(agents, child) {
			syscall.Kill(child, syscall.SIGKILL)
			return
		}
	}
	c.Fatalf("node %s has no worker: %v", name, err)
}

// end lets all workers end well, and the job with them.
func (c *crowd) end(names ...string) {
	c.Helper()
	signalFile(c.T, c.open)
	for _, name := range names {
		c.nodes[name].ends(0)
	}
}

// A world begins with the fewest nodes, grows as others come, shrinks when some are lost, and whoever is left keeps its rank. None
// of that counts as a failure.
func TestElastic(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "--nnodes 2:4 --last-call 1")
	c.joins("a", "b")
	c.works(0, "a", "b")
	c.joins("c", "d")
	c.nodes["d"].says("of 8 in round ")
	_, after, _ := strings.Cut(c.nodes["d"].out.String(), "of 8 in round ")
	round := atoi(t, after[:1]) // 2, if they came a second apart
	c.works(round, "a", "b", "c", "d")
	c.dies("c")
	c.works(round+1, "a", "b", "d")
	c.dies("b")
	c.works(round+2, "a", "d")
	c.end("a", "d")
}

// A spare stands by, takes the place of a lost node, and ends with the job if it is not needed.
func TestSpares(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "--nnodes 2 --spares 2")
	c.joins("a", "b")
	c.works(0, "a", "b")
	c.joins("c")
	c.nodes["c"].says("generation 1 of this job has been running")
	c.dies("b")
	c.works(1, "a", "c")
	c.joins("d")
	c.nodes["d"].says("generation 2 of this job has been running")
	c.end("a", "c", "d")
}

// A late comer that was given other flags leads the next meeting. It goes by those of the nodes that were there, and says so.
func TestFlagsOfALateComer(t *testing.T) {
	t.Parallel()
	t.Run("join-policy", func(t *testing.T) {
		t.Parallel()
		c := newCrowd(t, "--nnodes 2:3 --last-call 5")
		c.joins("a", "b")
		c.works(0, "a", "b")
		c.joinsWith("c", "--join-policy", "never")
		c.works(1, "a", "b", "c")
		c.nodes["c"].says("the flags of the job's first leader count: --join-policy now, not never")
		c.end("a", "b", "c")
	})
	t.Run("max-restarts", func(t *testing.T) {
		t.Parallel()
		c := newCrowd(t, "--nnodes 2 --spares 1")
		c.host = "b"
		c.joinsWith("a", "--max-restarts", "3")
		c.joinsWith("b", "--max-restarts", "3")
		c.works(0, "a", "b")
		c.joinsWith("c", "--max-restarts", "1")
		c.nodes["c"].says("generation 1 of this job has been running")
		c.dies("a")
		c.works(1, "c", "b")
		c.nodes["c"].says("the flags of the job's first leader count: --max-restarts 3, not 1")
		c.end("b", "c")
	})
}

// The leader is lost, with the store: the others wait for another one in its place, and go on with it.
func TestTheLeaderIsLost(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "--nnodes 3 --max-restarts 1")
	c.joins("a", "b", "c")
	c.works(0, "a", "b", "c")
	c.dies("a")
	c.nodes["b"].says("was lost")
	c.nodes["b"].says("the store at 127.0.0.1:")
	c.joins("a")
	c.works(1, "a", "b", "c")
	c.end("a", "b", "c")
}

// Nobody takes the place of a lost node: the job ends, and says of what.
func TestNobodyTakesThePlace(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"a", "b"} { // with the store, or without it
		c := newCrowd(t, "--nnodes 2 --max-restarts 3 --rdzv-timeout 2")
		c.joins("a", "b")
		c.works(0, "a", "b")
		c.dies(lost)
		left := map[string]string{"a": "b", "b": "a"}[lost]
		c.nodes[left].ends(job.ExitRetry, "was lost", "gave up after 2")
	}
}

// The store is lost, and nobody hosts it again: members and spares end as one, and say what they were waiting for.
func TestNobodyHostsTheStore(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "--nnodes 2 --spares 1 --rdzv-timeout 4")
	c.joins("a", "b")
	c.works(0, "a", "b")
	c.hurries("c", "6")
	c.nodes["c"].says("generation 1 of this job has been running")
	c.dies("a")
	c.nodes["b"].ends(job.ExitRetry, "was lost", "gave up after 4", "the store at 127.0.0.1:", "was away for", "--rdzv-timeout says how long")
	c.nodes["c"].ends(job.ExitRetry, "the store at 127.0.0.1:", "was away for", "generation 1 of this job was running on", "--join-timeout says how long")
}

// A node of an elastic job that is told to stop leaves it, when all have stopped for a checkpoint, and the others go on. Who leads makes
// no difference. Somebody's Ctrl-C ends the job.
func TestANodeLeaves(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "--nnodes 1:3")
	c.joins("a", "b", "c")
	c.works(0, "a", "b", "c")
	for round, name := range []string{"b", "a"} { // the second one leads, and hosts the store
		p := c.nodes[name]
		p.cmd.Process.Signal(syscall.SIGTERM)
		p.ends(job.ExitTERM, "told to stop by SIGTERM")
		c.nodes["c"].says(fmt.Sprintf("in round %d", round+1))
	}
	c.works(2, "c")
	c.nodes["c"].cmd.Process.Signal(syscall.SIGINT)
	c.nodes["c"].ends(job.ExitINT)
}

// Failures of workers are counted over all worlds, and the loss of a node is none.
func TestRestartsAcrossWorlds(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "--nnodes 2:3 --max-restarts 1")
	c.joins("a", "b", "c")
	c.works(0, "a", "b", "c")
	c.dies("b")
	for round := range 2 {
		c.works(round+1, "a", "c")
		c.kill("c")
	}
	for _, name := range []string{"a", "c"} {
		c.nodes[name].ends(128+9, "killed by SIGKILL", "after ")
	}
}

// An agent that dies while its node meets the others again is replaced as at any other time.
func TestTakeOverBetweenWorlds(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "--nnodes 2 --max-restarts 1")
	c.joins("a", "b")
	c.works(0, "a", "b")
	c.dies("b")
	c.nodes["a"].says("1 of 2 nodes here")
	c.nodes["a"].killAgent()
	c.joins("b")
	c.works(1, "a", "b")
	c.end("a", "b")
}

// A spare whose agent stands still as the job ends, and dies, has another one, which ends with the job and does not begin it anew.
func TestTakeOverAfterTheEnd(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "--nnodes 2 --spares 1")
	c.host = "nobody"
	muster(t, t.TempDir(), nil, "store", "serve", "--host", "127.0.0.1", "--port", strconv.Itoa(c.port)).says("store at 127.0.0.1")
	c.joins("a", "b")
	c.works(0, "a", "b")
	c.joins("c")
	c.nodes["c"].says("generation 1 of this job has been running")
	agent := agentOf(t, c.nodes["c"].cmd.Process.Pid)
	syscall.Kill(agent, syscall.SIGSTOP)
	c.end("a", "b")
	syscall.Kill(agent, syscall.SIGKILL)
	c.nodes["c"].ends(0, "another one takes over", "the job ended while this node stood by: all workers of all 2 nodes ended well")
}

// A node on which rounds fail again and again is left out for a while, and comes back.
func TestANodeIsLeftOut(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "--nnodes 2:3 --max-restarts 5 --restart-backoff 0 --exclude-after 2 --exclude-for 20")
	c.joins("a", "b", "c")
	for round := range 2 {
		c.works(round, "a", "b", "c")
		c.kill("c")
	}
	c.works(2, "a", "b")
	c.nodes["c"].says("left out until ")
	c.nodes["b"].says("2 rounds failed on node 2 (")
	c.works(3, "a", "b", "c")
	c.end("a", "b", "c")
}

// An agent that comes under the index of another one that lives waits for the end of the job, and ends like it, whoever leads and whoever serves
// the store. It waits longer than for nodes that are missing.
func TestSecondOfAnIndex(t *testing.T) {
	t.Parallel()
	const place = "as another one had the place of "
	for host, index := range map[string]string{"a": "b", "b": "a"} {
		c := newCrowd(t, "--nnodes 2 --stop-timeout 1")
		c.host = host
		for _, failed := range []bool{false, true} {
			c.joins(host, index)
			c.works(0, "a", "b")
			first := c.nodes[index]
			c.hurries(index, "6")
			c.nodes[index].saysTimes("waiting for its end, for another agent has the place of ", 3) // after 7 s
			if failed {
				c.kill(host)
				for _, p := range []*program{c.nodes[host], first, c.nodes[index]} {
					p.ends(128+9, "killed by SIGKILL")
				}
				c.nodes[index].ends(128+9, place)
			} else {
				c.end(host)
				first.ends(0)
				c.nodes[index].ends(0, place, ": all workers of all 2 nodes ended well")
				os.Remove(c.open)
			}
			if out := c.nodes[index].out.String(); strings.Contains(out, "missing node") {
				t.Errorf("it said of a job that ran that a node was missing: %s", out)
			}
		}
	}
}

// Of a job that can grow or has spares it costs no round: the second waits beside the world, also when that meets again, and has the place as soon as the
// first one is lost.
func TestSecondOfAnIndexBesideTheWorld(t *testing.T) {
	t.Parallel()
	for flags, others := range map[string]string{"--nnodes 2:3 --last-call 1": "c", "--nnodes 1:2": "", "--nnodes 2 --spares 1": ""} {
		t.Run(flags, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t, flags)
			c.joins("a", "b")
			c.works(0, "a", "b")
			first := c.nodes["b"]
			c.joins("b")
			second, world, round := c.nodes["b"], []string{"a", "b"}, 0
			second.saysTimes("waiting for its end, for another agent has the place of ", 2)
			if others != "" {
				c.joins(others)
				c.nodes["b"], world, round = first, append(world, others), round+1
				c.works(round, world...)
				second.saysTimes("waiting for its end, for another agent has the place of ", 3)
			}
			first.dies()
			c.nodes["b"] = second
			c.works(round+1, world...)
			c.end(world...)
		})
	}
}

// An agent that comes in the place of one that died takes part in the job's next life.
func TestInThePlaceOfTheDead(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "--nnodes 2 --stop-timeout 1")
	c.joins("a", "b")
	c.works(0, "a", "b")
	c.dies("b")
	c.joins("b")
	c.nodes["a"].ends(job.ExitRetry, "was lost")
	c.joins("a")
	c.works(0, "a", "b")
	c.end("a", "b")
}

// Late comers of a job that does not call rounds off for them: with at-restart they are let in when one ends for another reason; with never they
// only take the places of nodes that were lost, so the world does not grow.
func TestJoinPolicy(t *testing.T) {
	t.Parallel()
	for policy, play := range map[string]func(c *crowd){
		"at-restart": func(c *crowd) {
			c.kill("a")
			c.works(1, "a", "b", "c", "d")
			c.end("a", "b", "c", "d")
		},
		"never": func(c *crowd) {
			c.kill("a")
			c.works(1, "a", "b")
			c.dies("b")
			c.nodes["a"].says("of 4 in round 2")
			c.end("a", "c", "d")
		},
	} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t, "--nnodes 2:4 --last-call 10 --max-restarts 3 --join-policy "+policy)
			c.joins("a", "b")
			c.works(0, "a", "b")
			c.joins("c", "d")
			for _, name := range []string{"c", "d"} {
				c.nodes[name].saysTimes("waiting for its end", 4) // longer than --last-call
			}
			play(c)
			for name, p := range c.nodes {
				if out := p.out.String(); policy == "never" && strings.Contains(out, "of 6") || strings.Contains(out, "of 8 in round 0") {
					t.Errorf("%s was in a world that grew: %s", name, out)
				}
			}
		})
	}
}
