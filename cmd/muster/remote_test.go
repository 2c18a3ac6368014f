package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// bootPod is what happens in a container before its first process runs: names, and ssh's programs are muster.
const bootPod = `
mount --make-rprivate /
mount -t proc proc /proc
mount --bind $1/hosts /etc/hosts
hostname $2
shift 2
exec "$@"`

// pods are two containers with a network between them, worker-0 and worker-1, which share a private key of ssh's as
// mpi-operator mounts one, and in whose PATH sshd, ssh, pdsh and deepspeed are links to muster.
type pods struct {
	t   *testing.T
	net []string
	dir string // which both see: the links in bin, home
}

func openPods(t *testing.T) *pods {
	t.Helper()
	s := &pods{t: t, dir: t.TempDir()}
	s.net, _ = hosts(t)
	for _, d := range []string{"bin", "home/.ssh"} {
		if err := os.MkdirAll(filepath.Join(s.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"sshd", "ssh", "pdsh", "deepspeed", "muster"} {
		if err := os.Symlink(executable(t), filepath.Join(s.dir, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	s.write("hosts", "127.0.0.1 localhost\n10.77.0.1 worker-0\n10.77.0.2 worker-1\n")
	s.write("home/.ssh/id_rsa", "-----BEGIN EC PRIVATE KEY-----\nMIHcAgEBBEIA\n-----END EC PRIVATE KEY-----\n")
	s.write("home/.ssh/id_rsa.pub", "ecdsa-sha2-nistp521 AAAAE2VjZHNh\n")
	s.write("home/.ssh/authorized_keys", "ecdsa-sha2-nistp521 AAAAE2VjZHNh\n")
	return s
}

func (s *pods) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// pod starts a container in which argv is the first process.
func (s *pods) pod(host int, vars []string, argv ...string) *program {
	s.t.Helper()
	vars = append([]string{"HOME=" + s.dir + "/home", "PATH=" + s.dir + "/bin:/usr/bin:/bin:/usr/sbin:/sbin", "OMP_NUM_THREADS=1", "MUSTER_JOIN_TIMEOUT=2m"}, vars...)
	boot := []string{"/usr/sbin/ip", "netns", "exec", s.net[host], "unshare", "-u", "-m", "-p", "-i", "--fork", "--kill-child",
		"sh", "-euc", bootPod, "sh", s.dir, fmt.Sprint("worker-", host)}
	return startProgram(s.t, s.dir, vars, append(boot, argv...)...)
}

// A command runs on the other node as with ssh: its code, its streams, its input; the container's first process is sshd.
func TestSSH(t *testing.T) {
	s := openPods(t)
	s.write("sshd_config", "# Port 1\nPort 2222\n")
	s.write("home/.ssh/config", "Host other\n  Port 1\nHost worker-*\n  Port 2222\n")
	there := s.pod(1, nil, "sshd", "-De", "-f", s.dir+"/sshd_config", "-o", "UsePAM=no")
	s.pod(0, nil, "sh", "-c", `
		ssh -x -o ConnectionAttempts=10 -o StrictHostKeyChecking=no root@worker-1 'hostname;' "echo \$((6*7)); exit 7"; echo code $?
		printf 'one\ntwo' | ssh worker-1 -q wc -c
		ssh -n worker-1 'echo to stderr >&2; kill -TERM $$'; echo code $?
		ssh -p 1 -o ConnectTimeout=1 worker-1 true & sleep 0; kill $!
		pdsh -S -f 1024 -w worker-[1-1] -x worker-0 'echo number %n of %h; exit 5'; echo code $?
		PATH=/usr/bin:/bin; ssh-keygen -V 2>/dev/null; exit 0`).
		ends(0, "worker-1\n42\ncode 7\n", "\n7\n", "to stderr\ncode 143\n", "worker-1: number 0 of worker-1\n", "code 5\n")
	there.says("listening on port 2222 for nodes that have the secret of")
	s.pod(0, []string{"MUSTER_TOKEN=another secret of the job"}, "ssh", "worker-1", "true").ends(255, "ssh: worker-1: it has none of the secrets that are here")
	there.says("is refused: it has none of the secrets")
	s.pod(0, nil, "ssh", "worker-1").ends(255, "no command")
	s.pod(0, []string{"MUSTER_JOIN_TIMEOUT=2"}, "ssh", "-p", "9", "worker-1", "true").
		ends(255, "waiting for worker-1 at worker-1:9: connect: connection refused", "gave up after 2s")
}

// A node that waits for itself says so at once, also where its caller throws away what it says as DeepSpeed does, and soon gives up: its sshd is not to come.
func TestSSHToItself(t *testing.T) {
	s := openPods(t)
	seen := s.pod(0, nil, "ssh", "worker-0", "hostname")
	s.pod(0, nil, "/usr/bin/python3", "-c", "from subprocess import DEVNULL, call\n"+
		"print('code', call('ssh -o PasswordAuthentication=no worker-0 hostname'.split(), stderr=DEVNULL, stdout=DEVNULL))").
		ends(0, "ssh: waiting for worker-0 at worker-0:22: connect: connection refused", "code 255")
	seen.ends(255, "worker-0 is this node, where nobody runs sshd: start a link of that name to muster on it, too")
}

// Who has no secret does not serve, and a private key that ssh would not let in is none.
func TestNoSecret(t *testing.T) {
	s := openPods(t)
	s.pod(1, []string{"HOME=/nowhere"}, "sshd", "-D").ends(255, "no secret that the job's nodes share", "openssl rand -hex 32")
	s.write("home/.ssh/authorized_keys", "ssh-rsa AAAAB3 somebody\n")
	s.pod(1, nil, "sshd", "-D").ends(255, "no secret that the job's nodes share", "opens nothing here", "authorized_keys does not have")
}

// Whoever dies, or whose machine is gone, takes along what runs for him: with what that orphaned.
func TestSSHLost(t *testing.T) {
	s := openPods(t)
	there := s.pod(1, nil, "sshd", "-De")
	there.says("listening on port 22 ")
	here := s.pod(0, nil, "ssh", "worker-1", "(setsid sleep 1001 &) ; setsid sleep 1002 & echo up; wait")
	here.says("up")
	here.cmd.Process.Kill()
	there.says("the connection was lost; the command was stopped")
	s.pod(0, nil, "ssh", "worker-1", "ps -eo args | grep -c '[s]leep 100'").ends(1, "0\n")
}

// mpirun of Open MPI, and of MPICH, make a world over two containers: each is told so by MPI itself.
func TestMPI(t *testing.T) {
	s := openPods(t)
	s.write("mpi.py", "from mpi4py import MPI; import socket\nw = MPI.COMM_WORLD\nnames = w.allgather(socket.gethostname())\n"+
		"assert w.size == 4 and sorted(names) == ['worker-0', 'worker-0', 'worker-1', 'worker-1'], names\nassert w.allreduce(w.rank + 1) == 10\nif w.rank == 0: print('size', w.size)\n")
	s.write("hostfile", "worker-0 slots=2\nworker-1 slots=2\n")
	s.write("a.c", mpichProgram)
	there := s.pod(1, []string{"K_MPI_JOB_ROLE=worker"}, "sshd", "-De")
	vars := []string{"K_MPI_JOB_ROLE=launcher", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_orte_keep_fqdn_hostnames=true",
		"OMPI_MCA_orte_default_hostfile=" + s.dir + "/hostfile", "OMPI_MCA_plm_rsh_args=-o ConnectionAttempts=10", "OMPI_MCA_btl_vader_single_copy_mechanism=none"}
	s.pod(0, vars, "mpirun.openmpi", "-n", "4", "/usr/bin/python3", s.dir+"/mpi.py").ends(0, "size 4\n")
	s.pod(0, vars, "mpirun.openmpi", "-n", "4", "/usr/bin/python3", "-c",
		"from mpi4py import MPI; import os\nif MPI.COMM_WORLD.rank == 3: os._exit(9)\nMPI.COMM_WORLD.Barrier()").ends(9)
	if out, err := exec.Command("mpicc.mpich", "-o", s.dir+"/a.out", s.dir+"/a.c").CombinedOutput(); err != nil {
		t.Fatalf("mpicc.mpich: %v: %s", err, out)
	}
	hydra := []string{"mpiexec.hydra", "-launcher", "ssh", "-hosts", "worker-0:2,worker-1:2", "-n", "4"}
	world := s.pod(0, nil, append(hydra, s.dir+"/a.out")...)
	world.says("size 4, sum 10\n")
	world.cmd.Process.Kill() // on a busy machine MPICH 4.0 may stay in MPI_Finalize: a rank that closes its connections over UCX waits for one that looks no more
	// of a rank that fails it tells all nodes, and ends with 255 if one has ended by then: the others of each live for a moment
	one := `trap "" USR1; [ "$PMI_RANK" = 3 ] && exit 3; sleep 1`
	s.pod(0, nil, append(hydra, "-disable-auto-cleanup", "sh", "-c", one)...).ends(3)
	if strings.Contains(there.out.String(), "refused") {
		t.Error(there.out.String())
	}
}

const mpichProgram = `#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
	int rank, size, one, sum;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	one = rank + 1;
	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0) printf("size %d, sum %d\n", size, sum);
	MPI_Finalize();
	return size == 4 && sum == 10 ? 0 : 1;
}
`

// T9k's DeepSpeedJob: the containers run sshd, and the first one deepspeed. It tells the others, who have neither the hostfile
// nor .deepspeed_env, and all train in one world.
func TestDeepspeedJob(t *testing.T) {
	s := openPods(t)
	s.write("train.py", "import os, socket, sys, torch.distributed as d\nd.init_process_group('gloo')\nnames = [None] * 4\nd.all_gather_object(names, (d.get_rank(), socket.gethostname(), os.environ['FROM_FILE']))\n"+
		"assert d.get_world_size() == 4 == int(os.environ['WORLD_SIZE']), d.get_world_size()\n"+
		"assert sys.argv[1:] == ['--local_rank=' + os.environ['LOCAL_RANK'], '--x', 'a b'], sys.argv\n"+
		"if d.get_rank() == 3: print(names)\nd.barrier()\nsys.exit(int(os.environ.get('NCCL_END', '0')) if d.get_rank() == 2 else 0)\n")
	own := filepath.Join(s.dir, "own") // worker-0 alone has it
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	there := s.pod(1, nil, "sh", "-euc", "mount -t tmpfs none "+own+"; exec sshd -De")
	there.says("listening")
	s.write("own/hostfile", "worker-0 slots=2\nworker-1 slots=2\n")
	s.write("own/env", "FROM_FILE=yes\n")
	vars := []string{"PYTHON_EXEC=" + python(t, "debian"), "DS_ENV_FILE=" + own + "/env"}
	job := []string{"deepspeed", "--hostfile", own + "/hostfile", "train.py", "--x", "a b"}
	s.pod(0, vars, job...).ends(0, "[rank 3] [(0, 'worker-0', 'yes'), (1, 'worker-0', 'yes'), (2, 'worker-1', 'yes'), (3, 'worker-1', 'yes')]")
	s.pod(0, append(vars, "NCCL_END=9"), job...).ends(9, "rank 2 on worker-1", "exit 9")
	s.pod(0, vars, append([]string{"deepspeed", "--include", "worker-1"}, job[1:]...)...).ends(1, "the job is to run without it", " on worker-1 (node 0, ")
	s.write("own/one", "worker-1 slots=2\n") // as mpi-operator's launcher has it
	s.pod(0, append(vars, "K_MPI_JOB_ROLE=launcher"), "deepspeed", "--hostfile", own+"/one", "--no_python", "--no_local_rank", "hostname").
		ends(0, "which only starts the others", "[rank 0] worker-1\n", "[rank 1] worker-1\n")
	s.pod(0, append(vars, "HOME=/nowhere", "MUSTER_NO_SSH=on"), job...).ends(2, "worker-1 are to be told what to run, and there is no secret")
}

// DeepSpeed's tuner is the real one, here a script in its place. It runs on the first node, without ssh, and each job that it starts by the name of deepspeed
// is muster's, on all nodes.
func TestAutotuning(t *testing.T) {
	s := openPods(t)
	s.write("hostfile", "worker-0 slots=2\nworker-1 slots=2\n")
	s.write("python", "#!/bin/sh\necho \"tuner: $*\"\npdsh -f 1024 -w worker-0,worker-1 pkill -f trial || exit 9\n"+
		"deepspeed --hostfile hostfile --include worker-0:0@worker-1:0,1 --no_python --no_local_rank sh -c 'echo $RANK of $WORLD_SIZE on $(hostname)' || exit 8\nexit 5\n")
	if err := os.Chmod(filepath.Join(s.dir, "python"), 0o700); err != nil {
		t.Fatal(err)
	}
	vars := []string{"PYTHON_EXEC=" + s.dir + "/python"}
	job := []string{"deepspeed", "--hostfile", "hostfile", "--autotuning", "run", "train.py", "--deepspeed_config", "a b"}
	s.pod(1, nil, "sshd", "-De").says("listening")
	s.pod(0, vars, job...).ends(5, "tuner: -m deepspeed.launcher.runner --no_ssh_check --master_addr=worker-0 --hostfile hostfile --autotuning run train.py --deepspeed_config a b\n",
		"[rank 0] 0 of 3 on worker-0\n", "[rank 2] 2 of 3 on worker-1\n")
	s.pod(0, append(vars, "MUSTER_NO_SSH=off"), job...).ends(2, "MUSTER_NO_SSH=off says that somebody else does")
	s.pod(0, vars, append([]string{"muster", "env"}, job...)...).ends(2, "leave it out, to see what one is like")
	s.pod(0, vars, "deepspeed", "--hostfile", "hostfile", "--node_rank", "1", "--autotuning", "tune", "train.py").ends(2, "on the first node alone")
}

// What is read to understand it is a text, whatever its length; a program is not read whole.
func TestReadSmall(t *testing.T) {
	for text, want := range map[string]string{"": "", "#!": "#!", "#!/bin/sh\ntorchrun a.py\n": "#!/bin/sh\ntorchrun a.py\n", "\x7fELF\x02": "is a program"} {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		got, err := readSmall(path)
		if err == nil && string(got) != want || err != nil && !strings.HasSuffix(err.Error(), want) || err != nil && want == text {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}
