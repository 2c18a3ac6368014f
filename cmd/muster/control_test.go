package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/test/freeport"
	"github.com/muster-run/muster/test/halt"
)

// asks starts a command that talks to p's agent, found as on any machine: by its directory.
func (p *program) asks(args ...string) *program {
	p.t.Helper()
	return muster(p.t, p.tmp, []string{"TMPDIR=" + p.tmp}, args...)
}

// While the agent of one job is being replaced, the only other one that runs here is not taken for it, and who asks for it by its name waits.
func TestAgentIsBeingReplaced(t *testing.T) {
	t.Parallel()
	dir := "TMPDIR=" + t.TempDir()
	open := filepath.Join(t.TempDir(), "open")
	start := func(id string) *program {
		p := muster(t, t.TempDir(), []string{dir}, "run", "--nnodes", "1", "--rdzv-id", id, "--nproc-per-node", "1", "--", "sh", "-c",
			"echo up; while [ ! -e "+open+" ]; do sleep 0.02; done")
		p.says("up")
		return p
	}
	one, other := start("one"), start("other")
	first := one.cmd.Process.Pid
	agent := agentsOf(first)[0]
	for _, s := range []struct {
		pid int
		sig syscall.Signal
	}{{first, syscall.SIGSTOP}, {agent, syscall.SIGKILL}} {
		if err := syscall.Kill(s.pid, s.sig); err != nil {
			t.Fatal(err)
		}
	}
	muster(t, t.TempDir(), []string{dir}, "ctl", "restart").ends(1, "2 agents run here", "job other", "one that does not answer")
	if err := syscall.Kill(first, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	muster(t, t.TempDir(), []string{dir}, "status", "--job", "one").ends(0, "job one")
	one.says(tookOver)
	muster(t, t.TempDir(), []string{dir}, "ctl", "stop", "--job", "other").ends(0)
	other.ends(143)
	signalFile(t, open)
	one.ends(0)
}

// Who watches hears how the job ended, and ends as it did; also of an agent that took another's place.
func TestWatch(t *testing.T) {
	for _, c := range []struct {
		name, script string
		code         int
		says         string
	}{
		{"well", "", 0, "the job has ended: all workers ended well"},
		{"failed", "exit 3", 3, "exited with code 3; exit 3"},
		{"replaced", "exit 3", 3, "exited with code 3; exit 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			open := filepath.Join(t.TempDir(), "open")
			p := muster(t, t.TempDir(), nil, "run", "--standalone", "--nproc-per-node", "1", "--", "sh", "-c",
				"echo up; while [ ! -e "+open+" ]; do sleep 0.02; done; "+c.script)
			p.says("up")
			w := p.asks("status", "--watch", "--json")
			w.says(`"phase":"running"`)
			if c.name == "replaced" {
				before := p.status().PID
				if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				p.says(tookOver)
				w.says(fmt.Sprintf(`"pid":%d`, p.status().PID))
			}
			signalFile(t, open)
			p.ends(c.code)
			w.ends(c.code, c.says)
		})
	}
}

// status is p's, as its agent sees the job.
func (p *program) status() (s report.Status) {
	p.t.Helper()
	q := p.asks("status", "--json")
	q.ends(0)
	if err := json.Unmarshal([]byte(q.out.String()), &s); err != nil {
		p.t.Fatalf("%v: %s", err, q.out.String())
	}
	return s
}

// reaches waits until p's job is in a phase. Each look takes a process of its own, so it does not spin.
func (p *program) reaches(phase string) report.Status {
	p.t.Helper()
	for {
		if s := p.status(); s.Phase == phase {
			return s
		}
		select {
		case <-p.done:
			p.t.Fatalf("it ended and never was %s:\n%s", phase, p.out.String())
		default:
		}
	}
}

const training = `trap 'echo saved $RANK; exit 0' TERM; echo "up $RANK of $WORLD_SIZE in round $TORCHELASTIC_RESTART_COUNT"; while :; do sleep 0.05; done`

// up waits until the workers of all nodes, two of each, run in a round.
func up(all []*program, round int) {
	for n, p := range all {
		for rank := 2 * n; rank < 2*n+2; rank++ {
			p.says(fmt.Sprintf("[rank %d] up %d of %d in round %d", rank, rank, 2*len(all), round))
		}
	}
}

func TestStatusAndHealth(t *testing.T) {
	t.Parallel()
	endpoint := fmt.Sprintf("127.0.0.1:%d", freeport.Take(t))
	args := []string{"run", "--nnodes", "2", "--nproc-per-node", "2", "--rdzv-id", "j7", "--rdzv-endpoint", endpoint, "--", "sh", "-c", training}
	first := muster(t, t.TempDir(), nil, args...)
	first.says("1 of 2 nodes here") // and a Service lets peers through only to those that are ready
	first.asks("health", "ready").ends(0, "the agent listens")
	if s := first.status(); s.Phase != report.Meeting || !strings.Contains(s.Waits, "1 of 2 nodes") || s.Node != nil || s.Job != "j7" {
		t.Errorf("alone: %+v", s)
	}
	all := []*program{first, muster(t, t.TempDir(), nil, args...)}
	for _, p := range all {
		s := p.reaches(report.Running)
		if s.World != 4 || len(s.Nodes) != 2 || len(s.Workers) != 2 || s.Workers[1].State != "running" || s.Workers[1].Memory == 0 ||
			s.PID != agentOf(t, p.cmd.Process.Pid) || s.Workers[1].Rank != 2**s.Node+1 {
			t.Errorf("%+v", s)
		}
		p.asks("status").ends(0, "job j7: running for", "world size 4 on 2 nodes; this is node", "RANK")
		p.asks("health", "live").ends(0, "the agent answers")
	}
	first.cmd.Process.Signal(syscall.SIGTERM)
	for _, p := range all {
		p.ends(143)
	}
	for _, p := range all {
		p.asks("health", "live", "--job", "j7").ends(1, `no muster run for job "j7" of user`)
		if left, _ := os.ReadDir(p.tmp); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

// The agent's socket is its user's alone, and so is the directory.
func TestSocketIsPrivate(t *testing.T) {
	t.Parallel()
	p := muster(t, t.TempDir(), nil, "run", "--", "sh", "-c", training)
	p.says("up 0 of 1")
	found, err := filepath.Glob(filepath.Join(p.tmp, "muster-*", "agent.sock"))
	if err != nil || len(found) != 1 {
		t.Fatalf("sockets: %q, %v", found, err)
	}
	for path, mode := range map[string]os.FileMode{found[0]: os.ModeSocket | 0o600, filepath.Dir(found[0]): os.ModeDir | 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode(), err, mode)
		}
	}
	p.asks("status", "--socket", found[0]).ends(0, "running")
}

// Which agent is meant must be clear; without one it is said where it was looked for.
func TestWhichAgent(t *testing.T) {
	t.Parallel()
	var all []*program
	tmp := t.TempDir()
	for _, id := range []string{"one", "two"} {
		p := muster(t, tmp, []string{"TMPDIR=" + tmp}, "run", "--rdzv-id", id, "--", "sh", "-c", training)
		p.tmp = tmp
		p.says("up 0 of 1")
		all = append(all, p)
	}
	all[0].asks("status").ends(1, "2 agents run here: job ", "job one, pid ", "job two, pid ", "say which one with --socket, or with --job")
	all[0].asks("status", "--job", "two").ends(0, "job two: running")
	all[0].asks("status", "--socket", "/nothere/agent.sock").ends(1, "ask the agent at /nothere/agent.sock", "no such file")
	all[0].asks("ctl", "stpo").ends(2, "did you mean muster ctl stop?")
	all[0].asks("ctl", "stop", "now").ends(2, `takes no arguments, got "now"`)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	none := startProgram(t, t.TempDir(), nil, "unshare", "-n", self, "health", "ready") // the kernel's list is that of the network
	none.ends(1, fmt.Sprintf("no muster run of user %d here: looked for muster-*/agent.sock in %s", os.Getuid(), none.tmp), "name the socket with --socket")
}

// QUIT shows where the agent's goroutines stand, and the job goes on.
func TestQuit(t *testing.T) {
	t.Parallel()
	p := muster(t, t.TempDir(), nil, "run", "--", "sh", "-c", training)
	p.says("up 0 of 1")
	exec.Command("kill", "-QUIT", fmt.Sprint(agentOf(t, p.cmd.Process.Pid))).Run()
	p.says("launcher.(*round).loop")
	p.asks("ctl", "dump").ends(0, "\nthe agent's goroutines are on its standard error")
	if s := p.status(); s.Phase != report.Running || strings.Count(p.out.String(), "launcher.(*round).loop") < 2 {
		t.Errorf("%s after the dumps:\n%s", s.Phase, p.out.String())
	}
	p.asks("ctl", "stop").ends(0, "the job ends; workers have time for a checkpoint")
	p.ends(143, "saved 0", "was told to stop by muster ctl; exit 143")
}

// What is ordered on one node happens on all, and costs no restart.
func TestCtl(t *testing.T) {
	t.Parallel()
	for asked := range 2 {
		t.Run(fmt.Sprintf("node %d", asked), func(t *testing.T) {
			t.Parallel()
			all := startNodes(t, 2, nil, "--", "sh", "-c", training)
			up(all, 0)
			all[asked].asks("ctl", "resume").ends(1, "the job is not paused")
			all[asked].asks("ctl", "restart").ends(0)
			up(all, 1)
			all[asked].asks("ctl", "pause").ends(0)
			for _, p := range all {
				if s := p.reaches(report.Paused); s.Waits != "muster ctl resume" || len(s.Nodes) != 2 || strings.Contains(fmt.Sprint(s.Workers), "running") {
					t.Errorf("paused: %+v", s)
				}
			}
			all[1-asked].asks("ctl", "resume").ends(0)
			up(all, 2)
			all[1-asked].asks("ctl", "stop").ends(0, "the job ends")
			for n, p := range all {
				p.ends(143, fmt.Sprintf("node %d (", asked), "was told to pause by muster ctl", fmt.Sprintf("node %d (", 1-asked), "was told to stop by muster ctl; exit 143")
				if got := strings.Count(p.out.String(), fmt.Sprintf("saved %d", 2*n)); got != 3 {
					t.Errorf("rank %d had time for %d checkpoints, want 3:\n%s", 2*n, got, p.out.String())
				}
			}
		})
	}
}

// An agent lives while its main loop moves, and not because somebody answers for it: neither over its socket nor over HTTP. A loop that stands (for its
// journal is a pipe that nobody reads) is told of after a minute; one that moves is not, for as long.
func TestProbesOfALoop(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", freeport.Take(t))
	well := muster(t, t.TempDir(), nil, "run", "--", "sh", "-c", training)
	meets := muster(t, t.TempDir(), nil, "run", "--nnodes", "2", "--rdzv-endpoint", fmt.Sprintf("127.0.0.1:%d", freeport.Take(t)), "--", "true")
	stands := muster(t, dir, nil, "run", "--http", address, "--journal", pipe, "--", "sh", "-c", "echo up; exit 3")
	well.says("up 0 of 1")
	meets.says("1 of 2 nodes here")
	stands.says("up")
	healthz := func() (int, string) {
		r, err := http.Get("http://" + address + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(text)
	}
	if code, text := healthz(); code != http.StatusOK {
		t.Errorf("at first: %d, %s", code, text)
	}
	for {
		code, text := healthz()
		if code == http.StatusOK {
			well.asks("health", "live").ends(0)
			continue
		}
		if code != http.StatusServiceUnavailable || !strings.Contains(text, "main loop stands still") {
			t.Errorf("%d, %s", code, text)
		}
		break
	}
	stands.asks("health", "live").ends(1, "main loop stands still")
	for _, p := range []*program{well, meets} {
		p.asks("health", "live").ends(0, "the agent answers")
		p.asks("health", "ready").ends(0, "the agent listens")
	}
	stands.asks("health", "ready").ends(0, "the agent listens") // it does
	f, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stands.ends(3)
}

// An agent that is stopped does not live; one that takes over from another is ready and lives all the time, also while nodes meet.
func TestProbesOfAnAgent(t *testing.T) {
	t.Parallel()
	endpoint := fmt.Sprintf("127.0.0.1:%d", freeport.Take(t))
	for phase, args := range map[string][]string{"meets": {"--nnodes", "2", "--rdzv-endpoint", endpoint, "--", "true"}, "runs": {"--", "sh", "-c", training}} {
		p := muster(t, t.TempDir(), nil, append([]string{"run"}, args...)...)
		p.says(map[string]string{"meets": "1 of 2 nodes here", "runs": "up 0 of 1"}[phase])
		agent := p.status().PID
		sockets, err := filepath.Glob(filepath.Join(p.tmp, "muster-*", "agent.sock"))
		if err != nil || len(sockets) != 1 {
			t.Fatal(sockets, err)
		}
		for stopped := false; !stopped; { // it may have answered before the signal reached it
			halt.Stop(t, agent)
			q := p.asks("health", "live", "--socket", sockets[0])
			<-q.done
			stopped = strings.Contains(q.out.String(), "does not answer")
		}
		if err := syscall.Kill(agent, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		p.asks("health", "live", "--socket", sockets[0]).ends(0)
		var asked []*program
		for range 2 {
			asked = append(asked, p.asks("health", "ready", "--socket", sockets[0]), p.asks("health", "live", "--socket", sockets[0]))
			if len(asked) == 2 {
				for _, a := range agentsOf(p.cmd.Process.Pid) {
					syscall.Kill(a, syscall.SIGKILL)
				}
			}
		}
		for _, q := range asked {
			q.ends(0)
		}
	}
}

// Of an agent that has its directory elsewhere, and may be another job's, a status is shown, but nothing is done to it unless it is named. Answers
// say to which job.
func TestActsOnWhoIsMeant(t *testing.T) {
	t.Parallel()
	p := muster(t, t.TempDir(), nil, "run", "--nnodes", "1", "--rdzv-id", "theirs", "--nproc-per-node", "1", "--", "sh", "-c", "echo up; sleep 1000")
	p.says("up")
	elsewhere := []string{"TMPDIR=" + t.TempDir(), "XDG_RUNTIME_DIR="}
	for _, verb := range []string{"stop", "restart", "pause"} {
		muster(t, t.TempDir(), elsewhere, "ctl", verb).ends(absent, "job theirs", "--job")
	}
	muster(t, t.TempDir(), elsewhere, "ctl", "pause", "--job", "mine").ends(absent, "no muster run for job \"mine\"")
	muster(t, t.TempDir(), elsewhere, "ctl", "stop", "--job", "theirs").ends(0, "job theirs: the job ends")
	p.ends(143)
}
