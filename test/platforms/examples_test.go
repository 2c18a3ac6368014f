package platforms

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/muster-run/muster/test/golden"
	"github.com/muster-run/muster/test/stage"
)

// An example is one of the directories under examples with a manifest, and what its job is.
type example struct {
	name   string
	gpus   int
	ranks  []int          // of the pods, in the order in which they are listed; -1: none
	expect map[string]any // of all pods
	roles  []string       // of each
	play   *play

	made     func(t testing.TB, c *cluster, example string) // who makes its pods, where that is none of Kubernetes' operators
	assigned bool                                           // the ranks are those by name, which the pods learn when they meet
}

// rule is what all pods of an example are to understand.
func rule(name string, nodes int, host string, port any) map[string]any {
	return map[string]any{"rule": name, "nodes": nodes, "host": host, "port": port}
}

// one is a play in which a file of ours is the training.
func one(path, script string) *play { return &play{files: map[string]string{path: script}} }

const torch = "testdata/together.py"

// mpi is a play in which the first pod has n ranks started in the others.
func mpi(n int) *play {
	return &play{
		long: true, files: map[string]string{"/app/train.py": "testdata/mpi.py"}, served: []int{1, 2},
		links: map[string]string{"/usr/sbin/sshd": "/usr/local/bin/muster", "/usr/bin/ssh": "/usr/local/bin/muster", "/usr/local/bin/mpirun": "/usr/bin/mpirun.openmpi"},
		says: func(nth int) []string {
			if nth > 0 {
				return nil // it comes through the launcher
			}
			var ranks []int
			for i := range n {
				ranks = append(ranks, i)
			}
			return together(n, ranks...)
		},
	}
}

// fleet is a play of Paddle's workers, two in a pod.
func fleet(path string) *play {
	return &play{
		long: true, python: "paddle", nproc: 2, files: map[string]string{path: "../interop/scripts/paddle_collective.py"},
		says: func(nth int) []string {
			return []string{fmt.Sprintf("rank %d of 4: trained", 2*nth), fmt.Sprintf("rank %d of 4: trained", 2*nth+1)}
		},
	}
}

// told is a play in which nobody asks for names.
func (p *play) told() *play {
	p.byIP = true
	return p
}

var all = []example{
	{
		name: "pytorchjob-volcano", gpus: 8, ranks: []int{0, 1, 2, 3}, expect: rule("pytorchjob", 4, "sdxl-lora-master-0", 23456),
		play: &play{
			long: true, python: "launchers", files: map[string]string{
				"/app/lora-scripts/sd-scripts/sdxl_train.py": "testdata/seed/sdxl_train.py",
				"/app/lora-scripts/sd-scripts/train.py":      "../interop/scripts/accelerate_bf16.py",
			},
			says: func(nth int) []string { return []string{fmt.Sprintf("rank %d of 4: equal parameters ", nth)} },
		},
	},
	{
		name: "tfjob-volcano", ranks: []int{0, -1, 1}, roles: []string{"chief", "ps", "worker"}, expect: rule("tf-config", 2, "mnist-chief-0.kubeflow-user.svc", 2222),
		play: &play{
			long: true, python: "tensorflow", files: map[string]string{"/opt/model.py": "../interop/scripts/tf_ps.py"},
			says: func(nth int) []string {
				return [][]string{{"this is chief 0", "rank 0 of 3: w"}, {"this is ps 0"}, {"this is worker 0"}}[nth]
			},
		},
	},
	{
		name: "t9k-deepspeedjob", gpus: 2, ranks: []int{0, 1, 2, 3}, expect: rule("hostfile", 4, "ds-worker-0", nil),
		play: &play{
			nproc: -1, long: true, files: map[string]string{"/t9k/mnt/train.py": torch}, served: []int{1, 2, 3}, env: []string{"DS_ACCELERATOR=cpu"},
			links: map[string]string{"/usr/sbin/sshd": "/usr/local/bin/muster", "/usr/bin/ssh": "/usr/local/bin/muster",
				"/usr/local/bin/pdsh": "muster", "/usr/local/bin/deepspeed": "muster"},
			says: func(nth int) []string {
				if nth > 0 {
					return nil // it comes through the first
				}
				return together(8, 0, 1, 2, 3, 4, 5, 6, 7)
			},
		},
	},
	{
		name: "t9k-genericjob", gpus: 8, ranks: []int{0, 1, 2, 3}, expect: rule("generic", 4, "ds-llm-worker-0", 29400),
		play: &play{long: true, files: map[string]string{"/t9k/mnt/train.py": torch}},
	},
	{
		name: "paddlejob", gpus: 1, ranks: []int{0, 1}, expect: rule("paddle-operator", 2, "10.244.1.7", 41233),
		play: fleet("/app/train_fleet.py").told(),
	},
	{
		name: "paddlejob-host", gpus: 8, ranks: []int{0, 1}, expect: rule("paddle-operator", 2, "10.244.1.7", 41233),
		play: fleet("/app/pretrain.py").told(),
	},
	{
		name: "paddlejob-elastic", gpus: 1, ranks: []int{0, 1}, expect: rule("paddle-operator", 2, "resnet-elastic-worker-0", nil),
		play: fleet("/app/train_fleet.py"),
	},
	{
		name: "paddlejob-ps", ranks: []int{-1, 0, 1}, roles: []string{"ps", "worker", "worker"}, expect: rule("paddle-operator", 2, "wide-deep-worker-0", 36000),
		play: &play{
			long: true, python: "paddle-ps", files: map[string]string{"/app/train.py": "../interop/scripts/paddle_ps.py"},
			says: func(nth int) []string {
				return [][]string{nil, {"rank 0 of 3: the server trained"}, {"rank 1 of 3: the server trained"}}[nth]
			},
		},
	},
	{
		name: "paddlejob-kubeflow", gpus: 1, ranks: []int{0, 1}, expect: map[string]any{"rule": "paddle-launch-env", "nodes": 2, "port": 36543},
		play: fleet("/app/train_fleet.py"),
	},
	{
		name: "volcano-job", gpus: 8, ranks: []int{0, 1, 2, 3}, expect: rule("volcano", 4, "llm-node-0.llm", 23456),
		play: one("/app/train.py", torch),
	},
	{
		name: "volcano-pytorch", gpus: 8, ranks: []int{0, 1, 2}, roles: []string{"master", "worker", "worker"}, expect: rule("volcano", 3, "vit-master-0.vit", 23456),
		play: &play{long: true, files: map[string]string{"/app/train.py": torch}},
	},
	{
		name: "volcano-tensorflow", ranks: []int{-1, 0, 1}, roles: []string{"ps", "chief", "worker"}, expect: rule("volcano", 2, "tf-chief-0.tf", 2222),
		play: &play{
			long: true, python: "tensorflow", files: map[string]string{"/opt/model.py": "../interop/scripts/tf_ps.py"},
			says: func(nth int) []string {
				return [][]string{{"this is ps 0"}, {"this is chief 0", "rank 0 of 3: w"}, {"this is worker 0"}}[nth]
			},
		},
	},
	{
		name: "volcano-mpi", gpus: 1, ranks: []int{-1, 0, 1}, roles: []string{"launcher", "worker", "worker"}, expect: map[string]any{"rule": "volcano", "nodes": 2},
		play: mpi(2),
	},
	{
		name: "jobset", gpus: 8, ranks: []int{0, 1, 2}, expect: rule("jobset", 3, "llm-node-0-0.llm", nil), assigned: true,
		play: &play{long: true, files: map[string]string{"/app/train.py": torch}},
	},
	{
		name: "lws", gpus: 8, ranks: []int{0, 1, 2}, expect: rule("lws", 3, "llm-0.llm.default", nil),
		play: &play{long: true, parks: true, files: map[string]string{"/app/train.py": torch}},
	},
	{
		name: "statefulset", gpus: 8, ranks: []int{0, 1, 2}, expect: rule("ordinal", 3, "llm-0.llm", nil),
		play: &play{parks: true, files: map[string]string{"/app/train.py": torch}},
	},
	{
		name: "mpijob", gpus: 2, ranks: []int{-1, -1, -1}, roles: []string{"launcher", "worker", "worker"}, expect: map[string]any{},
		play: mpi(4),
	},
	{
		name: "systemd", ranks: []int{0, 1}, expect: rule("generic", 2, "host0", 29400), made: units,
		play: &play{long: true, files: map[string]string{"/srv/train/train.py": torch}, check: []string{"systemd-analyze", "verify", "/etc/systemd/system/muster-train.service"}},
	},
	{
		name: "indexed-job", gpus: 8, ranks: []int{0, 1, 2}, expect: rule("indexed", 3, "llm-0.llm", nil),
		play: one("/app/train.py", torch),
	},
	{
		name: "init-container", gpus: 8, ranks: []int{0, 1}, expect: rule("indexed", 2, "vit-0.vit", nil),
		play: one("/app/train.py", torch),
	},
	{
		name: "trainjob-jax", gpus: 8, ranks: []int{0, 1, 2, 3}, expect: rule("trainjob-jax", 4, "jx-node-0-0.jx", 29500),
		play: &play{
			long: true, python: "jax", files: map[string]string{"/app/train.py": "../interop/scripts/jax_psum.py"},
			says: func(nth int) []string { return []string{fmt.Sprintf("rank %d of 4: w ", nth)} },
		},
	},
	{
		name: "trainjob", gpus: 8, ranks: []int{0, 1, 2}, expect: rule("trainjob-torch", 3, "llm-node-0-0.llm", 29500),
		play: &play{long: true, files: map[string]string{"/app/train.py": torch}},
	},
}

// pods are those that the operator would make of an example's manifest.
func (e example) pods(t testing.TB, c *cluster) []*pod {
	t.Helper()
	c.namespace, c.node, c.port = "default", func(nth int) string { return fmt.Sprintf("gpu-node-%d", nth+1) }, 41233
	if e.made != nil {
		e.made(t, c, e.name)
	}
	for _, m := range read(t, e.name) {
		if m.Metadata.Namespace != "" {
			c.namespace = m.Metadata.Namespace
		}
		m.model(t)(t, c, m)
	}
	if len(c.made) != len(e.ranks) {
		t.Fatalf("%s makes %d pods, not %d", e.name, len(c.made), len(e.ranks))
	}
	for i, p := range c.made {
		p.Expect = maps.Clone(e.expect)
		if p.Expect["rank"] = nil; e.ranks[i] >= 0 {
			p.Expect["rank"] = e.ranks[i]
		}
		if e.assigned {
			p.Expect["rank"] = "assigned"
		}
		if e.roles != nil {
			p.Expect["role"] = e.roles[i]
		}
	}
	return c.made
}

// Each example's pods are written down for muster discover, and its README shows what that says of them. Whoever changes a manifest sees what
// becomes of it.
func TestExamples(t *testing.T) {
	muster := stage.Build(t)
	for _, e := range all {
		t.Run(e.name, func(t *testing.T) {
			pods := e.pods(t, &cluster{ip: func(_ string, nth int) string { return fmt.Sprintf("10.244.%d.7", nth+1) }})
			var text bytes.Buffer
			j := json.NewEncoder(&text)
			j.SetEscapeHTML(false)
			j.SetIndent("", " ")
			if err := j.Encode(map[string]any{"source": "examples/" + e.name, "gpus": e.gpus, "pods": pods}); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("../../discovery/testdata/examples", e.name+".json")
			golden.File(t, file, text.Bytes())
			said, err := exec.Command(muster, "discover", "--fixture", file).CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, said)
			}
			shows(t, filepath.Join(examples, e.name, "README.md"), string(said))
		})
	}
}

// shows is a README in which the table stands, indented.
func shows(t *testing.T, file, said string) {
	t.Helper()
	var want strings.Builder
	for line := range strings.Lines(said) {
		want.WriteString("    " + strings.TrimRight(line, " \n") + "\n")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), want.String()) {
		return
	}
	if !golden.Update() {
		t.Fatalf("%s does not show\n%s", file, &want)
	}
	if err := os.WriteFile(file, table.ReplaceAll(text, []byte(want.String())), 0o644); err != nil {
		t.Fatal(err)
	}
}

// table is what muster discover prints, as a README has it.
var table = regexp.MustCompile(`(?m)^    pod .*\n(    .*\n)*`)

// Every directory with a manifest is here.
func TestAll(t *testing.T) {
	here := map[string]bool{"pytorch-ddp": true, "slurm": true, "monitoring": true} // a script, for all of them, TestSlurm, and what report/metrics tests
	for _, e := range all {
		here[e.name] = true
	}
	dirs, err := os.ReadDir(examples)
	if err != nil || len(dirs) != len(here) {
		t.Errorf("%d examples, %v; %d are held to what they say", len(dirs), err, len(here))
	}
	for _, d := range dirs {
		if !here[d.Name()] {
			t.Errorf("nothing holds %s to what it says", d.Name())
		}
	}
}
