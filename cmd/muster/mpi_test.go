package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-run/muster/proc"
)

// mpiWorld is a program of MPI: all ranks must be one world, of which two share a machine, and have the same sum. Its first word says how it
// ends; the next ones are files for which it waits before MPI_Init, and after the sum.
const mpiWorld = `#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void await(const char *file) { while (file && access(file, F_OK)) usleep(2000); }
int main(int argc, char **argv) {
	int rank, size, near, sum, one;
	const char *how = argc > 1 ? argv[1] : "";
	const char *before = argc > 2 ? argv[2] : 0, *after = argc > 3 ? argv[3] : 0;
	MPI_Comm here;
	await(before);
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
	MPI_Comm_size(here, &near);
	one = rank + 1;
	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	printf("rank %d of %d, %d here, sum %d\n", rank, size, near, sum);
	fflush(stdout);
	await(after);
	if (*how) MPI_Barrier(MPI_COMM_WORLD); /* all have said so */
	if (rank == 3 && !strcmp(how, "once") && !unlink(before)) MPI_Abort(MPI_COMM_WORLD, 7);
	if (rank == 3 && !strcmp(how, "abort")) MPI_Abort(MPI_COMM_WORLD, 7);
	if (rank == 3 && !strcmp(how, "kill")) raise(SIGKILL);
	if (rank == 3 && !strcmp(how, "leave")) _exit(0);
	if (*how) MPI_Barrier(MPI_COMM_WORLD);
	MPI_Finalize();
	return 0;
}
`

// Two nodes run a program of the MPICH family without mpiexec: one world, and the same end everywhere. No rank comes to MPI_Finalize here: with
// MPICH 4.0.2 (UCX 1.13) over TCP that may wait for ever on a busy machine, for a peer that waits in PMI's barrier already. TestTakeOverAndMPI
// has it, and test/interop.
func TestMPICH(t *testing.T) {
	s := openPods(t)
	s.write("w.c", mpiWorld)
	compile(t, "mpicc.mpich", s.dir+"/w.c", s.dir+"/w")
	run := func(how string) (nodes []*program) {
		for host := range 2 {
			argv := []string{"muster", "run", "--framework", "mpi", "--nnodes", "2", "--nproc-per-node", "2", "--rdzv-endpoint", "worker-0:29400", s.dir + "/w"}
			nodes = append(nodes, s.pod(host, nil, append(argv, strings.Fields(how)...)...))
		}
		return nodes
	}
	for _, c := range []struct {
		how, say string
		code     int
	}{
		{"abort", "it called MPI_Abort with 7", 7},
		{"kill", "SIGKILL", 137},
		{"leave", "it ended with 0, but without MPI_Finalize", 1},
	} {
		for host, p := range run(c.how) {
			p.ends(c.code, "rank 3", c.say, fmt.Sprintf("rank %d of 4, 2 here, sum 10", 2*host), fmt.Sprintf("rank %d of 4, 2 here, sum 10", 2*host+1))
		}
	}
}

// Agents that are killed, before MPI_Init and in a world of MPI, are not missed: what their processes serve goes on, and MPI_Abort is
// heard by the next ones. The round after it has a world of its own.
func TestTakeOverAndMPI(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/w.c", []byte(mpiWorld), 0o600); err != nil {
		t.Fatal(err)
	}
	compile(t, "mpicc.mpich", dir+"/w.c", dir+"/w")
	all := startNodes(t, 2, nil, "--framework", "mpi", "--max-restarts", "1", "--", "sh", "-c", "echo up; [ ! -e "+dir+"/again ] || shift 2; exec "+dir+"/w $*",
		"sh", "once", dir+"/begin", dir+"/end")
	kill := func(said string) {
		for _, p := range all {
			p.saysTimes(said, 2)
			p.killAgent()
		}
	}
	kill("up")
	signalFile(t, dir+"/begin")
	kill("2 here, sum 10")
	signalFile(t, dir+"/again")
	signalFile(t, dir+"/end")
	for _, p := range all {
		p.ends(0, "it called MPI_Abort with 7", "restart 1 of 1")
		p.saysTimes("sum 10", 4)
	}
}

// Many programs that are each a world of their own are noticed: those of an MPI that speaks another protocol.
func TestMPIAlone(t *testing.T) {
	s := openPods(t)
	run := []string{"muster", "run", "--framework", "mpi", "--nproc-per-node", "2"}
	s.pod(0, nil, append(run, "/usr/bin/python3", "-c", "from mpi4py import MPI; print('size', MPI.COMM_WORLD.size)")...).
		ends(0, "size 1\n", "no worker of this node has called MPI_Init as --framework mpi understands it", "docs/no-ssh.md")
	for rank := range 2 {
		if err := syscall.Mkfifo(fmt.Sprint(s.dir, "/end", rank), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	long := s.pod(0, nil, append(run, "/usr/bin/python3", "-c", "from mpi4py import MPI; import os; open('"+s.dir+"/end' + os.environ['RANK']).read()")...)
	long.says("has loaded Open MPI (libopen-pal.so")
	for rank := range 2 {
		s.write(fmt.Sprint("end", rank), "") // it reads that
	}
	long.ends(0)
}

// speak are words of a shell by which a worker speaks PMI.
const speak = `say() { echo "cmd=$1" >&3; read -r answer <&3; echo "rank $RANK heard $answer"; }; init() { say "init pmi_version=1 pmi_subversion=1"; }; `

// helpers are the processes that serve workers of p: of this node, and those that the nodes share.
func (p *program) helpers() (pids []int) {
	p.t.Helper()
	children, _ := proc.Root("/proc").Children(p.cmd.Process.Pid)
	for _, child := range children {
		words, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
		if bytes.HasPrefix(words, []byte("/proc/self/exe\x00pmi\x00")) || bytes.HasPrefix(words, []byte("/proc/self/exe\x00store\x00")) {
			pids = append(pids, child)
		}
	}
	return pids
}

// A signal to all processes of a job leaves workers whom they need to end well. Afterwards nobody is left, nor when the first process is killed.
func TestMPIEnd(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 2, nil, "--framework", "mpi", "--", "sh", "-c", speak+
		`init; trap 'say barrier_in; say finalize; exit 0' TERM; echo "ready $RANK"; while :; do sleep 0.05; done`)
	var helpers []int
	for n, p := range all {
		p.says(fmt.Sprintf("ready %d", 2*n))
		p.says(fmt.Sprintf("ready %d", 2*n+1))
		if found := p.helpers(); len(found) != 2-n {
			t.Fatalf("node %d has the helpers %d", n, found)
		}
		helpers = append(helpers, p.helpers()...)
	}
	areDeaf(t, helpers)
	for _, pid := range helpers {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			if err := syscall.Kill(pid, sig); err != nil {
				t.Fatal(err)
			}
		}
	}
	all[0].cmd.Process.Signal(syscall.SIGTERM)
	for n, p := range all {
		p.ends(143, fmt.Sprintf("rank %d heard cmd=finalize_ack\n", 2*n), fmt.Sprintf("rank %d heard cmd=finalize_ack\n", 2*n+1))
	}
	areGone(t, helpers)

	p := startNodes(t, 1, nil, "--framework", "mpi", "--worker-store", "agent", "--", "sh", "-c", speak+`init; exec sleep 1000`)[0]
	p.says("rank 0 heard")
	p.says("rank 1 heard")
	helpers = p.helpers()
	if len(helpers) != 2 {
		t.Fatalf("there are the helpers %d", helpers)
	}
	p.cmd.Process.Kill()
	areGone(t, helpers)
}

// A rank that ends well and never enters the world for which others wait has failed, whether they enter it before or after its end, here or on another node.
func TestMPIUnspoken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, silent, others string }{
		{"before", `echo $$ >pid.$RANK; mv pid.$RANK pid`, `until [ -e pid ]; do sleep 0.01; done; while kill -0 $(cat pid) 2>/dev/null; do sleep 0.01; done; init; say barrier_in`},
		{"after", `until [ -e begun ]; do sleep 0.01; done`, `init; touch begun; say barrier_in`},
	} {
		for nodes := 1; nodes <= 2; nodes++ {
			t.Run(fmt.Sprintf("%s, %d nodes", c.name, nodes), func(t *testing.T) {
				t.Parallel()
				script := fmt.Sprintf(speak+"cd %s; [ $RANK -lt %d ] || { %s; exit 0; }; %s", t.TempDir(), nodes, c.silent, c.others)
				for _, p := range startNodes(t, nodes, nil, "--framework", "mpi", "--", "sh", "-c", script) {
					p.ends(1, [...]string{"rank 1 ", " (node 1, "}[nodes-1], "it ended with 0, but without MPI_Init, which others have called")
					if nodes == 1 && strings.Contains(p.out.String(), "no worker of this node") {
						t.Errorf("it says so too early:\n%s", p.out.String())
					}
				}
			})
		}
	}
	t.Run("taken over", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		script := fmt.Sprintf(speak+`cd %s; [ $RANK = 1 ] || { echo $$ >pid.0; mv pid.0 pid; exit 0; }; until [ -e pid ]; do sleep 0.01; done
			while kill -0 $(cat pid) 2>/dev/null; do sleep 0.01; done; echo gone; until [ -e go ]; do sleep 0.01; done; init; say barrier_in`, dir)
		p := startNodes(t, 1, nil, "--framework", "mpi", "--", "sh", "-c", script)[0]
		p.says("gone")
		p.killAgent()
		signalFile(t, dir+"/go")
		p.ends(1, "rank 0 ", "it ended with 0, but without MPI_Init, which others have called")
	})
	startNodes(t, 1, nil, "--framework", "mpi", "--", "true")[0].ends(0, "no worker of this node has called MPI_Init as --framework mpi understands it; if they are programs of another MPI than "+
		"MPICH, Intel MPI and MVAPICH, each of them is a world of one rank. Open MPI's programs are started")
}

// A rank that calls MPI_Finalize while others wait for it in a barrier leaves nobody waiting: not on its node, and not on another.
func TestMPILeft(t *testing.T) {
	t.Parallel()
	for nodes := 1; nodes <= 3; nodes++ {
		script := fmt.Sprintf(speak+`init; [ $RANK -lt %d ] || { say finalize; exit 0; }; say barrier_in`, 2*nodes-1)
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			t.Parallel()
			for _, p := range startNodes(t, nodes, nil, "--framework", "mpi", "--", "sh", "-c", script) {
				p.ends(1, "it ended with 0, but without MPI_Finalize")
			}
		})
	}
}

// A socket's path may be longer than the kernel takes.
func TestMPILongPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/" + strings.Repeat("long", 40)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p := startNodes(t, 1, []string{"TMPDIR=" + dir}, "--framework", "mpi", "--", "sh", "-c", speak+"init; say barrier_in; say finalize")[0]
	p.ends(0, "rank 0 heard cmd=finalize_ack\n", "rank 1 heard cmd=finalize_ack\n")
}

// areDeaf waits until processes ignore SIGTERM and SIGINT: on a busy machine the store may begin after the workers, who need it first in a barrier.
func areDeaf(t *testing.T, pids []int) {
	t.Helper()
	const both = 1<<(syscall.SIGTERM-1) | 1<<(syscall.SIGINT-1)
	for _, pid := range pids {
		for ignored := uint64(0); ignored&both != both; runtime.Gosched() {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if err != nil || t.Context().Err() != nil {
				t.Fatalf("process %d ignores %x: %v", pid, ignored, err)
			}
			_, set, _ := strings.Cut(string(status), "\nSigIgn:\t")
			_, _ = fmt.Sscanf(set, "%x", &ignored)
		}
	}
}

// areGone waits until processes have ended.
func areGone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		for {
			if p, err := proc.Root("/proc").Process(pid); err != nil || p.Gone() {
				break
			}
			if t.Context().Err() != nil {
				t.Fatalf("process %d is left", pid)
			}
			runtime.Gosched()
		}
	}
}

func compile(t *testing.T, compiler, source, program string) {
	t.Helper()
	if out, err := exec.Command(compiler, "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", compiler, err, out)
	}
}
