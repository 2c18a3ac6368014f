package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/muster-run/muster/test/freeport"
)

// python returns the interpreter with a PyTorch of this kind (test/python), and prepares it if need be.
func python(t *testing.T, kind string) string {
	t.Helper()
	cmd := exec.Command("../../test/python", kind)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("test/python %s: %v", kind, err)
	}
	return strings.TrimSpace(string(out))
}

func abs(t *testing.T, path string) string {
	t.Helper()
	full, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return full
}

// The users' own groups, stores and children work under muster's defaults as they do without a launcher.
// The scripts assert their world size by a collective.
func TestUserCodeOfPyTorch(t *testing.T) {
	t.Parallel()
	scripts := []string{"env_group", "new_group", "group_twice", "tcp_group", "tcp_second_group", "tcp_master_group",
		"own_env_group", "child_group", "child_world", "own_store", "master_store"}
	for _, kind := range []string{"debian", "newest"} {
		vars := []string{"PYTHON_EXEC=" + python(t, kind), "GLOO_SOCKET_IFNAME=lo"}
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for _, script := range scripts {
				args := []string{"--nproc-per-node", "1", abs(t, "../../test/torch/scripts/"+script+".py"), "2"}
				for range 3 {
					args = append(args, strconv.Itoa(lowPort(t)))
				}
				for _, p := range startNodes(t, 2, vars, args...) {
					p.ends(0)
				}
			}
		})
	}
}

// What --debug sets up is a world: training that people start by hand, in the ranks' environments, meets in it, and again in
// the next round.
func TestTrainingByHand(t *testing.T) {
	t.Parallel()
	exe, script := python(t, "debian"), abs(t, "../../test/torch/scripts/env_group.py")
	all := startNodes(t, 2, []string{"GLOO_SOCKET_IFNAME=lo"}, "--debug=echo ready $TORCHELASTIC_RESTART_COUNT; exec sleep infinity", script)
	for round := range 2 {
		for _, p := range all {
			p.says(fmt.Sprintf("ready %d", round))
		}
		var hands []*program
		for rank := range 4 {
			hands = append(hands, all[rank/2].asks("exec", "--rank", strconv.Itoa(rank), "--", exe, script, "4"))
		}
		for _, h := range hands {
			h.ends(0)
		}
		all[round].asks("ctl", []string{"restart", "stop"}[round]).ends(0)
	}
	for _, p := range all {
		p.ends(143)
	}
}

// nextPort counts through the ports that lowPort tries, so that no two calls get the same.
var nextPort atomic.Int32

// lowPort returns a free port below the range from which the kernel takes ports for outgoing connections, of which
// the tests make many.
func lowPort(t *testing.T) int {
	t.Helper()
	for range 5000 {
		port := 10000 + (7*os.Getpid()+int(nextPort.Add(1)))%9000
		ln, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err == nil {
			ln.Close()
			return port
		}
	}
	t.Fatal("no free port from 10000 to 19000")
	return 0
}

// A training under muster is the training that torchrun would have run: the same losses, rank by rank, to the last
// bit, on two nodes of two workers.
func TestSameLossesAsTorchrun(t *testing.T) {
	t.Parallel()
	exe := python(t, "newest")
	train := abs(t, "../../examples/pytorch-ddp/train.py")
	ours, theirs := filepath.Join(t.TempDir(), "losses"), filepath.Join(t.TempDir(), "losses")
	flags := []string{"--epochs", "4", "--expect-world", "4", "--losses"}

	for _, p := range startNodes(t, 2, []string{"PYTHON_EXEC=" + exe, "GLOO_SOCKET_IFNAME=lo"}, append(append([]string{train}, flags...), ours)...) {
		p.ends(0)
	}
	torchrun(t, exe, append(append([]string{train}, flags...), theirs)...)
	for rank := range 4 {
		a, b := losses(t, ours, rank), losses(t, theirs, rank)
		if a != b {
			t.Errorf("rank %d has other losses than under torchrun:\n%s\n%s", rank, a, b)
		}
		if n := strings.Count(a, "\n"); n != 4*23 {
			t.Errorf("rank %d has %d losses, not %d", rank, n, 4*23)
		}
	}
	if losses(t, ours, 0) == losses(t, ours, 1) {
		t.Error("ranks 0 and 1 have the same losses: they do not have data of their own")
	}
}

func losses(t *testing.T, path string, rank int) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("%s.%d", path, rank))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// torchrun runs two of PyTorch's own agents of two workers each.
func torchrun(t *testing.T, exe string, args ...string) {
	t.Helper()
	endpoint := fmt.Sprintf("127.0.0.1:%d", lowPort(t))
	var all []*exec.Cmd
	for range 2 {
		cmd := exec.Command(exe, append([]string{"-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2",
			"--rdzv-backend", "c10d", "--rdzv-id", "peer", "--rdzv-endpoint", endpoint, "--local-addr", "127.0.0.1"}, args...)...)
		cmd.Env = append(os.Environ(), "GLOO_SOCKET_IFNAME=lo", "OMP_NUM_THREADS=1")
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, cmd)
	}
	for _, cmd := range all {
		if err := cmd.Wait(); err != nil {
			t.Fatalf("torchrun: %v", err)
		}
	}
}

// Workers that train without the others are told of while they do: those that make no process group, and those in whose group
// there are not all. Of a group that nobody uses PyTorch 1.13 says nothing: it begins to number collectives anywhere.
func TestTrainsApart(t *testing.T) {
	t.Parallel()
	train := `
import os, sys, time, torch
import torch.distributed as dist
if sys.argv[1] == "single":
    os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_PORT="0")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
elif sys.argv[1] == "unused":
    dist.init_process_group("gloo")
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[2])):
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    time.sleep(0.1)
`
	const endless, few = "1000000", "40"
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte(train), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"debian", "newest"} {
		for how, says := range map[string][]string{
			"none":   {"the workers of this node train alone: rank 0 has made "},
			"unused": {"the workers of this node train alone: rank 0 has made "},
			"single": {"rank 0 (pid ", "is in a process group of 1, but the job has 2 ranks: it trains apart"},
		} {
			t.Run(kind+" "+how, func(t *testing.T) {
				t.Parallel()
				vars := []string{"PYTHON_EXEC=" + python(t, kind)}
				if kind == "debian" && how == "unused" {
					p := muster(t, dir, vars, "run", "--nproc-per-node", "2", "train.py", how, few)
					if p.ends(0); strings.Contains(p.out.String(), "train alone") {
						t.Errorf("PyTorch 1.13 cannot tell, but\n%s", p.out.String())
					}
					return
				}
				p := muster(t, dir, vars, "run", "--nproc-per-node", "2", "train.py", how, endless)
				for _, text := range says {
					p.says(text)
				}
				p.cmd.Process.Signal(syscall.SIGTERM)
				p.ends(143)
			})
		}
	}
}

// Nodes meet in a store that PyTorch itself hosts.
func TestMeetInPyTorchsStore(t *testing.T) {
	t.Parallel()
	port := freeport.Take(t)
	host := startProgram(t, t.TempDir(), nil, python(t, "debian"), "-c", fmt.Sprintf(
		"import signal, torch.distributed as d; s = d.TCPStore('127.0.0.1', %d, None, True, wait_for_workers=False); signal.pause()", port))
	var all [2]*program
	for n := range all {
		all[n] = muster(t, t.TempDir(), nil, "run", "--nnodes", "2", "--serve", "no", "--rdzv-endpoint", fmt.Sprint("127.0.0.1:", port),
			"--node-rank", fmt.Sprint(n), "--nproc-per-node", "2", "--", "sh", "-c", "echo $RANK of $WORLD_SIZE")
	}
	for n, p := range all {
		p.ends(0, fmt.Sprintf("[rank %d] %d of 4", 2*n, 2*n))
	}
	host.cmd.Process.Kill()
}
