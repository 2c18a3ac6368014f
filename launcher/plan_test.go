package launcher

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/muster-run/muster/discovery"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/topology"
)

// config is a person's words and an environment, on a machine without GPUs.
func config(t *testing.T, env string, set func(*Config)) Config {
	t.Helper()
	vars := map[string]string{}
	c := Config{Argv: []string{"/bin/true"}, NodeRank: -1, From: map[string]string{}, Root: topology.Root(t.TempDir())}
	for _, kv := range strings.Fields(env) {
		name, value, _ := strings.Cut(kv, "=")
		vars[name] = value
		c.Environ = append(c.Environ, kv)
	}
	c.Host = job.Host{
		Getenv:   func(name string) string { return vars[name] },
		ReadFile: func(string) ([]byte, error) { return nil, fs.ErrNotExist },
		Hostname: "ann",
	}
	if set != nil {
		set(&c)
	}
	return c
}

// tasks is what Slurm tells the last of a step's, of which each of two nodes has two.
const tasks = "SLURM_JOB_ID=5 SLURM_JOB_NUM_NODES=2 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[0-1] SLURM_STEP_NUM_NODES=2 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=4 " +
	"SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_PROCID=3 SLURM_LOCALID=1 SLURM_NODEID=1 SLURMD_NODENAME=ann"

// hydra is what mpiexec of MPICH tells the last of its processes in a step of Slurm's that has one task.
const hydra = "SLURM_JOB_ID=5 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=ann SLURM_STEP_NUM_NODES=1 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_TASKS_PER_NODE=1 SLURM_PROCID=0 " +
	"SLURM_LOCALID=0 SLURM_NODEID=0 SLURMD_NODENAME=ann PMI_SIZE=2 PMI_RANK=1 MPI_LOCALNRANKS=2 MPI_LOCALRANKID=1"

// Flags win over what the platform says, also where the platform's word makes no sense.
func TestPlan(t *testing.T) {
	for _, c := range []struct {
		name string
		env  string
		set  func(*Config)
		want string // nodes index endpoint serve maybe slots
		err  string
	}{
		{"nothing", "", nil, "1 -1 '' false false 1", ""},
		{"platform", "MASTER_ADDR=h MASTER_PORT=7 WORLD_SIZE=2 RANK=0", nil, "2 0 'h:7' true false 1", ""},
		{"platform, another node", "MASTER_ADDR=h MASTER_PORT=7 WORLD_SIZE=2 RANK=1", nil, "2 1 'h:7' false false 1", ""},
		{"a rank for a flag's nodes", "NNODES=2 NODE_RANK=5 MASTER_ADDR=h", func(c *Config) { c.Nodes, c.NodeRank, c.Endpoint = 8, 5, "h:1" },
			"8 5 'h:1' false true 1", ""},
		{"nodes without a place, placed by a flag", "PET_NNODES=2", func(c *Config) { c.Nodes, c.Endpoint = 2, "h:1234" },
			"2 -1 'h:1234' false true 1", ""},
		{"a range, settled by flags", "PET_NNODES=1:4 MASTER_ADDR=h", func(c *Config) { c.Nodes, c.MasterAddr = 4, "h" },
			"4 -1 'h:29400' false true 1", ""},
		{"no number, settled by flags", "MASTER_ADDR=h WORLD_SIZE=x", func(c *Config) { c.Nodes, c.NodeRank, c.MasterAddr = 2, 1, "h" },
			"2 1 'h:29400' false false 1", ""},
		{"no number", "MASTER_ADDR=h WORLD_SIZE=x", nil, "", "WORLD_SIZE=x"},
		{"alone by a flag", "WORLD_SIZE=4", func(c *Config) { c.Nodes = 1 }, "1 -1 '' false false 1", ""},
		{"standalone", "MASTER_ADDR=h WORLD_SIZE=4 RANK=9", func(c *Config) { c.Standalone = true }, "1 -1 '' false false 1", ""},
		{"IPv6", "", func(c *Config) { c.Nodes, c.Endpoint = 2, "[fd00::1]:5" }, "2 -1 '[fd00::1]:5' false true 1", ""},
		{"IPv6 without port", "", func(c *Config) { c.Nodes, c.Endpoint = 2, "fd00::1" }, "2 -1 '[fd00::1]:29400' false true 1", ""},
		{"told to serve", "", func(c *Config) { c.Nodes, c.Endpoint, c.Serve = 2, "h", "yes" }, "2 -1 'h:29400' true false 1", ""},
		{"told not to", "", func(c *Config) { c.Nodes, c.Endpoint, c.Serve = 2, "h", "no" }, "2 -1 'h:29400' false false 1", ""},
		{"a port that goes nowhere", "", func(c *Config) { c.Nodes, c.Endpoint, c.MasterPort = 2, "h", 7 }, "", "--master-port 7 goes with --master-addr"},
		{"every address", "", func(c *Config) { c.Nodes, c.Endpoint = 2, "0.0.0.0:7" }, "", "--rdzv-endpoint 0.0.0.0:7 means every address of a machine"},
		{"every address, IPv6", "", func(c *Config) { c.Nodes, c.MasterAddr = 2, "[::]" }, "", "--master-addr [::] means every address of a machine"},
		{"a host with a line break", "", func(c *Config) { c.Nodes, c.MasterAddr = 2, "h\n" }, "", "is no host name"},
		{"a port in the wrong place", "", func(c *Config) { c.Nodes, c.MasterAddr = 2, "h:7" }, "", "--master-addr h:7 is no host name"},
		{"an address of this node that is none", "", func(c *Config) { c.Nodes, c.Endpoint, c.LocalAddr = 2, "h", "0.0.0.0" }, "", "--local-addr 0.0.0.0 means every"},
		{"one spelling", "", func(c *Config) { c.Nodes, c.Endpoint = 2, "Ann.:7" }, "2 -1 'ann:7' false true 1", ""},
		{"a variable is named", "", func(c *Config) {
			c.Nodes, c.Endpoint, c.From = 2, "h:0", map[string]string{"rdzv-endpoint": "MUSTER_RDZV_ENDPOINT"}
		}, "", "MUSTER_RDZV_ENDPOINT=h:0 has no port"},
		{"a number of workers from torchrun's variable", "PET_NPROC_PER_NODE=x", nil, "", "PET_NPROC_PER_NODE=x is no number of workers"},
		{"and a flag over it", "PET_NPROC_PER_NODE=x", func(c *Config) { c.NProc = "2" }, "1 -1 '' false false 2", ""},
		{"an id without end", "PET_RDZV_ID=" + strings.Repeat("x", 300), nil, "", `PET_RDZV_ID="xxx`},
		{"a number of workers in a variable", "", func(c *Config) { c.NProc, c.From = "0", map[string]string{"nproc-per-node": "MUSTER_NPROC_PER_NODE"} },
			"", "MUSTER_NPROC_PER_NODE=0 is no number of workers"},
		{"a token", "MUSTER_TOKEN=0123456789abcdef", nil, "1 -1 '' false false 1", ""},
		{"a short token", "MUSTER_TOKEN=secret", nil, "", "the job's token, from MUSTER_TOKEN: it has 6 bytes, and may have 16 to 4096"},
		{"two tokens", "MUSTER_TOKEN=0123456789abcdef", func(c *Config) { c.TokenFile = "/x" }, "", "--token-file and MUSTER_TOKEN: both are given"},
		{"a token that is not there", "", func(c *Config) { c.TokenFile = "/not/there" }, "", "from --token-file /not/there: open /not/there: no such file"},
		{"a token without end", "", func(c *Config) { c.TokenFile = "/dev/zero" }, "", "from --token-file /dev/zero: it is no regular file"},
		{"one port for two things", "", func(c *Config) { c.Nodes, c.Endpoint, c.WorkerPort = 2, "h:7", 7 },
			"", "--worker-port 7 is also where the nodes meet (--rdzv-endpoint h:7)"},
		{"one port for two things, by default", "MASTER_ADDR=h WORLD_SIZE=2", func(c *Config) { c.WorkerPort = DefaultPort },
			"", "--worker-port 29400 is also where the nodes meet (WORLD_SIZE=2, MASTER_ADDR=h)"},
		{"a number beyond the last", "MASTER_ADDR=h WORLD_SIZE=2", func(c *Config) { c.NodeRank = 2 }, "", "--node-rank 2, but the nodes are 2"},
		{"etcd", "", func(c *Config) { c.Nodes, c.Endpoint, c.JobID = 2, "etcd://H1,h2:7", "j" }, "2 -1 'h1:2379,h2:7' false false 1", ""},
		{"etcd by a flag of its own", "", func(c *Config) { c.Nodes, c.Endpoint, c.Backend, c.JobID = 2, "https://h1", "etcd", "j" }, "2 -1 'https://h1:2379' false false 1", ""},
		{"etcd by the platform", "PET_NNODES=2 PET_RDZV_ENDPOINT=h1:7 PET_RDZV_BACKEND=etcd PET_RDZV_ID=j MASTER_ADDR=m", nil, "2 -1 'h1:7' false false 1", ""},
		{"the platform's etcd, elsewhere", "PET_NNODES=2 PET_RDZV_ENDPOINT=h1:7 PET_RDZV_BACKEND=etcd PET_RDZV_ID=j", func(c *Config) { c.Endpoint = "h2" }, "2 -1 'h2:2379' false false 1", ""},
		{"the platform's etcd, left aside", "PET_NNODES=2 PET_RDZV_ENDPOINT=h1:7 PET_RDZV_BACKEND=etcd", func(c *Config) { c.MasterAddr = "m" }, "2 -1 'm:29400' false true 1", ""},
		{"c10d in place of the platform's etcd", "PET_NNODES=2 PET_RDZV_ENDPOINT=h1:7 PET_RDZV_BACKEND=etcd", func(c *Config) { c.Endpoint, c.Backend = "h2", "c10d" }, "2 -1 'h2:29400' false true 1", ""},
		{"etcd for a node alone", "", func(c *Config) { c.Nodes, c.Endpoint = 1, "etcd://h1" }, "1 -1 '' false false 1", ""},
		{"etcd without a name of the job", "", func(c *Config) { c.Nodes, c.Endpoint = 2, "etcd://h1" }, "", "many jobs may meet in one etcd"},
		{"counts without a name of the job", "", func(c *Config) { c.StateDir = "/d" }, "", "--state-dir /d keeps the counts of many jobs"},
		{"where they meet, by a flag", "PET_NNODES=1:3", func(c *Config) { c.Endpoint = "h" }, "3 -1 'h:29400' false true 1", ""},
		{"where they meet, by a flag, but a wrong number", "PET_NNODES=1:3 PET_NODE_RANK=x", func(c *Config) { c.Endpoint = "h" }, "", "PET_NODE_RANK=x is not a whole number"},
		{"where they meet, by nothing", "PET_NNODES=1:3", nil, "", "pet: 3 nodes, but nothing says where they meet (PET_NNODES=1:3): say"},
		{"etcd that is nowhere", "", func(c *Config) { c.Nodes, c.Backend, c.JobID = 2, "etcd", "j" }, "", "--rdzv-backend etcd, but nothing says where it is"},
		{"etcd and a master", "", func(c *Config) { c.Nodes, c.Backend, c.MasterAddr = 2, "etcd", "m" }, "", "--master-addr m, but with etcd no node hosts"},
		{"etcd that is to be hosted", "", func(c *Config) { c.Nodes, c.Endpoint, c.Serve = 2, "etcd://h1", "yes" }, "", "--serve yes, but with etcd no node hosts"},
		{"etcd and c10d", "", func(c *Config) { c.Nodes, c.Endpoint, c.Backend = 2, "etcd://h1", "c10d" }, "", "--rdzv-endpoint etcd://h1 is no endpoint for --rdzv-backend c10d"},
		{"etcd that is none", "", func(c *Config) { c.Nodes, c.Endpoint = 2, "etcd://h1:x" }, "", "--rdzv-endpoint etcd://h1:x has no port"},
		{"a port of the framework's own", "COORDINATOR_ADDRESS=j-worker-0 COORDINATOR_PORT=6666 NUM_PROCESSES=2 PROCESS_ID=0", nil, "2 0 'j-worker-0:28274' true false 1", ""},
		{"the same from another node", "COORDINATOR_ADDRESS=j-worker-0 COORDINATOR_PORT=6666 NUM_PROCESSES=2 PROCESS_ID=1", nil, "2 1 'j-worker-0:28274' false false 1", ""},
		{"a range, with the pod's number", "KUBERNETES_SERVICE_HOST=k MASTER_ADDR=a-master-0 MASTER_PORT=5 WORLD_SIZE=3 RANK=2 PET_NNODES=2:4 PET_RDZV_ENDPOINT=a-worker-0:5", nil,
			"4 2 'a-worker-0:5' false true 1", ""},
		{"no part in it", "K_MPI_JOB_ROLE=worker", nil, "", "mpi-worker: a worker of an MPI job is started by its launcher"},
		{"no part in it, but flags", "K_MPI_JOB_ROLE=worker", func(c *Config) { c.Nodes, c.Endpoint = 2, "h" }, "2 -1 'h:29400' false true 1", ""},
		{"one of several by flags, where each is the platform's whole job", "LWS_LEADER_ADDRESS=llm-3.llm.ns LWS_GROUP_SIZE=1 LWS_WORKER_INDEX=0", func(c *Config) { c.Nodes, c.Endpoint = 4, "h:1" },
			"4 -1 'h:1' false true 1", ""},
		{"a worker already", "TORCHELASTIC_RUN_ID=x LOCAL_RANK=1 GROUP_RANK=0 RANK=1 WORLD_SIZE=8 MASTER_ADDR=a", nil, "", "nested: another launcher started this process"},
		{"a task for each GPU", "OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_LOCAL_RANK=1", nil, "", "mpirun: this is process 5 of 8, but nothing says where they meet"},
		{"an index without a number of nodes", "JOB_COMPLETION_INDEX=1", nil, "", "need MUSTER_NNODES"},
		{"an index, and a flag", "JOB_COMPLETION_INDEX=1", func(c *Config) { c.Nodes, c.Endpoint = 2, "h" }, "2 1 'h:29400' false true 1", ""},
		{"two that disagree", "LWS_LEADER_ADDRESS=l-0 LWS_GROUP_SIZE=4 LWS_WORKER_INDEX=2 NNODES=3 NODE_RANK=2 MASTER_ADDR=b", nil, "", "lws says this is node 2 of 4"},
		{"an evaluator, with the flags of those who train", `TF_CONFIG={"cluster":{"chief":["a:2"],"worker":["b:2"],"evaluator":["c:2"]},"task":{"type":"evaluator","index":0}}`, func(c *Config) { c.NProc = "2" },
			"1 -1 '' false false 1", ""},
		{"a number of processes", tasks, func(c *Config) { c.Nodes, c.Endpoint = 4, "h" }, "4 3 'h:29400' false true 1", ""},
		{"and the process's", tasks, func(c *Config) { c.Nodes, c.Endpoint, c.NodeRank = 4, "h", 3 }, "4 3 'h:29400' false true 1", ""},
		{"and another one's", tasks, func(c *Config) { c.Nodes, c.Endpoint, c.NodeRank = 4, "h", 1 }, "", "--node-rank 1, but this is process 3 of 4"},
		{"and a node's workers", tasks, func(c *Config) { c.Nodes, c.Endpoint, c.NProc = 4, "h", "2" }, "", "--nproc-per-node 2, but this is process 3 of 4"},
		{"a number of machines and the node's", tasks, func(c *Config) { c.Nodes, c.NodeRank = 2, 1 }, "4 3 'n0:29828' false false 1", ""},
		{"neither processes nor machines", tasks, func(c *Config) { c.Nodes, c.Endpoint = 8, "h" }, "", "--nnodes 8, but the platform says that this is process 3 of 4 on 2 nodes"},
		{"a range of nodes, and processes", tasks, func(c *Config) { c.Least, c.Nodes, c.Endpoint = 2, 4, "h" }, "", "--nnodes 2:4, but the platform says that this is process 3 of 4"},
		{"each alone, by muster's own flag", tasks, func(c *Config) { c.Nodes = 1 }, "1 -1 '' false false 1", ""},
		{"each alone, by another launcher's", tasks, func(c *Config) { c.Nodes, c.NProc, c.Dialect.Command = 1, "2", []string{"true"} },
			"", "--nnodes 1, but the platform says that this is process 3 of 4 on 2 nodes"},
		{"the same beside mpiexec", "PMI_SIZE=2 PMI_RANK=1 MPI_LOCALNRANKS=2 MPI_LOCALRANKID=1", func(c *Config) { c.Nodes, c.Dialect.Command = 1, []string{"true"} },
			"", "--nnodes 1, but the platform says that this is process 1 of 2"},
		{"one of two mpiexec in a step", hydra, nil, "", "this is process 1 of 2, and a launcher that has no name for its job started it: say --rdzv-endpoint HOST:PORT"},
		{"and a name for it", hydra, func(c *Config) { c.JobID = "a" }, "2 1 '127.0.0.1:29828' false false 1", ""},
		{"three workers", "", func(c *Config) { c.NProc = "3" }, "1 -1 '' false false 3", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := NewPlan(config(t, c.env, c.set))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || ExitCode(err) != job.ExitUsage {
					t.Fatalf("%v (exit %d), want %q", err, ExitCode(err), c.err)
				}
				return
			}
			got := fmt.Sprintf("%d %d '%s' %v %v %d", p.Spec.Nodes, p.Spec.Self.Index, p.Endpoint, p.Serve, p.MayServe, p.Spec.Self.Slots)
			if err != nil || got != c.want {
				t.Errorf("%s, %v; want %s", got, err, c.want)
			}
		})
	}
}

// Two jobs without a name do not merge, and all nodes of one job have the same.
func TestJobID(t *testing.T) {
	id := func(endpoint string) string {
		p, err := NewPlan(config(t, "", func(c *Config) { c.Nodes, c.Endpoint = 2, endpoint }))
		if err != nil {
			t.Fatal(err)
		}
		return p.Spec.ID
	}
	if p, err := NewPlan(config(t, "PET_RDZV_ID=j1", nil)); err != nil || p.Spec.ID != "j1" {
		t.Errorf("PET_RDZV_ID alone: %q, %v", p.Spec.ID, err)
	}
	a, same, other := id("h:1"), id("H.:1"), id("h:2")
	if a != same || a == other || a == "none" {
		t.Errorf("%s %s %s", a, same, other)
	}
	for _, env := range []string{"LWS_LEADER_ADDRESS=llm-3.llm.ns LWS_GROUP_SIZE=1 LWS_WORKER_INDEX=0", "AWS_BATCH_JOB_NUM_NODES=1 AWS_BATCH_JOB_NODE_INDEX=0 AWS_BATCH_JOB_MAIN_NODE_INDEX=0 AWS_BATCH_JOB_ID=x AWS_BATCH_JOB_ATTEMPT=2",
		"SLURM_JOB_ID=5 SLURM_STEP_ID=3 SLURM_STEP_NODELIST=ann SLURM_STEP_NUM_NODES=1 SLURM_STEP_TASKS_PER_NODE=1 SLURM_PROCID=0 SLURM_NODEID=0"} {
		p, err := NewPlan(config(t, env, func(c *Config) { c.Nodes, c.Endpoint = 2, "h:1" })) // which is a job of its own to the platform
		if err != nil || p.Spec.ID != a || p.Spec.Self.Index != -1 {
			t.Errorf("%s: %s %d, %v", env, p.Spec.ID, p.Spec.Self.Index, err)
		}
	}
}

// Another attempt at a job is another one to those who meet, where all its nodes are told the same number, and the same to the count of its restarts.
func TestJobIDOfAttempt(t *testing.T) {
	const step = "SLURM_JOB_ID=5 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[0-1] SLURM_STEP_NUM_NODES=2 SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_PROCID=1 SLURM_LOCALID=0 SLURM_NODEID=1 SLURMD_NODENAME=ann"
	for _, c := range []struct {
		env  string
		set  func(*Config)
		want string
	}{
		{step, nil, "5.0 5.0"},
		{step + " SLURM_RESTART_COUNT=0", nil, "5.0 5.0"},
		{step + " SLURM_RESTART_COUNT=2", nil, "5.0#2 5.0"},
		{step + " SLURM_RESTART_COUNT=2", func(c *Config) { c.JobID = "mine" }, "mine mine"}, // perhaps of several of Slurm's jobs
		{step, func(c *Config) { c.Attempt, c.JobID = 3, "mine" }, "mine#3 mine"},
		{step + " SLURM_RESTART_COUNT=2", func(c *Config) { c.From["attempt"] = "--attempt" }, "5.0 5.0"},
		{"LEPTON_JOB_TOTAL_WORKERS=2 LEPTON_JOB_WORKER_INDEX=1 LEPTON_JOB_WORKER_PREFIX=w LEPTON_JOB_NAME=j LEPTON_JOB_FAILURE_COUNT=2", nil, "j j"},
	} {
		p, err := NewPlan(config(t, c.env, c.set))
		if got := p.Spec.ID + " " + p.Called; err != nil || p.Name != p.Called || got != c.want {
			t.Errorf("%s: %s, %v; want %s", c.env, got, err, c.want)
		}
	}
}

// What muster discover shows is the id that muster run has.
func TestMeets(t *testing.T) {
	for _, env := range []string{
		"MASTER_ADDR=m MASTER_PORT=1 WORLD_SIZE=2 RANK=1", "MASTER_ADDR=m WORLD_SIZE=2 RANK=1 PET_RDZV_ID=j MUSTER_ATTEMPT=3",
		"SLURM_JOB_ID=7 SLURM_STEP_ID=2 SLURM_PROCID=0 SLURM_NODEID=0 SLURM_LOCALID=0 SLURM_STEP_NODELIST=ann,bob SLURM_STEP_NUM_NODES=2 SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_RESTART_COUNT=1",
		"FLUX_JOB_ID=f FLUX_JOB_SIZE=4 FLUX_JOB_NNODES=1 FLUX_TASK_RANK=1 FLUX_TASK_LOCAL_ID=1",
		"COORDINATOR_ADDRESS=j-worker-0 COORDINATOR_PORT=6666 NUM_PROCESSES=2 PROCESS_ID=1",
	} {
		c := config(t, env, nil)
		p, err := NewPlan(c)
		if id := Meets(discovery.Detect(c.Host)); err != nil || id != p.Spec.ID {
			t.Errorf("%s: %q, not %q, %v", env, id, p.Spec.ID, err)
		}
	}
	for _, env := range []string{"", "WORLD_SIZE=2", "K_MPI_JOB_ROLE=worker"} {
		c := config(t, env, nil)
		if id := Meets(discovery.Detect(c.Host)); id != "" {
			t.Errorf("%s: %q", env, id)
		}
	}
}

// A job is found by its name, with or without namespace and attempt.
func TestCalls(t *testing.T) {
	for _, name := range []string{"a/j#2", "a/j", "j", "j#2"} {
		if !Calls(name, "a/j#2") {
			t.Errorf("%s is not a/j#2", name)
		}
	}
	for _, name := range []string{"j#1", "b/j", "a", "", "2", "a/j#", "i"} {
		if Calls(name, "a/j#2") {
			t.Errorf("%s is a/j#2", name)
		}
	}
	if !Calls("run#x", "run#x") || Calls("run", "run#x") || !Calls("5.0", "5.0#1") {
		t.Error("a name with a mark of its own, or an attempt's")
	}
}

// A name is refused for what it is, whatever else is in the id, and leaves room for the number of an attempt.
func TestNoJobID(t *testing.T) {
	const step = "SLURM_JOB_ID=5 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[0-1] SLURM_STEP_NUM_NODES=2 SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_PROCID=1 SLURM_LOCALID=0 SLURM_NODEID=1 SLURMD_NODENAME=ann"
	for _, c := range []struct {
		name    string
		attempt int
		want    string
	}{
		{"none", 0, `"none" cannot name a job: that is torchrun's word`},
		{"none", 1, `"none" cannot name a job: that is torchrun's word`},
		{strings.Repeat("x", 256), 0, ""},
		{strings.Repeat("x", 257), 0, "it has 257 characters"},
		{strings.Repeat("x", 236), 1, ""},
		{strings.Repeat("x", 237), 1, "it has 237 characters"},
	} {
		_, err := NewPlan(config(t, step, func(f *Config) { f.JobID, f.Attempt = c.name, c.attempt }))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%.10s (%d) in attempt %d: %v, want %q", c.name, len(c.name), c.attempt, err, c.want)
		}
	}
}

// Jobs whose pods have the same names in two namespaces do not merge; an endpoint that a user gave is one everywhere.
func TestJobIDInNamespace(t *testing.T) {
	called := ""
	id := func(namespace, more string, set func(*Config)) string {
		c := config(t, "KUBERNETES_SERVICE_HOST=10.0.0.1 MASTER_ADDR=sdxl-master-0 MASTER_PORT=23456 WORLD_SIZE=2 RANK=1 "+more, set)
		c.Host.ReadFile = func(name string) ([]byte, error) {
			if name == "/etc/resolv.conf" {
				return []byte("search " + namespace + ".svc.cluster.local svc.cluster.local\n"), nil
			}
			return nil, fs.ErrNotExist
		}
		p, err := NewPlan(c)
		if err != nil {
			t.Fatal(err)
		}
		called = p.Called
		return p.Spec.ID
	}
	byHand := func(c *Config) { c.Endpoint = "sdxl-master-0:23456" }
	if a, b := id("a", "", nil), id("b", "", nil); a == b || a != id("a", "", nil) {
		t.Errorf("without a name: %s and %s", a, b)
	}
	if a, b := id("a", "PET_RDZV_ID=j MUSTER_ATTEMPT=3", nil), id("b", "PET_RDZV_ID=j", nil); a != "a/j#3" || b != "b/j" || called != "j" {
		t.Errorf("with one: %s and %s, called %s", a, b, called)
	}
	if a, b := id("a", "", byHand), id("b", "", byHand); a != b {
		t.Errorf("with an endpoint of a user's: %s and %s", a, b)
	}
}

func TestExitCode(t *testing.T) {
	if got := ExitCode(errors.New("x")); got != job.ExitInternal {
		t.Errorf("an error of no kind: %d", got)
	}
	wrapped := fmt.Errorf("wrapped: %w", fail(job.ExitPeers, "", "x"))
	if got := VerdictOf(wrapped); got.Code != job.ExitPeers || got.OK() {
		t.Errorf("%+v", got)
	}
	if got := VerdictOf(fail(job.ExitTERM, "", "x")); got.Class != job.Preempted || got.Origin != "platform" {
		t.Errorf("%+v", got)
	}
}

// What is shown of the stay after success is what happens, by whom it was said.
func TestParkIsShown(t *testing.T) {
	for _, c := range []struct {
		park   string
		midway bool
		again  bool
		parks  bool
		want   string
	}{
		{"auto", false, false, false, ""},
		{"auto", false, true, true, "park as the main process lws starts again what ends"},
		{"auto", true, true, false, "park no not the main process"},
		{"no", false, true, false, "park no --park"},
		{"yes", true, false, true, "park after success --park"},
	} {
		var p Plan
		if err := planPark(Config{Park: c.park, Midway: c.midway}, discovery.Finding{Rule: "lws", Park: c.again}, &p); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, s := range p.Settings {
			got = s.Name + " " + s.Value + " " + s.From
		}
		if got != c.want || p.Park != c.parks {
			t.Errorf("%+v: %v, %q", c, p.Park, got)
		}
	}
}
