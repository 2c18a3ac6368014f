package framework

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/test/golden"
)

// twoByTwo is a world of two nodes with two slots each, seen by the second.
func twoByTwo(group int) Place {
	return Place{
		World: job.World{ID: "job1", Generation: 1, Members: []job.Member{
			{Node: job.Node{Name: "ann", Slots: 2, Ports: []int{23458, 23459}}, First: 0},
			{Node: job.Node{Name: "lee", Slots: 2, Ports: []int{23460, 23461}}, First: 2},
		}},
		Hosts: []string{"10.0.0.1", "fd00::2"}, Group: group, MasterAddr: "10.0.0.1", MasterPort: 23457, Rendezvous: 24567, Interface: "eth0", ErrorDir: "/run/muster/job1",
	}
}

// served is a world of three nodes, the last of which is a parameter server.
func served(group int) Place {
	p := twoByTwo(group)
	p.World.Members = append(p.World.Members, job.Member{Node: job.Node{Name: "eve", Slots: 2, Ports: []int{23462, 23463}}, First: 4})
	p.Hosts, p.Servers = append(p.Hosts, "eve"), 1
	return p
}

// nothing is the environment of a user who set nothing.
func nothing(string) (string, bool) { return "", false }

// The golden file of a framework holds the whole environment of every rank of a 2x2 world, and another that of a world with
// parameter servers.
func TestEnvOfEveryRank(t *testing.T) {
	for _, f := range frameworks {
		golden.File(t, filepath.Join("testdata", f.Name+".want"), environments(f, twoByTwo))
		if f.Servers {
			golden.File(t, filepath.Join("testdata", f.Name+"-ps.want"), environments(f, served))
		}
	}
}

func environments(f Framework, seen func(group int) Place) string {
	var b strings.Builder
	for group := range seen(0).World.Members {
		for _, task := range f.Tasks(seen(group), []string{"python3", "-u", "train.py"}, nothing) {
			fmt.Fprintf(&b, "rank %d, local rank %d: %s\n", task.Rank, task.LocalRank, strings.Join(task.Argv, " "))
			for _, v := range task.Env {
				fmt.Fprintf(&b, "  %s=%s  # %s\n", v.Name, v.Value, v.Why)
			}
		}
	}
	return b.String()
}

// Each worker chooses among the GPUs that its node's workers see.
func TestDevices(t *testing.T) {
	for _, c := range []struct {
		gpus, slots int
		want        string // of each slot
	}{
		{0, 2, " "},
		{2, 2, "0 1"},
		{8, 2, "0,1,2,3 4,5,6,7"},
		{8, 1, "0,1,2,3,4,5,6,7"},
		{2, 4, "0 1 0 1"},
		{3, 2, "0 1"},
	} {
		p := twoByTwo(0)
		p.GPUs, p.World.Members[0].Slots = c.gpus, c.slots
		var got []string
		for local := range c.slots {
			got = append(got, p.devices(local))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%d GPUs for %d workers: %q, want %q", c.gpus, c.slots, text, c.want)
		}
	}
}

// What a framework says of GPUs, and what it says where there are none.
func TestEnvOfGPUs(t *testing.T) {
	for _, c := range []struct {
		f    Framework
		name string
		want [2]string // without GPUs, with four; "-": nothing
	}{
		{jax, "JAX_LOCAL_DEVICE_IDS", [2]string{"-", "2,3"}},
		{paddle, "FLAGS_selected_gpus", [2]string{"-", "2,3"}},
		{paddle, "PADDLE_DISTRI_BACKEND", [2]string{"gloo", "-"}},
		{tensorflow, "TF_FORCE_GPU_ALLOW_GROWTH", [2]string{"-", "true"}},
		{torch, "CUDA_VISIBLE_DEVICES", [2]string{"-", "-"}},
	} {
		for i, gpus := range []int{0, 4} {
			p := twoByTwo(0)
			p.GPUs = gpus
			got, ok := c.f.Tasks(p, nil, nothing)[1].Env.Lookup(c.name)
			if !ok {
				got = "-"
			}
			if got != c.want[i] {
				t.Errorf("%s with %d GPUs: %s=%s, want %s", c.f.Name, gpus, c.name, got, c.want[i])
			}
		}
	}
}

// A proxy is for the world outside.
func TestProxy(t *testing.T) {
	for _, c := range []struct{ set, want string }{
		{"https_proxy=http://proxy:3128", "10.0.0.1,fd00::2"},
		{"https_proxy=", "-"},
		{"", "-"},
		{"https_proxy=http://proxy:3128 no_grpc_proxy=.cluster", "-"},
	} {
		given := func(name string) (string, bool) {
			for _, kv := range strings.Fields(c.set) {
				if n, v, _ := strings.Cut(kv, "="); n == name {
					return v, true
				}
			}
			return "", false
		}
		for _, f := range []Framework{jax, tensorflow} {
			got, ok := f.Tasks(twoByTwo(0), nil, given)[0].Env.Lookup("no_grpc_proxy")
			if !ok {
				got = "-"
			}
			if got != c.want {
				t.Errorf("%s, %q: no_grpc_proxy %s, want %s", f.Name, c.set, got, c.want)
			}
		}
	}
}

// Where Paddle's trainers are to meet over HTTP is the first parameter server, whatever name a platform has for it.
func TestPaddleGloo(t *testing.T) {
	for asked, want := range map[string]string{"job-ps-0:36018": "eve:36018", "10.0.0.9:36018": "eve:36018", "job-ps-0": "-", "": "-"} {
		given := func(name string) (string, bool) { return asked, name == "PADDLE_GLOO_HTTP_ENDPOINT" && asked != "" }
		for group, p := range []Place{served(0), served(1), served(2), twoByTwo(0)} {
			got, ok := paddle.Tasks(p, nil, given)[0].Env.Lookup("PADDLE_GLOO_HTTP_ENDPOINT")
			if !ok {
				got = "-"
			}
			if p.Servers > 0 && got != want || p.Servers == 0 && ok {
				t.Errorf("%q, node %d: %s, want %s", asked, group, got, want)
			}
		}
	}
}

// A node that told too few ports is named.
func TestCheck(t *testing.T) {
	w := twoByTwo(0).World
	for _, f := range frameworks {
		if err := f.Check(w); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
	w.Members[1].Ports = w.Members[1].Ports[:1]
	if err := torch.Check(w); err != nil {
		t.Error(err)
	}
	if err := paddle.Check(w); err == nil || !strings.Contains(err.Error(), "node 1 (lee) told 1 ports for its 2 workers") {
		t.Error(err)
	}
}

func TestGuess(t *testing.T) {
	for _, c := range []struct{ script, want string }{
		{"import os\n", ""},
		{"import tensorflow as tf\n", "tensorflow"},
		{"from tensorflow.keras import layers\nimport tensorflow\n", "tensorflow"},
		{"from tensorflow import (\n keras)\n", "tensorflow"},
		{"import sys, tensorflow as tf\n", "tensorflow"},
		{"import paddle.distributed as dist", "paddle"},
		{"def main():\n    import jax\n", "jax"},
		{"import torch\n", "torch"},
		{"import tensorflow as tf\nimport torch\n", "tensorflow torch"},
		{"import torch, tensorflow as tf\n", "torch tensorflow"},
		{"import tensorflow as tf\nfrom accelerate import Accelerator\n", "tensorflow torch"},
		{"import jax\nimport tensorflow as tf\n", "jax tensorflow"},
		{"import tensorflow_datasets as tfds\n", ""},
		{"# import jax\nprint('import paddle')\n", ""},
		{"import torch\nimport horovod.torch as hvd\n", "horovod"},
		{"from horovod import tensorflow as hvd\nimport tensorflow\n", "horovod"},
		{"import torch\ntry:\n    import horovod.torch\nexcept ImportError:\n    pass\n", "torch"},
		{"\x80\x00import jax", ""},
		{"\"\"\"Trains.\n\nimport jax\n\"\"\"\nx = r'\\' + 'it''s'  # don't\nimport tensorflow\n", "tensorflow"},
		{"'''\nimport jax\n\\''' '''\nimport os\n", ""},
		{"x = 'not ended\nimport jax\n", "jax"},
		{"import keras\n", "tensorflow"},
		{"import torch\nimport keras\n", "torch"},
		{"import flax\nimport optax\n", "jax"},
		{"import tensorflow as tf\nfrom transformers import Trainer\n", "tensorflow torch"},
		{"import tensorflow as tf\ndef main():\n    import torch\n", "tensorflow torch"},
		{"from transformers import AutoModel\n", "torch"},
		{"from transformers import Trainer\ntry:\n    import tensorflow\nexcept ImportError:\n    pass\n", "torch tensorflow"},
		{"import paddle\ntry:\n    import torch  # to convert a checkpoint\nexcept ImportError:\n    torch = None\n", "paddle"},
		{"import torch\ndef log():\n    import tensorflow\n", "torch"},
	} {
		if got := named(Guess([]byte(c.script))); got != c.want {
			t.Errorf("%q: %q, want %q", c.script, got, c.want)
		}
	}
}

func named(all []Import) string {
	var names []string
	for _, i := range all {
		names = append(names, i.Framework)
	}
	return strings.Join(names, " ")
}

// A program's own modules count where it does not say itself what it is.
func TestGuessByModules(t *testing.T) {
	for _, c := range []struct{ script, module, want string }{
		{"from model import net\n", "import paddle\n", "paddle"},
		{"import tensorflow\n", "import torch\n", "tensorflow"},
		{"def main():\n    import torch\n", "import tensorflow\n", "tensorflow torch"},
		{"import model\n", "import torch\nimport horovod.torch\n", "horovod"},
		{"import model\n", "import os\n", ""},
	} {
		if got := named(Guess([]byte(c.script), []byte("import os\n"), []byte(c.module))); got != c.want {
			t.Errorf("%q with %q: %q, want %q", c.script, c.module, got, c.want)
		}
	}
}

func TestModules(t *testing.T) {
	const script = "import os, a.b as c\nfrom .d import e as f, g\nfrom . import h\nfrom i import (\n  j)\n    from k import *\n"
	if got, want := strings.Join(Modules([]byte(script)), " "), "os a.b .d .d.e .d.g . .h i k"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestLoaded(t *testing.T) {
	for maps, want := range map[string]string{
		"": "", "7f00-7f01 r--p 00000000 fe:00 7 /usr/lib/libc.so.6\n7f02-7f03 rw-p 00000000 00:00 0 [heap]\n": "",
		"7f00-7f01 r-xp 00000000 fe:00 7 /venv/tensorflow/libtensorflow_framework.so.2\n7f02-7f03 r--p 00000000 fe:00 7 /usr/lib/libtorch_python.so.1.13\n": "torch tensorflow",
		"7f00-7f01 r-xp 00000000 fe:00 7 /venv/paddle/base/libpaddle.so (deleted)\n":                                                                        "paddle",
		"7f00-7f01 r-xp 00000000 fe:00 7 /venv/jaxlib/libjax_common.so\n":                                                                                   "jax",
	} {
		if got := strings.Join(Loaded([]byte(maps)), " "); got != want {
			t.Errorf("%q: %q, want %q", maps, got, want)
		}
	}
}

func TestUserWins(t *testing.T) {
	set := map[string]string{"OMP_NUM_THREADS": "8", "RANK": "7", "PYTHONUNBUFFERED": ""}
	given := func(name string) (string, bool) { v, ok := set[name]; return v, ok }
	env := torch.Tasks(twoByTwo(1), nil, given)[0].Env
	for _, name := range []string{"OMP_NUM_THREADS", "PYTHONUNBUFFERED"} {
		if v, ok := env.Lookup(name); ok {
			t.Errorf("%s, which the user set, is overwritten with %q", name, v)
		}
	}
	if v, _ := env.Lookup("RANK"); v != "2" {
		t.Errorf("RANK, which counts nodes in the platform's words, stays %q", v)
	}
}

func TestAgentStore(t *testing.T) {
	p := twoByTwo(0)
	p.AgentStore = true
	env := torch.Tasks(p, nil, nothing)[0].Env
	if v, _ := env.Lookup("TORCHELASTIC_USE_AGENT_STORE"); v != "True" {
		t.Errorf("TORCHELASTIC_USE_AGENT_STORE=%s", v)
	}
}

func TestOneSlotKeepsThreads(t *testing.T) {
	p := twoByTwo(0)
	p.World.Members[0].Slots = 1
	env := torch.Tasks(p, nil, nothing)[0].Env
	if v, ok := env.Lookup("OMP_NUM_THREADS"); ok {
		t.Errorf("OMP_NUM_THREADS=%s for a single worker", v)
	}
}

func TestLookup(t *testing.T) {
	if f, err := Lookup(""); err != nil || f.Name != "torch" {
		t.Errorf("default: %q, %v", f.Name, err)
	}
	if _, err := Lookup("torhc"); err == nil || !strings.Contains(err.Error(), "torch") {
		t.Errorf("unknown framework: %v", err)
	}
}
