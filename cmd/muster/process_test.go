package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/test/freeport"
)

// processTraining asserts what a script of PyTorch reads of its place, where argv says world, node, nodes, rank on the node and size of that.
const processTraining = `
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(1) * dist.get_rank()
dist.all_reduce(x)
seen = dict(world=dist.get_world_size(), rank=dist.get_rank(), sum=int(x.item()), local=int(os.environ["LOCAL_RANK"]), locals=int(os.environ["LOCAL_WORLD_SIZE"]),
    node=int(os.environ["GROUP_RANK"]), nodes=int(os.environ["GROUP_WORLD_SIZE"]), omp=os.environ.get("OMP_NUM_THREADS"))
print("trained", " ".join(f"{k} {v}" for k, v in seen.items()))
`

// srun is what Slurm tells a task of a step: of these nodes, each with so many tasks.
func srun(job, nodes, each, task int) []string {
	return []string{
		fmt.Sprint("SLURM_JOB_ID=", job), "SLURM_STEP_ID=0", fmt.Sprint("SLURM_JOB_NUM_NODES=", nodes), fmt.Sprint("SLURM_NTASKS=", nodes*each),
		fmt.Sprintf("SLURM_STEP_NODELIST=worker-[0-%d]", nodes-1), fmt.Sprint("SLURM_STEP_NUM_NODES=", nodes), fmt.Sprint("SLURM_STEP_NUM_TASKS=", nodes*each),
		fmt.Sprintf("SLURM_STEP_TASKS_PER_NODE=%d(x%d)", each, nodes), fmt.Sprint("SLURM_PROCID=", task), fmt.Sprint("SLURM_LOCALID=", task%each),
		fmt.Sprint("SLURM_NODEID=", task/each), fmt.Sprint("SLURMD_NODENAME=worker-", task/each), "SLURM_DISTRIBUTION=block",
		// what enroot's hook adds for images of PyTorch
		"MASTER_ADDR=worker-0", "MASTER_PORT=61991", fmt.Sprint("WORLD_SIZE=", nodes*each), fmt.Sprint("RANK=", task), fmt.Sprint("LOCAL_RANK=", task%each),
	}
}

// srun with a task for each GPU: each agent has one worker, and these know of the machines on which they are. Two steps share the machines.
func TestSrunOfTasks(t *testing.T) {
	s := openPods(t)
	s.write("train.py", strings.TrimSpace(processTraining))
	exe := "PYTHON_EXEC=" + python(t, "debian")
	var all [2][]*program
	for task := range 4 {
		for step := range all {
			all[step] = append(all[step], s.pod(task/2, append(srun(7+step, 2, 2, task), exe), "muster", "run", "train.py"))
		}
	}
	for _, step := range all {
		for task, p := range step {
			p.ends(0, fmt.Sprintf("trained world 4 rank %d sum 6 local %d locals 2 node %d nodes 2 omp 1\n", task, task%2, task/2))
		}
	}
}

// A step on one machine needs no name of it.
func TestSrunOfTasksOnOneMachine(t *testing.T) {
	t.Parallel()
	var all [2][]*program
	for task := range 3 {
		for step := range all {
			vars := append(srun(70+step, 1, 3, task), "SLURM_STEP_NODELIST=not-in-dns", "SLURMD_NODENAME=not-in-dns", "HOSTNAME=not-in-dns")
			all[step] = append(all[step], startProgram(t, t.TempDir(), vars, "unshare", "-u", "sh", "-c", `hostname not-in-dns; exec "$@"`, "sh", executable(t), "run", "--",
				"sh", "-c", "echo rank $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, node $GROUP_RANK of $GROUP_WORLD_SIZE at $MASTER_ADDR"))
		}
	}
	for _, step := range all {
		for task, p := range step {
			p.ends(0, fmt.Sprintf("rank %[1]d of 3, %[1]d of 3, node 0 of 1 at 127.0.0.1\n", task))
		}
	}
}

// What is said of whole nodes is refused, and what says the same is not; machines that are called alike are found out.
func TestSrunOfTasksAndFlags(t *testing.T) {
	t.Parallel()
	task := func(number int, flags string, vars ...string) *program {
		return startProgram(t, t.TempDir(), append(srun(9, 1, 2, number), vars...), append([]string{"unshare", "-u", "sh", "-c", `hostname worker-0; exec "$@"`, "sh", executable(t), "run"},
			append(strings.Fields(flags), "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE")...)...)
	}
	task(1, "--nproc-per-node 2").ends(2, "--nproc-per-node 2, but this is process 1 of 2, each with a muster of its own", "srun --ntasks-per-node 1")
	task(1, "--node-rank 1").ends(2, "--node-rank 1, but this is process 1 of 2", "on node 0")
	task(1, "--spares 1").ends(2, "--spares 1, but this is process 1 of 2")
	task(1, "--framework mpi").ends(2, "--framework mpi, but this is process 1 of 2")
	task(1, "", "SLURM_PROCID=2").ends(2, "this is process 2 of 2")
	task(1, "--standalone").ends(0, "rank 0 of 1\n")
	torchrun := append([]string{"unshare", "-u", "sh", "-c", `hostname worker-1; exec "$@"`, "sh", executable(t), "torchrun"}, strings.Fields("--nnodes=1 --nproc-per-node=2 --no-python true")...)
	startProgram(t, t.TempDir(), srun(9, 2, 2, 3), torchrun...).ends(2, "--nnodes 1, but the platform says that this is process 3 of 4 on 2 nodes")
	same := []*program{task(0, "--nnodes 1 --nproc-per-node 1 --node-rank 0"), task(1, "--nnodes 1")}
	for number, p := range same {
		p.ends(0, fmt.Sprintf("rank %d of 2\n", number))
	}
	alike := []*program{task(0, "--join-timeout 1m"), task(1, "--join-timeout 1m", "SLURM_LOCALID=0")}
	for _, p := range alike {
		p.ends(67, "the platform says that this is process 0 of its machine, but of the 2 on machines called worker-0 it is number 1")
	}
}

// Open MPI's mpirun starts an agent for each process, on this machine without more words, on several where somebody says where process 0 is.
func TestMpirunOfAgents(t *testing.T) {
	s := openPods(t)
	s.write("train.py", strings.TrimSpace(processTraining))
	s.write("hostfile", "worker-0 slots=2\nworker-1 slots=2\n")
	s.pod(1, []string{"K_MPI_JOB_ROLE=worker"}, "sshd", "-De")
	vars := []string{"PYTHON_EXEC=" + python(t, "debian"), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_plm_rsh_args=-o ConnectionAttempts=10"}
	s.pod(0, vars, "mpirun.openmpi", "--oversubscribe", "-n", "2", "muster", "run", "train.py").
		ends(0, "trained world 2 rank 0 sum 1 local 0 locals 2 node 0 nodes 1 omp 1\n", "trained world 2 rank 1 sum 1 local 1 locals 2 node 0 nodes 1 omp 1\n")
	var jobs []*program // of containers on the machine's network, in which mpirun has one number, and so one name for the job
	for range 2 {
		jobs = append(jobs, s.pod(0, vars, "mpirun.openmpi", "--oversubscribe", "-n", "2", "muster", "run", "--", "sh", "-c", "echo $PMIX_NAMESPACE at rank $RANK of $WORLD_SIZE; sleep 2"))
	}
	for _, p := range jobs {
		p.ends(0, " at rank 0 of 2\n", " at rank 1 of 2\n")
	}
	two := s.pod(0, append(vars, "K_MPI_JOB_ROLE=launcher", "MASTER_ADDR=worker-0"), "mpirun.openmpi", "--hostfile", s.dir+"/hostfile", "-x", "MASTER_ADDR", "-x", "PYTHON_EXEC", "-n", "4", "muster", "run", s.dir+"/train.py")
	two.ends(0)
	for rank := range 4 {
		two.says(fmt.Sprintf("trained world 4 rank %d sum 6 local %d locals 2 node %d nodes 2 omp 1\n", rank, rank%2, rank/2))
	}
	s.pod(0, vars, "mpirun.openmpi", "--hostfile", s.dir+"/hostfile", "-n", "4", "muster", "run", s.dir+"/train.py").
		ends(2, "of 4, but nothing says where they meet: say --rdzv-endpoint HOST:PORT")
}

// An MPI launcher does not tell the only process of a machine that others have several: they do not make a world.
func TestMpirunOfUnevenMachines(t *testing.T) {
	t.Parallel()
	endpoint := fmt.Sprintf("127.0.0.1:%d", freeport.Take(t))
	var all []*program
	for rank, place := range []string{"0 2 w0", "1 2 w0", "0 1 w1"} {
		if rank == 2 { // who comes when they are refused finds nobody any more
			all[0].says("2 of 3 nodes here")
		}
		at := strings.Fields(place)
		vars := []string{"OMPI_COMM_WORLD_SIZE=3", fmt.Sprint("OMPI_COMM_WORLD_RANK=", rank), "OMPI_COMM_WORLD_LOCAL_RANK=" + at[0], "OMPI_COMM_WORLD_LOCAL_SIZE=" + at[1]}
		all = append(all, startProgram(t, t.TempDir(), vars, "unshare", "-u", "sh", "-c", `hostname "$1"; shift; exec "$@"`, "sh", at[2], executable(t), "run", "--rdzv-endpoint", endpoint, "--nproc-per-node", "1", "--", "true"))
	}
	for _, p := range all {
		p.ends(67, "was started for one of several processes on its machine, w1 (node 2), the only one on its own, for all workers there")
	}
}

// On the host's network jobs share machines, and are told the same port, or none. Each is a world of its own, in whatever order their pods start; that which
// had the port ends, and another one, of which a node is lost after that, meets again.
func TestJobsOnOneHost(t *testing.T) {
	s := openPods(t)
	s.write("hosts", "127.0.0.1 localhost\n10.77.0.1 worker-0 a-master-0 b-master-0 c-0.c.ns d-0.d.ns\n10.77.0.2 worker-1\n")
	s.write("train.py", strings.TrimSpace(processTraining)+`
import time
while not os.path.exists(os.environ.get("STAYS", "/")) and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    time.sleep(0.1)
`)
	pod := func(job string, index int, more ...string) *program {
		vars := []string{"PYTHON_EXEC=" + python(t, "debian"), "MUSTER_PARK=no", "MUSTER_NPROC_PER_NODE=2"}
		if job < "c" { // a PyTorchJob
			vars = append(vars, "MASTER_ADDR="+job+"-master-0", "MASTER_PORT=23456", "WORLD_SIZE=2", fmt.Sprint("RANK=", index))
		} else {
			vars = append(vars, fmt.Sprintf("LWS_LEADER_ADDRESS=%[1]s-0.%[1]s.ns", job), "LWS_GROUP_SIZE=2", fmt.Sprint("LWS_WORKER_INDEX=", index))
		}
		return s.pod(index, append(vars, more...), "muster", "run", "train.py")
	}
	trained := func(p *program, index int) {
		for local := range 2 {
			p.says(fmt.Sprintf("trained world 4 rank %d sum 6 local %d locals 2 node %d nodes 2 omp 1\n", 2*index+local, local, index))
		}
	}
	stays := []string{"STAYS=never", "MUSTER_MAX_RESTARTS=1"}
	a0 := pod("a", 0, "STAYS=over")
	a0.says("meeting") // at the port
	b0, b1 := pod("b", 0, stays...), pod("b", 1, stays...)
	trained(b0, 0)
	trained(b1, 1)
	b0.says("port 23456 is another job's, which hands over what calls for this one")
	a1 := pod("a", 1, "STAYS=over")
	trained(a0, 0)
	trained(a1, 1)
	first, err := proc.Root("/proc").Children(b0.cmd.Process.Pid)
	if err != nil || len(first) != 1 {
		t.Fatal(first, err)
	}
	b0.killAgentOf(first[0])
	s.write("over", "")
	a0.ends(0)
	a1.ends(0)
	b1.cmd.Process.Kill()
	<-b1.done
	b1 = pod("b", 1, stays...)
	trained(b1, 1)
	b0.saysTimes("trained world 4 rank 0 ", 2)
	b0.ends(0)
	b1.ends(0)

	d1, c1 := pod("d", 1), pod("c", 1) // who looks for its leader finds another job's
	for index, p := range []*program{pod("c", 0), c1, pod("d", 0), d1} {
		trained(p, index%2)
		p.ends(0)
	}
}

// A job that meets on loopback alone keeps the port for itself: who is told another address of that machine is told that it is taken.
func TestJobsOnLoopbackShareNoPort(t *testing.T) {
	s := openPods(t)
	run := func(job, host string) *program {
		return s.pod(0, nil, "muster", "run", "--nnodes", "2", "--rdzv-id", job, "--rdzv-endpoint", host+":29400", "--", "true")
	}
	run("la", "127.0.0.1").says("1 of 2 nodes here")
	run("lb", "10.77.0.1").ends(job.ExitStranger, "another program holds port 29400")
}
