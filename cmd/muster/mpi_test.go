package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
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

func compile(t *testing.T, compiler, source, program string) {
	t.Helper()
	if out, err := exec.Command(compiler, "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", compiler, err, out)
	}
}
