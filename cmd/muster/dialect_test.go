package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-run/muster/dialect"
)

// link makes a link to muster under another launcher's name.
func link(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(executable(t), path); err != nil {
		t.Fatal(err)
	}
	return path
}

// places writes a script that says where it is, and returns its directory.
func places(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	script := "import os, sys\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], os.environ['ROLE_NAME'], sys.argv[1:])\n"
	if err := os.WriteFile(filepath.Join(dir, "train"), []byte(script), 0o644); err != nil { // torchrun needs no .py
		t.Fatal(err)
	}
	return dir
}

// torchrun's command line starts the same job behind muster, behind muster run, as a module, and by a link of its name.
func TestTorchrunWords(t *testing.T) {
	t.Parallel()
	dir := places(t)
	flags := []string{"--nproc_per_node=2", "--role", "trainer", "train", "--x", "${local_rank}", "$$5"}
	for name, before := range map[string][]string{
		"behind muster":     {executable(t), "torchrun"},
		"behind muster run": {executable(t), "run", "--max-restarts", "1", "--", "torchrun"},
		"module":            {executable(t), "python3", "-u", "-m", "torch.distributed.run"},
		"module of run":     {executable(t), "run", "-m", "torch.distributed.run"},
		"link":              {link(t, "torchrun")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			startProgram(t, dir, nil, append(before, flags...)...).ends(0,
				"[rank 0] rank 0 of 2 trainer ['--x', '0', '$$5']\n", "[rank 1] rank 1 of 2 trainer ['--x', '1', '$$5']\n")
		})
	}
}

// torchrun's auto is a worker for each CPU where there is no GPU; muster's own is one worker.
func TestTorchrunAuto(t *testing.T) {
	t.Parallel()
	dir, n := places(t), runtime.NumCPU()
	muster(t, dir, nil, "torchrun", "--standalone", "--nproc-per-node", "auto", "train").
		ends(0, fmt.Sprintf("[rank %d] rank %d of %d default", n-1, n-1, n), fmt.Sprintf("one worker for each of %d CPUs, as --nproc-per-node auto has it", n))
	muster(t, dir, []string{"PET_NPROC_PER_NODE=auto"}, "torchrun", "--standalone", "train").ends(0, fmt.Sprintf("of %d default", n))
	muster(t, dir, []string{"PET_NPROC_PER_NODE=3", "PET_MAX_RESTARTS=x"}, "torchrun", "--standalone", "train").ends(2, "PET_MAX_RESTARTS")
	muster(t, dir, []string{"PET_NPROC_PER_NODE=3", "ROLE_NAME=x"}, "run", "--standalone", "--", "python3", "train").ends(0, "[rank 2] rank 2 of 3 ")
	muster(t, dir, []string{"ROLE_NAME=x"}, "run", "--standalone", "--nproc-per-node", "auto", "--", "python3", "train").ends(0, "of 1 ", "one worker on the CPU")
}

// Workers run under the Python of the launcher's own first line, however it is called, unless PYTHON_EXEC or a virtual environment says otherwise.
func TestPythonOfLauncher(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bin, own := filepath.Join(dir, "bin"), filepath.Join(dir, "venv/bin")
	python := func(name string) string { return "#!/bin/sh\nPYTHON_IS=" + name + " exec /usr/bin/python3 \"$@\"\n" }
	for name, text := range map[string]string{
		"bin/python3": python("PATH"), "venv/bin/python": python("own"), "other/bin/python": python("other"), "venv/bin/torchrun": "#!" + own + "/python\nraise ValueError\n",
		"env/torchrun": "#!/usr/bin/env python3\nraise ValueError\n", "broken/torchrun": "#!/gone/bin/python\n", "train.py": "import os\nprint('by', os.environ['PYTHON_IS'])\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(own+"/torchrun", bin+"/torchrun"); err != nil {
		t.Fatal(err)
	}
	path := "PATH=" + bin + ":/usr/bin:/bin"
	for _, c := range []struct{ line, variable, by string }{
		{"torchrun train.py", "", "own"},
		{"run -- bash -c 'torchrun train.py'", "", "own"},
		{"run -- " + own + "/torchrun train.py", "PATH=/usr/bin:/bin", "own"},
		{"run -- " + dir + "/env/torchrun train.py", "", "PATH"},
		{"run train.py", "", "PATH"},
		{"torchrun train.py", "VIRTUAL_ENV=" + dir + "/other", "other"},
		{"torchrun train.py", "PYTHON_EXEC=" + dir + "/other/bin/python", "other"},
	} {
		words := strings.Fields(c.line)
		if before, script, ok := strings.Cut(c.line, "'"); ok {
			words = append(strings.Fields(before), strings.Trim(script, "'"))
		}
		muster(t, dir, []string{path, c.variable}, words...).ends(0, "by "+c.by+"\n")
	}
	muster(t, dir, []string{path}, "env", "torchrun", "train.py").ends(0, "# python ", own+"/python ", "the first line of "+bin+"/torchrun")
	broken := "broken/torchrun itself could not run (start /gone/bin/python: no such file): the script runs under " + bin + "/python3"
	muster(t, dir, []string{path}, "run", "--", dir+"/broken/torchrun", "train.py").ends(0, broken, "by PATH\n")
	muster(t, dir, []string{path, "VIRTUAL_ENV=" + dir + "/other"}, "run", "--", dir+"/broken/torchrun", "train.py").ends(0, "by other\n")
	link := startProgram(t, dir, []string{path}, link(t, "torchrun"), "train.py") // which has no such line: the next one in PATH has
	link.ends(0, "by own\n")
}

// torch.distributed.launch tells scripts their local rank by a flag.
func TestTorchLaunch(t *testing.T) {
	t.Parallel()
	muster(t, places(t), nil, "python", "-m", "torch.distributed.launch", "--nproc_per_node", "2", "train", "a").
		ends(0, "rank 0 of 2 default ['--local-rank=0', 'a']\n", "rank 1 of 2 default ['--local-rank=1', 'a']\n")
}

// deepspeed tells scripts their local rank, too, leaves threads alone, and says which process muster is. A node that the job
// is to run without ends at once, and well.
func TestDeepspeedWords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := "import os, sys\nsee = lambda name: os.environ.get(name, '-')\n" +
		"print(sys.argv[1:], see('RANK'), see('OMP_NUM_THREADS'), see('CUDA_VISIBLE_DEVICES'))\n" +
		"pid = os.environ.get('PARENT'); print('saved', open('/tmp/' + pid + '.deepspeed').read() == pid if pid else '')\n"
	hosts := "localhost slots=2\nelsewhere slots=2\n"
	for name, text := range map[string]string{"train.py": script, "hosts": hosts, "start.sh": "PARENT=$$ exec \"$@\"\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	startProgram(t, dir, nil, "/bin/sh", "start.sh", executable(t), "deepspeed", "--num_gpus=2", "--save_pid", "train.py", "--x").
		ends(0, "['--local_rank=0', '--x'] 0 - 0,1\n", "['--local_rank=1', '--x'] 1 - 0,1\n", "saved True")
	muster(t, dir, nil, "deepspeed", "-H", "hosts", "-i", "elsewhere", "train.py").ends(0, "localhost, but the job is to run without it")
	muster(t, dir, nil, "deepspeed", "-H", "hosts", "-i", "nowhere", "train.py").ends(2, `-i nowhere: there is no node "nowhere"; there is localhost, elsewhere`)
}

// Paddle's launcher is muster paddle, though no program of that name is one.
func TestPaddleWords(t *testing.T) {
	t.Parallel()
	muster(t, places(t), nil, "paddle", "--nproc_per_node", "2", "--help").ends(0, "muster paddle: ")
	muster(t, places(t), nil, "paddle", "--bogus", "train.py").ends(2, "muster: paddle: there is no flag --bogus")
}

// What another launcher is asked for must agree with the rest.
func TestWrongWords(t *testing.T) {
	t.Parallel()
	dir := places(t)
	platform := []string{"PET_NNODES=4", "PET_NODE_RANK=1", "PET_MASTER_ADDR=h", "PET_MASTER_PORT=29500"}
	for _, c := range []struct {
		vars []string
		args []string
		says string
	}{
		{nil, []string{"torchrun"}, "torchrun: no script"},
		{nil, []string{"torchrun", "--nproc_per_nodes", "2", "train"}, "torchrun: there is no flag --nproc_per_nodes; did you mean --nproc-per-node?"},
		{nil, []string{"torchrun", "--nproc_per_node", "many", "train"}, "--nproc_per_node many is no number of workers"},
		{nil, []string{"run", "--nnodes", "2", "--", "torchrun", "--nnodes", "4", "train"}, "--nnodes 4 and muster's own --nnodes 2 say different things"},
		{platform, []string{"torchrun", "--nnodes", "2", "train"}, "--nnodes 2, but the platform says 4 nodes (PET_NNODES=4"},
		{platform, []string{"torchrun", "--nnodes", "4", "--node-rank", "2", "train"}, "--node-rank 2, but the platform says this is node 1"},
		{[]string{"CUDA_VISIBLE_DEVICES=3"}, []string{"torchrun", "--nproc-per-node", "2", "--virtual-local-rank", "train"}, "--virtual-local-rank: CUDA_VISIBLE_DEVICES=3 has 1 GPUs for 2 workers"},
		{nil, []string{"accelerate", "launch", "--num_processes", "2", "--num_machines", "2", "train"}, "2 nodes, but nothing says where they meet; say --main_process_ip and --main_process_port, the same"},
		{platform, []string{"torchrun", "--master-port", "0", "train"}, "--master-port 0 is a free port, of which the other ones of 4 nodes would not know (PET_NNODES=4"},
		{platform[:2], []string{"accelerate", "launch", "--num_processes", "2", "--main_process_port", "0", "train"}, "--main_process_port 0 is a free port, of which the other ones of 4 nodes would not know (PET_NNODES=4"},
		{nil, []string{"run", "--nnodes", "2", "--", "torchrun", "--master-addr", "h", "--master-port", "0", "train"}, "--master-port 0 is a free port, of which the other ones of 2 nodes would not know (--nnodes 2)"},
		{nil, []string{"torchrun", "--standalone", "--nnodes", "2", "train"}, "--standalone means one node, --nnodes 2 more"},
		{nil, []string{"torchrun", "--logs-specs", "mine", "train"}, "--logs-specs is not in muster: leave it out: only default can be"},
		{[]string{"MUSTER_HOOK=off"}, []string{"run", "--", "bash", "-c", "set -e; python3 -m torch.distributed.run train"}, "call torchrun by its bare name"},
		{[]string{"MUSTER_HOOK=off"}, []string{"run", "--", "bash", "-c", "/opt/bin/torchrun train"}, "calls /opt/bin/torchrun, which would start workers in each worker"},
	} {
		muster(t, dir, c.vars, c.args...).ends(2, c.says)
	}
}

// A link called inside a worker is the script, if it asks for the world that is there, and starts nothing else.
func TestLauncherInWorker(t *testing.T) {
	t.Parallel()
	dir, torchrun := places(t), link(t, "torchrun")
	muster(t, dir, nil, "run", "--nproc-per-node", "2", "--", "env", torchrun, "--nproc-per-node", "2", "--role", "r", "train", "a").
		ends(0, "rank 0 of 2 r ['a']\n", "rank 1 of 2 r ['a']\n")
	muster(t, dir, nil, "run", "--nproc-per-node", "2", "--", "env", torchrun, "--nproc-per-node", "4", "train").
		ends(2, "--nproc-per-node says 4 workers on each node, but the job has 2", "leave that out, or say it to muster run, too: --nproc-per-node 4")
	piped := torchrun + " --nproc-per-node 4 train | cat"
	muster(t, dir, nil, "run", "--nproc-per-node", "2", "--", "env", "sh", "-c", piped).ends(2, "exited with code 2", "--nproc-per-node says 4 workers on each node, but the job has 2")
	muster(t, dir, nil, "run", "--", "env", "sh", "-c", piped).ends(2, "exited with code 2", "--nproc-per-node says 4 workers on each node, but the job has 1")
}

// muster run is no different there: who calls it in each of several workers means the job that is there. A single worker may start jobs.
func TestRunInWorker(t *testing.T) {
	t.Parallel()
	dir := places(t)
	if err := os.Rename(filepath.Join(dir, "train"), filepath.Join(dir, "train.py")); err != nil {
		t.Fatal(err)
	}
	call := func(flags ...string) []string {
		return append([]string{"run", "--nproc-per-node", "2", "--", "env", executable(t), "run"}, flags...)
	}
	muster(t, dir, nil, call("--nnodes", "1", "--nproc-per-node", "auto", "--max-restarts", "2", "train.py", "a")...).
		ends(0, "[rank 0] rank 0 of 2 default ['a']\n", "[rank 1] rank 1 of 2 default ['a']\n", "--max-restarts change nothing, for the job runs already")
	muster(t, dir, nil, call("--", "torchrun", "--role", "r", "train.py")...).ends(0, "rank 0 of 2 r []\n", "rank 1 of 2 r []\n")
	muster(t, dir, nil, call("--nproc-per-node", "4", "train.py")...).ends(2, "run in a worker of muster: --nproc-per-node says 4 workers on each node, but the job has 2")
	muster(t, dir, nil, call("--nnodes", "2", "train.py")...).ends(2, "--nnodes says 2 nodes, but the job has 1")
	muster(t, dir, []string{bypass + "=1"}, call("--standalone", "--nproc-per-node", "1", "train.py")...).ends(0, "rank 0 of 1 default []\n")
	muster(t, dir, nil, "run", "--nproc-per-node", "1", "--", "env", executable(t), "run", "--nproc-per-node", "2", "train.py").ends(0, "rank 1 of 2 default []\n")
}

// MUSTER_BYPASS makes a link what it stands for: here a program of that name further on in PATH.
func TestBypass(t *testing.T) {
	t.Parallel()
	real := t.TempDir()
	if err := os.WriteFile(filepath.Join(real, "torchrun"), []byte("#!/bin/sh\necho real \"$@\"\nexit 7\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	torchrun := link(t, "torchrun")
	path := "PATH=" + filepath.Dir(torchrun) + ":" + real + ":" + os.Getenv("PATH")
	startProgram(t, t.TempDir(), []string{path, bypass + "=1"}, torchrun, "--nnodes", "2", "x").ends(7, "real --nnodes 2 x\n")
}

// Where there is no such program it is its module in Python: of accelerate-launch the one that launches.
func TestBypassModule(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"accelerate/commands/launch.py", "accelerate/commands/accelerate_cli.py"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("import sys\nprint(__name__, '"+name+"', sys.argv[1:])\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for call, want := range map[string]string{
		"accelerate-launch --cpu x.py": "accelerate/commands/launch.py ['--cpu', 'x.py']", "accelerate launch x.py": "accelerate/commands/accelerate_cli.py ['launch', 'x.py']",
		"accelerate env": "accelerate/commands/accelerate_cli.py ['env']",
	} {
		words := strings.Fields(call)
		program := link(t, words[0])
		vars := []string{"PATH=" + filepath.Dir(program) + ":/usr/bin:/bin", "PYTHONPATH=" + dir, bypass + "=1"}
		startProgram(t, dir, vars, append([]string{program}, words[1:]...)...).ends(0, "__main__ "+want)
	}
}

// A real launcher in a worker is refused by name, before it starts anything; in a world of one it may be meant so.
func TestRealLauncherInWorker(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"torchrun", "accelerate"} {
		script := "import sys\nprint('real', sys.argv[1:])\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	muster(t, dir, nil, "run", "--nproc-per-node", "2", "--", "env", "python3", "-u", "./torchrun", "x").
		ends(2, "torchrun in a worker would start workers in each of the job's 2", ", or make torchrun a link to muster;")
	muster(t, dir, nil, "run", "--nproc-per-node", "2", "--", "env", "python3", "accelerate", "launch", "x").
		ends(2, "accelerate in a worker would start workers in each of the job's 2")
	muster(t, dir, nil, "run", "--nproc-per-node", "2", "--", "env", "python3", "-m", "torch.distributed.run", "x").
		ends(2, "python -m torch.distributed.run in a worker would start workers", "(muster run -- python -m torch.distributed.run ...); MUSTER_BYPASS")
	muster(t, dir, nil, "run", "--nproc-per-node", "2", "--", "sh", "-c", `python3 "$0" x | cat`, filepath.Join(dir, "torchrun")). // the pipe ends well
																	ends(2, "exited with code 2: torchrun in a worker would start workers")
	muster(t, dir, nil, "run", "--nproc-per-node", "2", "--", "env", "python3", "accelerate", "env").ends(0, "real ['env']")
	muster(t, dir, nil, "run", "--nproc-per-node", "1", "--", "env", "python3", "torchrun", "x").ends(0, "real ['x']")
	muster(t, dir, []string{bypass + "=1"}, "run", "--nproc-per-node", "2", "--", "env", "python3", "torchrun", "x").ends(0, "real ['x']")
}

// So is one that the hook is not in, for what calls it imported PyTorch before: it is found from outside, and stopped.
func TestRealLauncherUnhooked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"torchrun": "import os, signal, sys\nif sys.argv[1] == 'waits': signal.pause()\nprint('real', sys.argv[1:])\n",
		"wrap.py":  "import os, subprocess, sys\ndel os.environ['PYTHONPATH']\nsys.exit(subprocess.call([sys.executable, '-u', 'torchrun', sys.argv[1]]) and 9)\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := muster(t, dir, nil, "run", "--nproc-per-node", "2", "wrap.py", "waits")
	p.ends(2, "torchrun in a worker would start workers in each of the job's 2; let muster start it", "; it was stopped", "exited with code 2: ")
	muster(t, dir, nil, "run", "--nproc-per-node", "2", "wrap.py", "ends").ends(0, "real ['ends']")
}

// The hook knows every launcher that muster knows.
func TestHookKnowsLaunchers(t *testing.T) {
	hook, err := os.ReadFile("../../heartbeat/page/hook/_muster_hook.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dialect.All() {
		for _, name := range append(slices.Clone(d.Modules), dialect.Programs()...) {
			if name != "paddle" && !strings.Contains(string(hook), `"`+name+`"`) { // which is no program of Paddle's
				t.Errorf("the hook does not know %s", name)
			}
		}
	}
}

// The hook reads Python's command lines as muster does.
func TestHookReadsLines(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../dialect/testdata/calls.txt")
	if err != nil {
		t.Fatal(err)
	}
	const ask = "import sys\nsys.path.insert(0, sys.argv[1])\nimport _muster_hook as h\nfor line in sys.stdin:\n  said, program, *args = line.split()\n" +
		"  if said != '#' and program[6:].strip('.0123456789') == '' and (h.launcher(args) is not None) != (said == 'yes'): print(line)\n"
	cmd := exec.Command("python3", "-c", ask, "../../heartbeat/page/hook")
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}

// muster doctor tells links to muster from the real programs, and knows which Python those are of.
func TestDoctor(t *testing.T) {
	t.Parallel()
	dir, torchrun := t.TempDir(), link(t, "torchrun")
	python := filepath.Join(dir, "python3")
	for path, text := range map[string]string{
		python:                          "#!/bin/sh\necho torch 2.9\n",
		filepath.Join(dir, "torchrun"):  "#!" + python + "\n",
		filepath.Join(dir, "deepspeed"): "#!" + python + "\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path := "PATH=" + filepath.Dir(torchrun) + ":" + dir
	muster(t, dir, []string{path}, "doctor").ends(0,
		torchrun+" (muster)", "behind it: "+filepath.Join(dir, "torchrun"), filepath.Join(dir, "deepspeed")+", torch 2.9",
		"advice: deepspeed is not muster: write muster deepspeed", "scripts are run by", python+"\n")
	muster(t, dir, []string{path}, "doctor", "--json").ends(0, `{"word":"torchrun","runs":"`+torchrun+`","muster":true`)
}

// An agent that takes over goes on with what the first one understood, whatever became of the files; the next round's workers, too.
func TestTakeoverWithoutFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	train := "import os, sys, time\nprint('round', os.environ['TORCHELASTIC_RESTART_COUNT'], os.environ['ACCELERATE_MIXED_PRECISION'], flush=True)\n" +
		"if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n  while not os.path.exists('go'): time.sleep(0.02)\n  sys.exit(5)\n"
	for name, text := range map[string]string{"train.py": train, "c.yaml": "distributed_type: 'NO'\nmixed_precision: bf16\nnum_processes: 1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := muster(t, dir, nil, "run", "--max-restarts", "1", "--", "accelerate", "launch", "--config_file", "c.yaml", "train.py")
	p.says("round 0 bf16")
	if err := os.Remove(filepath.Join(dir, "c.yaml")); err != nil {
		t.Fatal(err)
	}
	syscall.Kill(agentOf(t, p.cmd.Process.Pid), syscall.SIGKILL)
	p.says("took over")
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	p.ends(0, "round 1 bf16")
}
