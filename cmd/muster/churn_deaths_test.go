package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-run/muster/control"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/test/freeport"
)

// A fate is what happens to a job while its agents are killed, and how it ends all the same.
type fate struct {
	name   string
	flags  []string
	script string
	counts bool // all ranks end well at last, and say how many lines they said
	code   int
	says   string        // in the verdict; %d: the rank that fails
	meant  func(*deadly) // what people do meanwhile; nil: nothing
}

// counting is what a worker can do: say numbered lines, one each few milliseconds. A shell's trap comes between two commands: so a line is counted by
// the one that says it.
const counting = `lines() { while [ $i -lt $1 ]; do echo "line $((i=i+1))"; sleep 0.01; done; }
i=0; echo "up in $TORCHELASTIC_RESTART_COUNT"
`

var fates = []fate{
	{name: "ends well", script: counting + `lines 30; echo "last $i"`, counts: true, says: "ended well"},
	{name: "fails", script: counting + `[ $RANK = $VICTIM ] || exec sleep 1000; lines 20; exit 7`, code: 7, says: "rank %d on"},
	{name: "restarts", flags: []string{"--max-restarts", "1"}, counts: true, says: "ended well",
		script: counting + `[ $TORCHELASTIC_RESTART_COUNT = 1 ] && lines 30 && echo "last $i" && exit 0
			[ $RANK = $VICTIM ] || exec sleep 1000; sleep 0.2; exit 7`},
	{name: "is told to stop", counts: true, code: 143, says: "was told to stop by SIGTERM", meant: (*deadly).terminate,
		script: counting + `trap 'echo "last $i"; exit 0' TERM; echo "ready"; lines 10000`},
	{name: "pauses", counts: true, says: "ended well", meant: (*deadly).pause,
		script: counting + `[ $TORCHELASTIC_RESTART_COUNT = 1 ] && lines 30 && echo "last $i" && exit 0; echo "ready"; lines 10000`},
}

// A deadly is a job whose agents die.
type deadly struct {
	t      *testing.T
	r      *rand.Rand
	fate   fate
	inside bool // each first process is process 1 of a namespace
	nodes  []*program
	victim int // the rank that fails
	mark   string

	killers sync.WaitGroup
	mu      sync.Mutex
	began   time.Time
	deaths  []string
}

// Agents are killed at any moment: before the world is agreed, as workers begin, while they stop, between rounds. The job ends
// as it would have, on all nodes alike, and leaves nothing behind. That takes a few seconds, unless `make churn` says otherwise.
func TestChurnDeaths(t *testing.T) {
	length := 4 * time.Second
	if minutes := os.Getenv("CHURN_MINUTES"); minutes == "" {
		t.Parallel()
	} else {
		length = time.Duration(atoi(t, minutes)) * time.Minute / 3
	}
	seed := uint64(atoi(t, cmp.Or(os.Getenv("CHURN_SEED"), strconv.FormatInt(time.Now().UnixNano()%1e9, 10))))
	var jobs, deaths int
	for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); seed++ {
		d := &deadly{r: rand.New(rand.NewPCG(seed, 0))}
		d.fate = fates[d.r.IntN(len(fates))]
		t.Run(fmt.Sprintf("seed %d, a job that %s", seed, d.fate.name), func(t *testing.T) {
			d.t = t
			d.run()
		})
		jobs, deaths = jobs+1, deaths+len(d.deaths)
	}
	t.Logf("%d agents of %d jobs died", deaths, jobs)
}

func (d *deadly) run() {
	d.start()
	d.t.Cleanup(d.tell)
	defer d.killers.Wait()
	for n := range d.nodes {
		r := rand.New(rand.NewPCG(d.r.Uint64(), 1))
		d.killers.Go(func() { d.kill(n, r) })
	}
	if d.fate.meant != nil {
		d.fate.meant(d)
	}
	for n, p := range d.nodes {
		p.ends(d.fate.code)
		d.whole(n)
	}
	d.alike()
	if left := alive(d.t, d.mark); len(left) > 0 {
		d.t.Errorf("left behind: %q", left)
	}
}

// start starts the job on one node or two, with or without what takes other ways through the agents.
func (d *deadly) start() {
	count := min(1+d.r.IntN(4), 2)
	d.began, d.victim, d.mark, d.inside = time.Now(), d.r.IntN(2*count), "TEST_MARK="+d.t.TempDir(), d.r.IntN(3) == 0
	flags := append([]string{"--worker-store", []string{"auto", "agent"}[d.r.IntN(2)], "--verdict", "verdict"}, d.fate.flags...)
	if d.r.IntN(2) == 0 {
		flags = append(flags, "--log-dir", "logs", "--tee", "3")
	}
	endpoint := fmt.Sprintf("127.0.0.1:%d", freeport.Take(d.t))
	self, err := os.Executable()
	if err != nil {
		d.t.Fatal(err)
	}
	for n := range count {
		argv := []string{self, "run", "--nnodes", strconv.Itoa(count), "--node-rank", strconv.Itoa(n), "--nproc-per-node", "2",
			"--local-addr", fmt.Sprintf("127.0.0.%d", n+1), "--rdzv-endpoint", endpoint}
		if d.inside {
			argv = append([]string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"}, argv...)
		}
		argv = append(append(argv, flags...), "--", "sh", "-c", d.fate.script)
		d.nodes = append(d.nodes, startProgram(d.t, d.t.TempDir(), []string{d.mark, fmt.Sprintf("VICTIM=%d", d.victim)}, argv...))
	}
}

// first returns the first process of a node.
func (d *deadly) first(n int) int {
	pid := d.nodes[n].cmd.Process.Pid
	if d.inside {
		children, _ := proc.Root("/proc").Children(pid)
		return append(children, pid)[0]
	}
	return pid
}

// kill kills agents of one node, no more than are followed by others.
func (d *deadly) kill(n int, r *rand.Rand) {
	for range 1 + r.IntN(4) {
		select {
		case <-d.nodes[n].done:
			return
		case <-time.After(time.Duration(float64(time.Second) * math.Pow(1000, -r.Float64()))): // from a millisecond to a second
		}
		for _, agent := range agentsOf(d.first(n)) {
			if syscall.Kill(agent, syscall.SIGKILL) == nil {
				d.mu.Lock()
				d.deaths = append(d.deaths, fmt.Sprintf("node %d: %d after %v", n, agent, time.Since(d.began)))
				d.mu.Unlock()
			}
		}
	}
}

// ready waits for all workers of the first round.
func (d *deadly) ready() {
	for rank := range 2 * len(d.nodes) {
		d.nodes[rank/2].says(fmt.Sprintf("[rank %d] ready\n", rank))
	}
}

// terminate is what a platform does.
func (d *deadly) terminate() {
	d.ready()
	if err := syscall.Kill(d.first(d.r.IntN(len(d.nodes))), syscall.SIGTERM); err != nil {
		d.t.Error(err)
	}
}

func (d *deadly) pause() {
	d.ready()
	d.order("pause")
	d.nodes[0].says("paused on all nodes")
	d.order("resume")
}

// order gives an order until it is answered with success, after which it must be done, or was heard all the same: the agent that
// is asked may die over it. It is asked by its socket: while it is dead, another job's would be found.
func (d *deadly) order(what string) {
	n := d.r.IntN(len(d.nodes))
	for i := 0; !strings.Contains(d.nodes[0].out.String(), "was told to "+what); i++ {
		sockets, err := filepath.Glob(filepath.Join(d.nodes[n].tmp, control.Dirs+"*", control.Socket))
		if err != nil || len(sockets) == 0 {
			d.t.Fatalf("no socket of node %d: %v", n, err)
		}
		asked := d.nodes[n].asks("ctl", what, "--socket", sockets[i%len(sockets)])
		select {
		case <-asked.done:
			if asked.cmd.ProcessState.ExitCode() == 0 {
				return
			}
		case <-d.nodes[n].done:
			d.t.Fatalf("it ended and was not told to %s", what)
		}
	}
}

// whole checks that all lines of the last round are there, and nothing temporary. Of the round before lines end anywhere.
func (d *deadly) whole(n int) {
	d.t.Helper()
	p := d.nodes[n]
	for rank := 2 * n; rank < 2*n+2 && d.fate.counts; rank++ {
		out := p.out.String()
		up := fmt.Sprintf("[rank %d] up in ", rank)
		if strings.Count(out, up+"0\n") != 1 || strings.Count(out, up+"1\n") > 1 {
			d.t.Errorf("rank %d was started twice in a round", rank)
		}
		wholeLines(d.t, out[max(0, strings.LastIndex(out, up)):], 1, rank)
	}
	if left, err := os.ReadDir(p.tmp); err != nil || len(left) > 0 {
		d.t.Errorf("node %d left in TMPDIR: %v, %v", n, left, err)
	}
}

// alike checks that all nodes say the same of the end, and that it is the right end.
func (d *deadly) alike() {
	d.t.Helper()
	var all [2]struct {
		Outcome, Class, Message string
		ExitCode                int `json:"exit_code"`
	}
	for n, p := range d.nodes {
		b, err := os.ReadFile(filepath.Join(p.cmd.Dir, "verdict"))
		if err == nil {
			err = json.Unmarshal(b, &all[n])
		}
		if err != nil {
			d.t.Error(err)
		}
	}
	says := strings.ReplaceAll(d.fate.says, "%d", strconv.Itoa(d.victim))
	if v := all[0]; v != all[len(d.nodes)-1] || v.ExitCode != d.fate.code || !strings.Contains(v.Message, says) {
		d.t.Errorf("the verdicts are %+v; want exit code %d and %q", all, d.fate.code, says)
	}
}

// tell tells what a job that ended otherwise was like.
func (d *deadly) tell() {
	if !d.t.Failed() {
		return
	}
	for n, p := range d.nodes {
		d.t.Logf("node %d:\n%s", n, p.out.String())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.t.Logf("in namespaces: %v; killed: %q", d.inside, d.deaths)
}
