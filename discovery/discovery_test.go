package discovery

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/muster-run/muster/job"
)

func host(env ...string) job.Host {
	m := map[string]string{}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		m[name] = value
	}
	return job.Host{
		Getenv:   func(name string) string { return m[name] },
		ReadFile: func(string) ([]byte, error) { return nil, os.ErrNotExist },
		Hostname: "ann",
	}
}

func TestDetect(t *testing.T) {
	for _, c := range []struct {
		name string
		env  string
		want string // rule nodes rank host:port nproc id
		err  string // part of it
	}{
		{"nothing", "", "single 1 -1 :0 '' ''", ""},
		{"kubeflow 1.5", "MASTER_ADDR=sdxl-master-0 MASTER_PORT=23456 WORLD_SIZE=4 RANK=3",
			"pytorchjob 4 3 sdxl-master-0:23456 '' ''", ""},
		{"kubeflow 1.9, integer nproc: WORLD_SIZE counts processes",
			"MASTER_ADDR=m MASTER_PORT=23456 WORLD_SIZE=32 RANK=1 PET_MASTER_ADDR=m PET_MASTER_PORT=23456 PET_NODE_RANK=1 PET_NNODES=4 PET_NPROC_PER_NODE=8",
			"pet 4 1 m:23456 '8' ''", ""},
		{"rendezvous endpoint", "PET_NNODES=2:2 PET_RDZV_ENDPOINT=w-0:29400 PET_RDZV_ID=j1 PET_RDZV_BACKEND=c10d",
			"pet 2 -1 w-0:29400 '' 'j1'", ""},
		{"IPv6 endpoint", "PET_NNODES=2 PET_RDZV_ENDPOINT=[fd00::1]:29400", "pet 2 -1 fd00::1:29400 '' ''", ""},
		{"endpoint without port", "PET_NNODES=2 PET_RDZV_ENDPOINT=w-0", "pet 2 -1 w-0:0 '' ''", ""},
		{"workers per node alone", "PET_NPROC_PER_NODE=2", "single 1 -1 :0 '2' ''", ""},
		{"address only", "MASTER_ADDR=10.0.0.1", "generic 0 -1 10.0.0.1:0 '' ''", ""},
		{"nodes beyond doubt", "MASTER_ADDR=m MASTER_PORT=1 NNODES=2 NODE_RANK=1 WORLD_SIZE=16 RANK=8",
			"generic 2 1 m:1 '' ''", ""},
		{"processes, told by LOCAL_WORLD_SIZE", "MASTER_ADDR=m WORLD_SIZE=16 RANK=8 LOCAL_WORLD_SIZE=8", "generic 2 1 m:0 '' ''", ""},
		{"a Service named master", "MASTER_ADDR=m MASTER_PORT=tcp://10.0.0.7:80 WORLD_SIZE=2 RANK=0", "generic 2 0 m:0 '' ''", ""},
		{"rank beyond nodes", "MASTER_ADDR=m WORLD_SIZE=2 RANK=2", "", "node 2, but there are only 2 nodes"},
		{"no number", "MASTER_ADDR=m WORLD_SIZE=two", "", "WORLD_SIZE=two is not a whole number"},
		{"not a multiple", "MASTER_ADDR=m WORLD_SIZE=3 LOCAL_WORLD_SIZE=2", "", "not a multiple"},
		{"a job id alone", "PET_RDZV_ID=j1", "single 1 -1 :0 '' 'j1'", ""},
		{"a job id beside another platform", "MASTER_ADDR=m WORLD_SIZE=2 RANK=1 PET_RDZV_ID=j1 PET_NPROC_PER_NODE=4",
			"generic 2 1 m:0 '4' 'j1'", ""},
		{"torchrun's word for a node alone", "PET_NNODES=1 PET_RDZV_ENDPOINT=localhost:0", "pet 1 -1 :0 '' ''", ""},
		{"an odd address that nobody needs", "MASTER_ADDR=0.0.0.0 WORLD_SIZE=1 RANK=0", "generic 1 0 :0 '' ''", ""},
		{"one spelling", "MASTER_ADDR=Node-0.Example. WORLD_SIZE=2", "generic 2 -1 node-0.example:0 '' ''", ""},
		{"every address", "MASTER_ADDR=0.0.0.0 WORLD_SIZE=2", "", "MASTER_ADDR=0.0.0.0 means every address"},
		{"every address, as an endpoint", "PET_NNODES=2 PET_RDZV_ENDPOINT=[::]:29400", "", "PET_RDZV_ENDPOINT=[::]:29400 means every address"},
		{"no such port", "PET_NNODES=2 PET_MASTER_ADDR=m PET_MASTER_PORT=99999", "", "PET_MASTER_PORT=99999 is no port"},
		{"no such port, nor any number", "MASTER_ADDR=m MASTER_PORT=http WORLD_SIZE=2", "", "MASTER_PORT=http is not a whole number"},
		{"a store that nobody knows", "PET_NNODES=2 PET_RDZV_ENDPOINT=e:2379 PET_RDZV_BACKEND=zeus", "", "PET_RDZV_BACKEND=zeus is not in this version"},
		{"an etcd that is nowhere", "PET_NNODES=2 PET_MASTER_ADDR=h PET_RDZV_BACKEND=etcd-v2", "", "PET_RDZV_BACKEND=etcd-v2, but PET_RDZV_ENDPOINT does not say where"},
		{"an etcd without a port that is one", "PET_NNODES=2 PET_RDZV_ENDPOINT=e:0 PET_RDZV_BACKEND=etcd", "", "PET_RDZV_ENDPOINT=e:0 has no port"},
		{"an etcd that nobody needs", "PET_NNODES=1 PET_RDZV_BACKEND=etcd", "pet 1 -1 :0 '' ''", ""},
		{"range", "PET_NNODES=4:1 PET_RDZV_ENDPOINT=w:1", "", "PET_NNODES=\"4:1\" is no number of nodes: the first is to be the fewest"},
		{"nowhere to meet", "PET_NNODES=4", "", "nothing says where they meet"},
		{"bad endpoint port", "PET_NNODES=2 PET_RDZV_ENDPOINT=w:0", "", "PET_RDZV_ENDPOINT=w:0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := Detect(host(strings.Fields(c.env)...))
			err := f.Problem
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got %+v, %v; want an error with %q", f, err, c.err)
				}
				return
			}
			got := fmt.Sprintf("%s %d %d %s:%d '%s' '%s'", f.Rule, f.Nodes, f.Rank, f.Host, f.Port, f.NProc, f.JobID)
			if err != nil || got != c.want {
				t.Errorf("got %s, %v; want %s", got, err, c.want)
			}
		})
	}
}

func TestOddPortIsTold(t *testing.T) {
	f := Detect(host("MASTER_ADDR=m", "MASTER_PORT=tcp://10.0.0.7:80"))
	if f.Problem != nil || len(f.Warnings) != 1 || !strings.Contains(f.Warnings[0].Text, "tcp://10.0.0.7:80") {
		t.Errorf("%+v", f)
	}
}

// What torchrun would do and muster does not is told, and nothing is told of what asks for nothing.
func TestUnknownToUs(t *testing.T) {
	f := Detect(host("PET_NNODES=1", "PET_RUN_PATH=1", "PET_TEE=0", "PET_MODULE="))
	if f.Problem != nil || len(f.Warnings) != 1 || !strings.HasPrefix(f.Warnings[0].Text, "PET_RUN_PATH=1 ") {
		t.Errorf("%+v", f)
	}
}

func TestEndpoint(t *testing.T) {
	for text, want := range map[string]string{
		"h":                       "h 0",
		"h:7":                     "h 7",
		"H.Example.:7":            "h.example 7",
		"localhost.":              "localhost 0",
		"under_score-1:7":         "under_score-1 7",
		"bücher.example:7":        "bücher.example 7",
		"10.0.0.1:7":              "10.0.0.1 7",
		"::ffff:10.0.0.1":         "10.0.0.1 0",
		"fd00:0::1":               "fd00::1 0",
		"[FD00::1]":               "fd00::1 0",
		"[fd00::1]:7":             "fd00::1 7",
		"[fe80::1%eth0]:7":        "fe80::1%eth0 7",
		"12345:7":                 "12345 7",
		"":                        "names no host",
		":7":                      "names no host",
		".":                       "names no host",
		"h:":                      "has no port from 1 to 65535",
		"h:0":                     "has no port from 1 to 65535",
		"h:65536":                 "has no port from 1 to 65535",
		"a:b:c":                   "is no HOST:PORT (an IPv6 address stands in brackets)",
		"[::1":                    "is no host name: it has a character that no name has",
		"::1]":                    "is no host name: it has a character that no name has",
		"tcp://h:7":               "is no HOST:PORT (an IPv6 address stands in brackets)",
		"0.0.0.0":                 "means every address of a machine, not one that others can reach",
		"0.0.0.0:7":               "means every address of a machine, not one that others can reach",
		"[::]:7":                  "means every address of a machine, not one that others can reach",
		"::%eth0":                 "means every address of a machine, not one that others can reach",
		"224.0.0.1:7":             "is an address of many machines, not of one",
		"255.255.255.255":         "is an address of many machines, not of one",
		"10.0.0.256:7":            "is neither a name nor an IPv4 address",
		"10.0.1":                  "is neither a name nor an IPv4 address",
		"two words:7":             "is no host name: it has a character that no name has",
		"h\n:7":                   "is no host name: it has a character that no name has",
		"h\x00":                   "is no host name: it has a character that no name has",
		"h\x7f":                   "is no host name: it has a character that no name has",
		"h\u00a0i":                "is no host name: it has a character that no name has",
		"user@h":                  "is no host name: it has a character that no name has",
		"[fe80::1%a b]:7":         "is no address: its zone has a character that no interface has",
		strings.Repeat("a.", 127): strings.Repeat("a.", 126) + "a 0",
		strings.Repeat("a.", 128): "is no host name: it has 255 characters, 253 are possible",
	} {
		host, port, err := Endpoint(text)
		got := fmt.Sprint(host, " ", port)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %s; want %s", text, got, want)
		}
	}
}

func TestOptional(t *testing.T) {
	other := errors.New("other")
	if n, err := optional(0, errUnset, 7); n != 7 || err != nil {
		t.Errorf("unset: %d, %v", n, err)
	}
	if _, err := optional(0, other, 7); !errors.Is(err, other) {
		t.Errorf("other: %v", err)
	}
}

// A job of several nodes that nothing else explains must not become that many single trainings.
func TestLeftover(t *testing.T) {
	f := Detect(host("WORLD_SIZE=4", "RANK=1", "NUM_PROCESSES=1", "SLURM_NTASKS=x"))
	if f.Rule != "single" || strings.Join(f.Leftover, " ") != "WORLD_SIZE=4 RANK=1" {
		t.Errorf("%+v", f)
	}
}

// A trace of several nodes that lacks its other half is refused with what is missing; an MPI launcher's single rank has its variables, too.
func TestHalves(t *testing.T) {
	for env, want := range map[string]string{
		"OMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile":                                               "OMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile, a file that is not there",
		"OMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0": "",
		"OMPI_MCA_orte_default_hostfile=/etc/openmpi/hosts":                                              "",
		"DMLC_TRACKER_URI=x-0 DMLC_TRACKER_PORT=9091":                                                    "DMLC_TRACKER_URI=x-0 without DMLC_NUM_WORKER and DMLC_TASK_ID",
		"DMLC_TRACKER_PORT=9091":                                                                         "DMLC_TRACKER_PORT=9091 without DMLC_NUM_WORKER",
		"DMLC_TRACKER_PORT=tcp://10.0.0.1:80":                                                            "",
	} {
		trouble := Detect(host(strings.Fields(env)...)).Trouble()
		if want == "" && trouble != nil || want != "" && !strings.Contains(fmt.Sprint(trouble), want) {
			t.Errorf("%s: %v", env, trouble)
		}
	}
}

// Of a task of Volcano's whose pods are counted somebody must say the names.
func TestVolcanoTaskWithoutList(t *testing.T) {
	found := 0
	for _, c := range cases(t) {
		if !strings.HasPrefix(c.name, "volcano-v1.14.4-pytorch-plugin-only/") && !strings.HasPrefix(c.name, "volcano-v1.14.4-mpi-plugin/") {
			continue
		}
		for _, task := range []string{"WORKER", "MPIWORKER"} {
			env := slices.DeleteFunc(once(c.env), func(kv string) bool { return strings.HasPrefix(kv, "VC_"+task+"_HOSTS=") })
			if len(env) == len(once(c.env)) {
				continue
			}
			found++
			if err := Detect(c.again(env, nil)).Trouble(); !strings.Contains(fmt.Sprint(err), "but VC_"+task+"_HOSTS, which names those pods, is not set") {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
	if found < 4 {
		t.Errorf("%d pods", found)
	}
}

// What a system says to some of its nodes, or says of processes alone, starts nothing, and the reason says what to do.
func TestRefusals(t *testing.T) {
	const step = "SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2 SLURM_JOB_NODELIST=ann,bob SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NODEID=0 SLURM_LOCALID=0 SLURM_STEP_NODELIST=ann " +
		"SLURM_STEP_NUM_NODES=1 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_TASKS_PER_NODE=1 "
	const dynamic = `TF_CONFIG={"cluster":{"worker":{"1":"dyn-worker-1.ns.svc:2222"},"ps":["dyn-ps-0.ns.svc:2222"]},"task":{"type":"worker","index":1}}`
	for _, c := range []struct{ env, want string }{
		{dynamic, "take enableDynamicWorker out of the manifest"},
		{step + "OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=prterun-n1-77@1", "start muster by srun"},
		{"MINDX_TASK_ID=u MASTER_ADDR=10.1.1.1 MASTER_PORT=2222 WORLD_SIZE=16 RANK=1", "LOCAL_WORLD_SIZE does not say"},
		{"SKYPILOT_NUM_NODES=2 SKYPILOT_NODE_RANK=0 SKYPILOT_NODE_IPS=10.0.0.1", "SKYPILOT_NUM_NODES=2"},
		{"SKYPILOT_NODE_RANK=1", "SKYPILOT_NODE_RANK=1"},
		{"PBS_NUM_NODES=2 PBS_NODENUM=0", "PBS_NUM_NODES=2"},
	} {
		f := Detect(host(strings.Fields(c.env)...))
		if got := fmt.Sprint(f.Barred, f.Trouble()); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", c.env, got)
		}
	}
}
