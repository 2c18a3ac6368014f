package cluster

import (
	"bufio"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-run/muster/test/stage"
)

type playing struct {
	name string
	do   func(*cluster) string
}

// scenes are what happens on the cluster, one after the other. Each returns what was seen.
var scenes = []playing{
	{"seed", (*cluster).seed},
	{"pytorchjob", (*cluster).pytorchjob},
	{"kill", (*cluster).killed},
	{"indexed", (*cluster).indexed},
	{"lws", (*cluster).lws},
	{"delete", (*cluster).deleted},
	{"exit", (*cluster).exits},
	{"crash", (*cluster).crashed},
	{"restricted", (*cluster).restricted},
	{"page", (*cluster).page},
}

// play plays a scene.
func (c *cluster) play(name string, do func(*cluster) string) {
	began, outer := time.Now(), c.t
	defer func() { c.t = outer }()
	seen := "FAILED"
	outer.Run(name, func(t *testing.T) {
		c.t = t
		defer func() {
			if t.Failed() {
				for _, namespace := range []string{"default", "ai-namespace"} {
					said, _ := c.kubectl("-n", namespace, "describe", "pods")
					t.Log(said)
				}
			}
		}()
		seen = do(c)
	})
	took(&c.table, name, began, seen)
}

// job makes a scene's job, with changes to its text in pairs, for as long as the scene.
func (c *cluster) job(name string, changes ...string) {
	c.t.Helper()
	text := c.must("kustomize", "--load-restrictor", "LoadRestrictionsNone", stage.File(c.t, "testdata/"+name))
	if changed := strings.NewReplacer(changes...).Replace(text); changed != text || len(changes) == 0 {
		text = changed
	} else {
		c.t.Fatalf("%s has nothing of %q", name, changes)
	}
	if strings.Contains(text, "namespace: ai-namespace") {
		c.apply("{apiVersion: v1, kind: Namespace, metadata: {name: ai-namespace}}")
	}
	file := c.stage.Dir + "/job.yaml"
	c.write(file, text)
	c.must("apply", "-f", file)
	c.t.Cleanup(func() {
		c.must("delete", "--ignore-not-found", "--cascade=foreground", "--wait", c.within(), "-f", file)
	})
}

// ends waits until a job has one of two conditions, and it must be the first.
func (c *cluster) ends(namespace, job, good, bad string) {
	c.t.Helper()
	if said := c.first(namespace, job, func() {}, "condition="+good, "condition="+bad); said != "condition="+good {
		c.t.Fatalf("%s: %s", job, said)
	}
}

// first waits until something is so of an object, and says what; also that it was deleted, of which who waits for anything else hears nothing. When
// all of that is watched, it does something.
func (c *cluster) first(namespace, object string, then func(), what ...string) string {
	c.t.Helper()
	what = append(what, "delete")
	first, watched := make(chan string, len(what)), make(chan bool, len(what))
	for _, so := range what {
		cmd := c.asks("-v=6", "-n", namespace, "wait", "--for="+so, object, c.within()) // it says what it asks
		pipe, err := cmd.StderrPipe()
		c.fatal(err)
		c.fatal(cmd.Start())
		done := make(chan bool)
		go func() {
			defer close(done)
			last, tell := "", sync.OnceFunc(func() { watched <- true })
			for lines := bufio.NewScanner(pipe); lines.Scan(); {
				if last = lines.Text(); strings.Contains(last, "watch=true") {
					tell()
				}
			}
			switch err := cmd.Wait(); {
			case err == nil:
				first <- so
			case strings.Contains(last, "(NotFound)"): // before anybody looked
				first <- "delete"
			default:
				first <- fmt.Sprintf("%s: %v: %s", so, err, last)
			}
			tell()
		}()
		defer func() { _ = cmd.Process.Kill(); <-done }()
	}
	for range what {
		<-watched
	}
	then()
	return <-first
}

// says waits until a pod's log has such a line, and returns it.
func (c *cluster) says(namespace, pod, pattern string) string {
	c.t.Helper()
	cmd := c.asks("-n", namespace, "logs", "--follow", "--pod-running-timeout=5m", pod)
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	end := func() { _ = cmd.Process.Kill() }
	defer time.AfterFunc(patience+5*time.Minute, end).Stop()
	defer func() { end(); _ = cmd.Wait() }()
	var all strings.Builder
	want := regexp.MustCompile(pattern)
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		if all.WriteString(lines.Text() + "\n"); want.MatchString(lines.Text()) {
			return lines.Text()
		}
	}
	c.t.Fatalf("%s did not say %q:\n%s", pod, pattern, &all)
	return ""
}

// seed: a PyTorchJob as people have it, whose script calls accelerate launch, by Volcano's scheduler.
func (c *cluster) seed() string {
	c.job("seed")
	c.ends("ai-namespace", "pytorchjob/pytorch-multinode-job", "Succeeded", "Failed")
	return c.says("ai-namespace", "pytorch-multinode-job-master-0", "world size 4, accuracy 0.9")
}

// pytorchjob: the master is ready before there is a worker, which has no name for it until then. Volcano would start both or none.
func (c *cluster) pytorchjob() string {
	c.must("cordon", "node-2")
	c.job("pytorchjob", "schedulerName: volcano", "schedulerName: default-scheduler")
	n := []string{"-n", "ai-namespace"}
	in := func(args ...string) string { c.t.Helper(); return c.must(append(n, args...)...) }
	in("wait", "--for=create", "pod/sdxl-lora-master-0", c.within())
	in("wait", "--for=condition=Ready", "pod/sdxl-lora-master-0", c.within())
	if phase := in("get", "pod", "sdxl-lora-worker-0", "-o", "jsonpath={.status.phase}"); phase != "Pending" {
		c.t.Errorf("the worker is %s", phase)
	}
	c.must("uncordon", "node-2")
	c.ends("ai-namespace", "pytorchjob/sdxl-lora", "Succeeded", "Failed")
	return "ready alone; " + c.says("ai-namespace", "sdxl-lora-master-0", "world size 2, accuracy 0.9")
}

// killed: the container of a PyTorchJob's worker is killed from outside while both train, as where a node has no memory left. Kubelet starts it
// again in its pod, and the master, which stayed, trains on with it.
func (c *cluster) killed() string {
	const namespace, master, worker = "ai-namespace", "sdxl-lora-master-0", "sdxl-lora-worker-0"
	c.job("pytorchjob", "schedulerName: volcano", "schedulerName: default-scheduler", "restartPolicy: Never", "restartPolicy: OnFailure",
		"- /app/train.py", "- --max-restarts=3\n            - /app/train.py", `value: "6"`, `value: 100000 6`)
	in := func(args ...string) string {
		c.t.Helper()
		return c.must(append([]string{"-n", namespace}, args...)...)
	}
	in("wait", "--for=create", "pod/"+master, c.within())
	in("wait", "--for=condition=Ready", "pod/"+master, c.within())
	c.says(namespace, master, "epoch 5 of")
	at, container, _ := strings.Cut(in("get", "pod", worker, "-o", "jsonpath={.spec.nodeName} {.status.containerStatuses[0].containerID}"), " containerd://")
	node := slices.IndexFunc(c.nodes, func(m *stage.Machine) bool { return m.Name == at })
	if said, err := ctr(c.nodes[node], "tasks", "kill", "--signal", "SIGKILL", container); err != nil {
		c.t.Fatal(err, said)
	}
	in("wait", "--for=jsonpath={.status.containerStatuses[0].lastState.terminated.exitCode}=137", "pod/"+worker, c.within())
	seen := c.lastWords(namespace, worker, "running")
	c.ends(namespace, "pytorchjob/sdxl-lora", "Succeeded", "Failed")
	if again := in("get", "pods", master, worker, "-o", "jsonpath={.items[*].status.containerStatuses[0].restartCount}"); again != "0 1" {
		c.t.Errorf("master and worker were started again so often: %s", again)
	}
	c.says(namespace, master, "world size 2, accuracy 0.9")
	return seen + "; trained on"
}

// indexed: an Indexed Job.
func (c *cluster) indexed() string {
	c.job("indexed-job")
	c.ends("default", "job/llm", "Complete", "Failed")
	return c.says("default", c.pod("0"), "world size 3, accuracy 0.9")
}

// pod is the newest pod of an index of the Indexed Job.
func (c *cluster) pod(index string) string {
	c.t.Helper()
	all := strings.Fields(c.must("get", "pods", "-l", "batch.kubernetes.io/job-completion-index="+index, "--sort-by=.metadata.creationTimestamp", "-o", "jsonpath={.items[*].metadata.name}"))
	if len(all) == 0 {
		c.t.Fatalf("there is no pod of index %s", index)
	}
	return all[len(all)-1]
}

// lws: the group stays when it has trained, and is not begun again.
func (c *cluster) lws() string {
	c.job("lws")
	c.must("wait", "--for=create", "pod/llm-0", c.within())
	c.must("wait", "--for=condition=Ready", "pod/llm-0", c.within())
	seen := c.says("default", "llm-0", "world size 3, accuracy 0.9")
	for _, pod := range []string{"llm-0", "llm-0-1", "llm-0-2"} {
		c.until(pod+" is parked", func() bool {
			said, _ := c.kubectl("exec", pod, "--", "muster", "status", "--json")
			return strings.Contains(said, "parked")
		})
		if again := c.must("get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].restartCount}"); again != "0" {
			c.t.Errorf("%s was started again %s times", pod, again)
		}
	}
	return seen + "; parked"
}

// training is an Indexed Job with changes, and returns the pods of nodes 0 and 1 when it trains.
func (c *cluster) training(changes ...string) (first, second string) {
	c.t.Helper()
	c.job("indexed-job", changes...)
	for _, index := range []string{"0", "1"} {
		c.must("wait", "--for=create", "pod", "-l", "batch.kubernetes.io/job-completion-index="+index, c.within())
	}
	first, second = c.pod("0"), c.pod("1")
	c.must("wait", "--for=condition=Ready", "pod/"+first, c.within())
	c.says("default", first, "epoch 5 of")
	return first, second
}

// deleted: a pod of three is told to end while all train. The others say why they end, and the Job makes all again.
func (c *cluster) deleted() string {
	first, gone := c.training(`epochs: "6"`, `epochs: "100000"`)
	c.must("patch", "configmap", "llm", "--patch", `{"data": {"epochs": "6"}}`) // for the pods that come
	c.must("delete", "pod", gone)
	c.must("wait", "--for=jsonpath={.status.containerStatuses[0].state.terminated.exitCode}=143", "pod/"+first, c.within())
	seen := c.lastWords("default", first, "told to stop")
	c.ends("default", "job/llm", "Complete", "Failed")
	c.says("default", c.pod("0"), "world size 3, accuracy 0.9")
	return seen + "; trained again"
}

// exits: a worker ends with 7, and all pods say so. When the Job gives up it deletes the pods that have not ended yet; what they said is seen as long as
// something else holds them.
func (c *cluster) exits() string {
	c.job("indexed-job", "- /app/train.py", "- --\n        - python3\n        - -c\n        - import os, sys; sys.exit(7 * (os.environ['RANK'] == '1'))",
		"template:\n    spec:", "template:\n    metadata: {finalizers: [e2e.example/seen]}\n    spec:")
	c.t.Cleanup(func() {
		for _, pod := range strings.Fields(c.must("get", "pods", "-o", "name")) {
			c.must("patch", pod, "--type=merge", "-p", `{"metadata": {"finalizers": null}}`)
		}
	})
	c.ends("default", "job/llm", "Failed", "Complete")
	if why := c.must("get", "job", "llm", "-o", "jsonpath={.status.conditions[?(@.type=='Failed')].reason}"); why != "PodFailurePolicy" {
		c.t.Errorf("the Job failed of %s", why)
	}
	seen := ""
	for _, index := range []string{"2", "1", "0"} {
		pod := c.pod(index)
		c.must("wait", "--for=jsonpath={.status.containerStatuses[0].state.terminated.exitCode}=7", "pod/"+pod, c.within())
		seen = c.lastWords("default", pod, "exited with code 7")
	}
	return seen
}

// crashed: a worker dies while all train, and all are started again in the pods that there are.
func (c *cluster) crashed() string {
	first, crashes := c.training(`epochs: "6"`, `epochs: "100000 6"`, `value: "0"`, `value: "3"`)
	var status struct{ Workers []struct{ PID int } }
	if err := json.Unmarshal([]byte(c.must("exec", crashes, "--", "muster", "status", "--json")), &status); err != nil || len(status.Workers) != 1 {
		c.t.Fatalf("%+v, %v", status, err)
	}
	c.must("exec", crashes, "--", "sh", "-c", fmt.Sprintf("kill -SEGV %d", status.Workers[0].PID))
	c.ends("default", "job/llm", "Complete", "Failed")
	c.says("default", first, "world size 3, accuracy 0.9")
	for index, pod := range []string{first, crashes} {
		if last := c.pod(fmt.Sprint(index)); last != pod {
			c.t.Errorf("the pod of node %d was %s and is %s", index, pod, last)
		}
	}
	return c.says("default", first, "rank 1 .*SIGSEGV.*restart 1 of 3 follows")
}

// restricted: an image without muster, where Kubernetes takes no pod that may do more than it must. Kubelet asks by HTTP, and only its answer
// gives node 0 a name.
func (c *cluster) restricted() string {
	c.must("label", "namespace", "default", "pod-security.kubernetes.io/enforce=restricted")
	c.t.Cleanup(func() { c.must("label", "namespace", "default", "pod-security.kubernetes.io/enforce-") })
	c.job("init-container")
	c.ends("default", "job/vit", "Complete", "Failed")
	return c.says("default", c.pod("0"), "world size 2, accuracy 0.9")
}

// page: what docs/status-page.md has one type shows the page of a pod that trains.
func (c *cluster) page() string {
	first, _ := c.training(`epochs: "6"`, `epochs: "100000"`, "- name: MUSTER_NPROC_PER_NODE", "- name: MUSTER_HTTP\n          value: :8080\n        - name: MUSTER_NPROC_PER_NODE")
	line := regexp.MustCompile(`(?m)^ +kubectl (port-forward POD \d+) +# (http://\S+)`).FindStringSubmatch(text(c.t, top+"/docs/status-page.md"))
	if line == nil {
		c.t.Fatal("docs/status-page.md has no port-forward")
	}
	cmd := c.asks(strings.Fields(strings.Replace(line[1], "POD", first, 1))...)
	pipe, err := cmd.StdoutPipe()
	c.fatal(err)
	c.fatal(cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if said, err := bufio.NewReader(pipe).ReadString('\n'); err != nil { // it listens then
		c.t.Fatalf("port-forward: %s, %v", said, err)
	}
	curl := func(path string) string {
		c.t.Helper()
		out, err := c.plane.Command("-n", "curl", "-sS", "--fail", "--max-time", "60", line[2]+path).CombinedOutput()
		if err != nil {
			c.t.Errorf("%s%s: %v: %s", line[2], path, err, out)
		}
		return string(out)
	}
	title := regexp.MustCompile("<h1[^>]*>(.*?)</h1>").FindStringSubmatch(curl(""))
	if len(title) < 2 || title[1] != "All 3 ranks train" {
		c.t.Errorf("the page says %q", title)
	}
	if metrics := curl("metrics"); !strings.Contains(metrics, "\nmuster_") {
		c.t.Errorf("no metrics:\n%.300s", metrics)
	}
	file := c.must("exec", first, "--", "muster", "status", "--html")
	if !strings.Contains(file, "All 3 ranks train") {
		c.t.Errorf("as a file:\n%.300s", file)
	}

	// Who waits for the end of a job that is deleted hears of that.
	deletes := func() { c.must("delete", "job", "llm", c.within()) }
	if said := c.first("default", "job/llm", deletes, "condition=Complete", "condition=Failed"); said != "delete" {
		c.t.Errorf("of a job that was deleted is told: %s", said)
	}
	return strings.Join(title[1:], "")
}

// lastWords is what describe shows of a pod that has ended.
func (c *cluster) lastWords(namespace, pod, want string) string {
	c.t.Helper()
	said := c.must("-n", namespace, "describe", "pod", pod)
	_, words, _ := strings.Cut(said, "Message:")
	words, _, _ = strings.Cut(strings.TrimSpace(words), "\n")
	if !strings.Contains(words, want) {
		c.t.Errorf("describe shows %q, not %q:\n%s", words, want, said)
	}
	return words
}
