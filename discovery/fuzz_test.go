package discovery

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/muster-run/muster/job"
)

// maxFuzz bounds what is tried: what matters is short.
const maxFuzz = 1 << 12

// sound checks what holds of every reading, whatever there was to read.
func sound(t *testing.T, h job.Host) {
	t.Helper()
	f := Detect(h)
	_ = f.Reading(h)
	if f.Problem == nil && f.Nodes > 0 && (f.Rank >= f.Nodes || f.Nodes > job.MaxNodes || f.Least > f.Nodes) {
		t.Fatalf("node %d of %d:%d", f.Rank, f.Least, f.Nodes)
	}
	if f.Port < 0 || f.Port > 65535 {
		t.Fatalf("port %d", f.Port)
	}
	if host, err := Host(f.Host); f.Host != "" && !f.Self && (err != nil || host != f.Host) {
		t.Fatalf("host %q: %q, %v", f.Host, host, err)
	}
	for _, text := range f.Evidence {
		if len(text) > 2*maxEvidence {
			t.Fatalf("evidence of %d bytes", len(text))
		}
	}
}

func bare(env []string, files map[string]string) job.Host {
	all := tree{}
	for name, text := range files {
		all[inside(name)] = text
	}
	return Elsewhere(env, all, "job-worker-1", 8)
}

func FuzzTFConfig(f *testing.F) {
	f.Add(`{"cluster":{"chief":["a:1"],"worker":["b:1"]},"task":{"type":"chief","index":0}}`)
	f.Add(`{"cluster":{"worker":{"3":"d:1"},"ps":["a:1"]},"task":{"type":"worker","index":"3"}}`)
	f.Add(`{"sparseCluster":{"worker":{}},"task":{"type":"ps","index":9}}`)
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) <= maxFuzz {
			sound(t, bare([]string{"TF_CONFIG=" + text}, nil))
		}
	})
}

func FuzzVertex(f *testing.F) {
	f.Add(`{"cluster":{"workerpool0":["a:1"],"workerpool1":["b:1"]},"task":{"type":"workerpool1","index":0}}`)
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) <= maxFuzz {
			sound(t, bare([]string{"CLUSTER_SPEC=workerpool" + text}, nil))
			sound(t, bare([]string{"CLUSTER_SPEC=" + text}, nil))
		}
	})
}

func FuzzHostfile(f *testing.F) {
	f.Add("job-worker-0 slots=8\njob-worker-1 slots=8\n")
	f.Add("a:8\nb:8 # c\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > maxFuzz {
			return
		}
		if all, err := Hostfile(text); err == nil && (len(all) == 0 || len(all) > strings.Count(text, "\n")+1) {
			t.Fatalf("%d hosts in %q", len(all), text)
		}
		sound(t, bare(nil, map[string]string{"/t9k/hostfile": text}))
		sound(t, bare([]string{"K_MPI_JOB_ROLE=launcher"}, map[string]string{mpiHostfile: text}))
		sound(t, bare(nil, map[string]string{determinedInfo: text}))
	})
}

func FuzzNodelist(f *testing.F) {
	for _, text := range []string{"a1", "a[1-3]", "a[01-03,07]", "a[1-2]b[1-2]", "a[1,3],b5", "n[098-101]", "rack[0-1]-n[1-2]", "x[1-2]y", "a[1-99999999]", "a[1-9999][1-9999]"} {
		f.Add(text, "2(x3),1")
	}
	f.Fuzz(func(t *testing.T, text, tasks string) {
		if len(text)+len(tasks) > maxFuzz {
			return
		}
		nodes, err := Nodelist(text)
		if err == nil && (len(nodes) == 0 || len(nodes) > 2*job.MaxNodes) {
			t.Fatalf("%d nodes", len(nodes))
		}
		if len(nodes) > 1000 {
			return // the engine takes what lasts longer than a second for hung
		}
		sound(t, bare([]string{"SLURM_JOB_ID=1", "SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_NODEID=1", "SLURM_STEP_NUM_NODES=2",
			"SLURMD_NODENAME=job-worker-1", "SLURM_STEP_NODELIST=" + text, "SLURM_STEP_TASKS_PER_NODE=" + tasks}, nil))
	})
}

func FuzzSageMaker(f *testing.F) {
	f.Add(`{"current_host":"algo-2","hosts":["algo-1","algo-2"]}`, `["algo-1"]`, "algo-1")
	f.Fuzz(func(t *testing.T, file, hosts, own string) {
		if len(file)+len(hosts)+len(own) <= maxFuzz {
			sound(t, bare(nil, map[string]string{sagemakerConfig: file}))
			sound(t, bare([]string{"SM_HOSTS=" + hosts, "SM_CURRENT_HOST=" + own}, nil))
		}
	})
}

func FuzzVolcano(f *testing.F) {
	f.Add("job-worker-0.job\njob-worker-1.job", "job-worker-0.job,job-worker-1.job", "2", "1")
	f.Fuzz(func(t *testing.T, file, hosts, num, index string) {
		if len(file)+len(hosts)+len(num)+len(index) <= maxFuzz {
			env := []string{"VC_WORKER_HOSTS=" + hosts, "VC_WORKER_NUM=" + num, "VC_TASK_INDEX=" + index, "MASTER_ADDR=" + num, "MPI_HOST=" + index}
			sound(t, bare(env, nil))
			sound(t, bare(env, map[string]string{volcanoDir + "/worker.host": file, volcanoDir + "/ps.host": hosts}))
		}
	})
}

func FuzzEndpoints(f *testing.F) {
	f.Add("10.0.0.1:36000,10.0.0.2:36000", "2", "1", "36543")
	f.Fuzz(func(t *testing.T, list, size, rank, port string) {
		if len(list)+len(size)+len(rank)+len(port) > maxFuzz {
			return
		}
		for _, env := range [][]string{
			{"TRAINING_ROLE=TRAINER", "PADDLE_TRAINER_ID=" + rank, "PADDLE_TRAINERS_NUM=" + size, "PADDLE_TRAINER_ENDPOINTS=" + list, "PADDLE_PORT=" + port},
			{"PADDLE_MASTER=" + list, "PADDLE_NNODES=" + size, "PADDLE_RANK=" + rank},
			{"JAX_COORDINATOR_ADDRESS=" + list, "JAX_NUM_PROCESSES=" + size, "JAX_PROCESS_ID=" + rank},
			{"MASTER_ADDR=" + list, "MASTER_PORT=" + port, "WORLD_SIZE=" + size, "RANK=" + rank, "WORKER_ADDRS=" + list},
			{"PET_RDZV_ENDPOINT=" + list, "PET_NNODES=" + size, "PET_NODE_RANK=" + rank},
			{"CHIEF_IP=" + list, "HOST_NUM=" + size, "INDEX=" + rank, "NODE_IP_LIST=" + list, "LOCAL_IP=" + port},
		} {
			sound(t, bare(env, nil))
		}
	})
}

func FuzzEnv(f *testing.F) {
	f.Add([]byte("A=1\nB=2\nmore\n"))
	f.Add([]byte("A=1\x00B=x\ny\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > maxFuzz {
			return
		}
		for _, kv := range ParseEnv(text) {
			if name, _, ok := strings.Cut(kv, "="); !ok || !isName(name) {
				t.Fatalf("%q", kv)
			}
		}
		fixture, err := ParseFixture(text)
		for _, p := range fixture.Pods {
			sound(t, p.Host(fixture.GPUs))
		}
		if _, missing := fs.ReadFile(tree{}, "x"); err == nil && missing == nil {
			t.Fatal("a file out of nothing")
		}
	})
}
