package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// meetsAsHorovod is a worker that meets the others as Horovod's C++ client does, in the world, on its node and across the nodes, and says whom it met. In
// the first round the last rank fails then.
const meetsAsHorovod = `
import http.client, os, time
def ask(method, path, body=None):
    c = http.client.HTTPConnection(v("GLOO_RENDEZVOUS_ADDR"), int(v("GLOO_RENDEZVOUS_PORT")))
    c.request(method, path, body)
    r = c.getresponse()
    assert r.status in (200, 404), (method, path, r.status, r.read())
    return r.status, r.read().decode()
def v(name): return os.environ["HOROVOD_" + name]
assert v("CONTROLLER") == v("CPU_OPERATIONS") == "gloo" and v("GLOO_IFACE") == "lo"
name = "%s of %s" % (v("RANK"), v("HOSTNAME"))
for scope, rank, size in ("global", v("RANK"), v("SIZE")), ("local_" + v("HOSTNAME"), v("LOCAL_RANK"), v("LOCAL_SIZE")), ("cross_" + v("LOCAL_RANK"), v("CROSS_RANK"), v("CROSS_SIZE")):
    assert ask("PUT", "/%s/%s" % (scope, rank), name)[0] == 200
    met = []
    for i in range(int(size)):
        status = 404
        while status == 404: status, value = ask("GET", "/%s/%d" % (scope, i))
        met.append(value)
    print("rank", v("RANK"), "met in", scope, met, flush=True)
if v("RANK") == "3" and os.path.exists(os.environ["ONCE"]):
    os.unlink(os.environ["ONCE"])
    raise SystemExit(7)
`

// The workers of two nodes meet at muster's store, and in the round after a failure at an empty one.
func TestHorovod(t *testing.T) {
	t.Parallel()
	once := t.TempDir() + "/once"
	signalFile(t, once)
	nodes := startNodes(t, 2, []string{"ONCE=" + once}, "--framework", "horovod", "--max-restarts", "1", "--", "/usr/bin/python3", "-c", meetsAsHorovod)
	for n, p := range nodes {
		for local := range 2 {
			rank := 2*n + local
			for _, said := range []string{
				"met in global ['0 of node-0', '1 of node-0', '2 of node-1', '3 of node-1']",
				fmt.Sprintf("met in local_node-%d ['%d of node-%[1]d', '%[3]d of node-%[1]d']", n, 2*n, 2*n+1),
				fmt.Sprintf("met in cross_%d ['%[1]d of node-0', '%d of node-1']", local, local+2),
			} {
				p.saysTimes(fmt.Sprintf("rank %d %s", rank, said), 2)
			}
		}
		p.ends(0, "restart 1 of 1")
		if strings.Contains(p.out.String(), unseen) {
			t.Errorf("they have come, but\n%s", p.out.String())
		}
	}
}

// unseen is what is said of workers that never come to the rendezvous.
const unseen = "no worker has come to Horovod's rendezvous"

// Workers that end well without having met are told of, and sooner those of which PyTorch tells that they train.
func TestHorovodAlone(t *testing.T) {
	t.Parallel()
	startNodes(t, 2, nil, "--framework", "horovod", "--", "true")[0].ends(0, unseen)
	dir := t.TempDir()
	train := "import time, torch\np = torch.nn.Parameter(torch.zeros(1))\noptimizer = torch.optim.SGD([p], lr=0.1)\nwhile True:\n    p.sum().backward()\n    optimizer.step()\n    time.sleep(0.1)\n"
	if err := os.WriteFile(dir+"/train.py", []byte(train), 0o644); err != nil {
		t.Fatal(err)
	}
	all := startNodes(t, 2, []string{"PYTHON_EXEC=" + python(t, "debian")}, "--framework", "horovod", "--", dir+"/train.py")
	for _, p := range all { // each of its own
		p.says(unseen)
	}
	all[1].cmd.Process.Signal(syscall.SIGTERM)
	for _, p := range all {
		p.ends(143)
	}
}

func TestHorovodWords(t *testing.T) {
	t.Parallel()
	startNodes(t, 1, nil, "--framework", "horovod", "--worker-store", "agent", "--", "true")[0].
		ends(2, "--worker-store agent is PyTorch's, and workers of horovod meet in a store of their own, which muster serves; drop one of them")
}
