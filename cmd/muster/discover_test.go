package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-run/muster/discovery"
	"github.com/muster-run/muster/test/freeport"
	"github.com/muster-run/muster/topology"
	"github.com/muster-run/muster/topology/fixture"
)

// muster discover looks at a machine that is described: by a fixture's pod, or by an environment and the files that were mounted.
func TestDiscover(t *testing.T) {
	t.Parallel()
	dir, err := filepath.Abs("../../discovery/testdata/platforms")
	if err != nil {
		t.Fatal(err)
	}
	torch := filepath.Join(dir, "training-operator-v1.9.0-pytorchjob-seed000-nproc8.json")
	muster(t, dir, nil, "discover", "--fixture", torch, "--pod", "pytorch-multinode-job-worker-2").ends(0,
		"platform         pytorchjob\n", "nodes            4\n", "this node        3\n", "where they meet  pytorch-multinode-job-master-0 port 23456\n",
		"role             worker 2\n", "PET_NNODES=4\n")
	muster(t, dir, nil, "discover", "--json", "--fixture", torch, "--pod", "pytorch-multinode-job-worker-2").ends(0,
		`"rule":"pytorchjob","nodes":4,"min":4,"max":4,"rank":3,`, `"nproc":8`, `"error":null}`)
	muster(t, dir, nil, "discover", "--fixture", torch).ends(0, "pytorch-multinode-job-master-0  pytorchjob  4      0 ", "worker-2  pytorchjob  4      3 ")
	muster(t, dir, nil, "discover", "--json", "--fixture", torch).ends(0, `{"pytorch-multinode-job-master-0":{"rule":"pytorchjob","nodes":4,`, `"pytorch-multinode-job-worker-2":{"rule":"pytorchjob","nodes":4,"min":4,"max":4,"rank":3,`)
	muster(t, dir, nil, "discover", "--fixture", torch, "--hostname", "x").ends(2, "--fixture has all that --env-file, --root and --hostname say")
	muster(t, dir, nil, "discover", "--fixture", torch, "--gpus", "2").ends(0)
	empty := filepath.Join(t.TempDir(), "empty.json")
	if err := os.WriteFile(empty, []byte(`{"pods":[]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	muster(t, dir, nil, "discover", "--fixture", empty).ends(2, "has no pods")
	muster(t, dir, nil, "discover", "--fixture", torch, "--pod", "x").ends(2, `has no pod "x": there are pytorch-multinode-job-master-0, `)
	muster(t, dir, nil, "discover", "--pod", "x").ends(2, "--pod goes with --fixture")
	muster(t, dir, nil, "discover", "x").ends(2, "takes no arguments")
}

func TestDiscoverFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for path, text := range map[string]string{
		"root/etc/volcano/node.host": "big-node-0.big\nbig-node-1.big\n",
		"empty":                      "",
		"again":                      "KUBERNETES_SERVICE_HOST=10.0.0.1\nMASTER_ADDR=m-master-0\nMASTER_PORT=23456\nRANK=1\nWORLD_SIZE=2\nMUSTER_ATTEMPT=3\n",
		"pod/var/run/secrets/kubernetes.io/serviceaccount/namespace": "llm\n",
		"lines":      "WORLD_SIZE=16\nNOTES=two\nlines\nMASTER_ADDR=m-master-0\r\nMASTER_PORT=23456\nRANK=1\nWORLD_SIZE=2\nHOSTNAME=m-worker-0\n",
		"zeros":      "LWS_LEADER_ADDRESS=a-0.a.ns\x00LWS_GROUP_SIZE=2\x00LWS_WORKER_INDEX=1\x00",
		"poison":     "KUBERNETES_SERVICE_HOST=10.0.0.1\nMASTER_PORT=tcp://10.1.2.3:80\n",
		"tensorflow": `TF_CONFIG={"cluster":{"worker":["a:2222","b:2222"]},"task":{"type":"worker","index":0}}` + "\n",
		"half":       "WORLD_SIZE=4\nRANK=1\n",
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for line, want := range map[string]string{
		"--env-file empty --root root --hostname big-node-1 --gpus 4": `"rule":"volcano","nodes":2,"min":2,"max":2,"rank":1,`,
		"--env-file lines": `"rule":"pytorchjob","nodes":2,"min":2,"max":2,"rank":1,`, // of WORLD_SIZE the operator's, which stands last
		"--env-file zeros": `"rule":"lws","nodes":2,`,
		"--env-file again --root pod --hostname m-worker-0": `"jobID":null,"attempt":3,"namespace":"llm","rdzvID":"job-8d6ed3bc#3",`,
		"--env-file poison --hostname nb-0 --gpus 2":        `"rule":"single","nodes":1,`,
	} {
		muster(t, dir, nil, append([]string{"discover", "--json"}, strings.Fields(line)...)...).ends(0, want)
	}
	muster(t, dir, nil, "discover", "--env-file", "again", "--root", "pod", "--hostname", "m-worker-0").ends(0, "namespace        llm\nattempt          3\nrdzv-id          job-8d6ed3bc#3\n")
	muster(t, dir, nil, "discover", "--env-file", "half").ends(2, "muster run would refuse:", "WORLD_SIZE=4, RANK=1")
	muster(t, dir, nil, "discover", "--env-file", "tensorflow", "--gpus", "8").ends(0, "workers here     1 for all GPUs\n")
	muster(t, dir, nil, "discover", "--env-file", "tensorflow", "--gpus", "8", "--json").ends(0, `"nproc":8,"workers":1,`)
	muster(t, dir, nil, "discover", "--env-file", "lines", "--gpus", "8", "--json").ends(0, `"nproc":8,"workers":8,`)
	muster(t, dir, nil, "discover", "--env-file", "half", "--gpus", "8", "--json").ends(2, `"nproc":8,"workers":null,`)
	muster(t, dir, nil, "discover", "--env-file", "none").ends(2, "open none: no such file")
	if err := os.WriteFile(filepath.Join(dir, "prose"), []byte("WORLD_SIZE is 4\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	muster(t, dir, nil, "discover", "--env-file", "prose").ends(2, "--env-file: no line of prose is NAME=VALUE")
	muster(t, dir, []string{"WORLD_SIZE=4"}, "discover", "--json").ends(2, `"rule":"single","nodes":null,`)
}

// What lies under --root may be anything: no pipe is waited for, and no file read that never ends.
func TestDiscoverOddFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"pipe/etc", "long/etc/volcano", "list/etc"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"pipe/etc/hosts", "pipe/etc/mpi", "list/etc/volcano", "root"} {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sparse := filepath.Join(dir, "long/etc/volcano/node.host")
	if err := errors.Join(os.WriteFile(sparse, nil, 0o600), os.Truncate(sparse, 1<<40)); err != nil {
		t.Fatal(err)
	}
	lws := []string{"LWS_LEADER_ADDRESS=a-0.a.ns", "LWS_GROUP_SIZE=2", "LWS_WORKER_INDEX=1"}
	muster(t, dir, lws, "discover", "--root", "pipe", "--hostname", "a-0-1").ends(0, "platform         lws")
	muster(t, dir, lws, "discover", "--root", "list", "--hostname", "a-0-1").ends(0, "platform         lws")
	muster(t, dir, lws, "discover", "--root", "long", "--hostname", "a-0-1").ends(0, "platform         lws")
	muster(t, dir, nil, "discover", "--root", "root").ends(2, "read files from root: not a directory")
}

// A container that was given one GPU of eight has one for its workers, whatever the machine has; a TrainJob for XGBoost divides by that.
func TestDiscoverCountsWhatRunCounts(t *testing.T) {
	text, err := os.ReadFile("../../topology/testdata/machines/dgx-h100.txt")
	if err != nil {
		t.Fatal(err)
	}
	root := fixture.Tree(t, string(text))
	unset := func(string) (string, bool) { return "", false }
	if n := visible(topology.Root(root), unset); n != 8 {
		t.Fatalf("%d GPUs of 8", n)
	}
	for i := 1; i < 8; i++ {
		if err := os.Remove(filepath.Join(root, "dev", fmt.Sprintf("nvidia%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	if n := visible(topology.Root(root), unset); n != 1 {
		t.Errorf("%d GPUs of 1", n)
	}
	h := discovery.Elsewhere([]string{"DMLC_TRACKER_URI=xgb-node-0-0.xgb", "DMLC_TRACKER_PORT=9091", "DMLC_NUM_WORKER=8", "DMLC_TASK_ID=0"}, os.DirFS(t.TempDir()), "xgb-node-0-0", 0)
	h.GPUs = func() int { return visible(topology.Root(root), unset) }
	if f := discovery.Detect(h); f.Rule != "trainjob-xgboost" || f.Nodes != 8 || f.NProc != "1" {
		t.Errorf("%s: %d nodes of %s", f.Rule, f.Nodes, f.NProc)
	}
}

// A TFJob with a parameter server, each pod with the variable that its operator gives it: one cluster of three, in which the server is the
// last node, and is stopped when the chief's work is done.
func TestTFJob(t *testing.T) {
	t.Parallel()
	port := freeport.Take(t)
	cluster := fmt.Sprintf(`TF_CONFIG={"cluster":{"chief":["127.0.0.1:%d"],"ps":["127.0.0.1:%d"],"worker":["127.0.0.1:%d"]},"task":{"type":"%%s","index":0}}`, port, port+1, port+2)
	dir := t.TempDir()
	for _, role := range []string{"worker", "ps"} {
		if err := syscall.Mkfifo(filepath.Join(dir, role), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var all []*program
	for _, pod := range [][2]string{{"chief", "cat worker ps"}, {"worker", "echo > worker"}, {"ps", "echo > ps; exec sleep 1000"}} { // the chief's end is the job's
		all = append(all, muster(t, dir, []string{fmt.Sprintf(cluster, pod[0])}, "run", "--", "sh", "-c", `echo "$RANK of $WORLD_SIZE: $TF_CONFIG"; `+pod[1]))
	}
	all[0].ends(0, "[rank 0] 0 of 3: ", `"task":{"type":"chief","index":0}`)
	all[1].ends(0, "[rank 1] 1 of 3: ", `"task":{"type":"worker","index":0}`)
	all[2].ends(0, "[rank 2] 2 of 3: ", `"task":{"type":"ps","index":0}`)
}
