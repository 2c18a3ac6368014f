package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-run/muster/job"
)

// A shell script that calls a launcher is run once, and the launcher in it is muster, with the flags before it. The end of the
// shell, which dies of a signal at once, is not the end of the job.
func TestShellScript(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	train := "import os, signal, sys, time\n" +
		"def save(*_):\n  time.sleep(1)\n  print('saved', os.environ['RANK'])\n  sys.exit(0)\n" +
		"signal.signal(signal.SIGTERM, save)\nprint('ready', os.environ['RANK'], os.environ['TORCHELASTIC_MAX_RESTARTS'], flush=True)\nwhile True: time.sleep(0.01)\n"
	script := "#!/bin/bash\nset -e\nexport N=2\necho once # torchrun follows\ntorchrun --nproc-per-node $N \\\n  train.py\necho never\n"
	for name, text := range map[string]string{"train.py": train, "train.sh": script} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p := muster(t, dir, nil, "run", "--max-restarts", "3", "./train.sh")
	p.says("ready 0 3")
	p.says("ready 1 3")
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.ends(143, "./train.sh calls torchrun: it is run once, and muster is to take the launcher's place in it", "once\n", "saved 0", "saved 1", "was told to stop by SIGTERM; exit 143")
	if left, _ := filepath.Glob(filepath.Join(p.tmp, "muster-links-*")); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// A script that loses the links still gets muster by the launcher's name: by the hook for Python, whatever the script did to PATH or how it
// calls the launcher, and where there is no hook, by functions of bash. What it had in BASH_ENV is read, and the workers see neither.
func TestShellLosesLinks(t *testing.T) {
	t.Parallel()
	dir, conda := t.TempDir(), t.TempDir()
	train := "import os, sys\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], sys.executable,\n" +
		"  [n for n in sorted(os.environ) if n in ('BASH_ENV', 'PYTHONPATH') or n.startswith('MUSTER_') and n[7:12] in ('LINKS', 'BASH_', 'SHELL')],\n" +
		"  os.environ.get('BASH_ENV'), 'muster-links' in os.environ.get('PYTHONPATH', ''))\n"
	python := filepath.Join(conda, "python3")
	for path, text := range map[string]string{
		filepath.Join(dir, "train.py"):   train,
		filepath.Join(dir, "mine"):       "OWN=read\n",
		filepath.Join(conda, "torchrun"): "#!" + python + "\nprint('the real one')\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/usr/bin/python3", python); err != nil {
		t.Fatal(err)
	}
	words := " --nproc-per-node 2 train.py"
	for name, c := range map[string]struct{ hook, shell, script, sees string }{
		"function":     {"off", "bash", "echo $OWN; export PATH=" + conda + ":/usr/bin:/bin; unset PYTHONPATH; torchrun" + words, "['BASH_ENV']"},
		"login shell":  {"off", "bash -l", "export PATH=" + conda + ":/usr/bin:/bin PYTHONPATH=.; torchrun" + words + " | cat", "['BASH_ENV', 'PYTHONPATH']"},
		"another bash": {"off", "sh", "PATH=" + conda + ":/usr/bin:/bin PYTHONPATH= bash -c 'torchrun" + words + "'", "['BASH_ENV']"},
		"hook":         {"", "sh", "PATH=" + conda + ":/usr/bin:/bin; exec torchrun" + words, "['BASH_ENV', 'PYTHONPATH']"},
		"hook in bash": {"", "bash", "echo $OWN; PATH=" + conda + ":/usr/bin:/bin; torchrun" + words, "['BASH_ENV', 'PYTHONPATH']"},
		"by path":      {"", "sh", conda + "/torchrun" + words, "['BASH_ENV', 'PYTHONPATH']"},
		"module":       {"", "sh", conda + "/python3 -W ignore -m torch.distributed.run" + words, "['BASH_ENV', 'PYTHONPATH']"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := slices.Concat([]string{"run", "--"}, strings.Fields(c.shell), []string{"-c", c.script})
			p := muster(t, dir, []string{"BASH_ENV=$PWD/mine", "MUSTER_HOOK=" + c.hook}, args...)
			p.ends(0, "muster is to take the launcher's place in it", "[rank 1] rank 1 of 2 "+python+" "+c.sees+" $PWD/mine False\n")
			if strings.Contains(p.out.String(), "the real one") || strings.Contains(c.script, "$OWN") && !strings.Contains(p.out.String(), "read\n") {
				t.Error(p.out.String())
			}
		})
	}
}

// What a script finds by the launcher's name is a file, in bash too.
func TestShellFindsLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte("import os\nprint('rank', os.environ['RANK'])\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, script := range []string{
		`[ -x "$(command -v torchrun)" ] || exit 1; torchrun --nproc-per-node 2 train.py`,
		`if false; then torchrun x; fi; python3 $(command -v torchrun) --nproc-per-node 2 train.py`,
	} {
		muster(t, dir, nil, "run", "--", "bash", "-c", script).ends(0, "[rank 1] rank 1\n")
	}
	for _, script := range []string{
		`LAUNCHER="torchrun --nproc-per-node 2"; if ! $LAUNCHER train.py; then exit 1; fi`,
		`set -- torchrun train.py; case $# in 2) >log nice -n 1 env -u X A=b timeout -k 5 600 torchrun --nproc-per-node 2 train.py; cat log ;; esac`,
		`CMD="torchrun --nproc-per-node 2"; eval "$CMD train.py"`,
	} {
		for _, shell := range []string{"bash", "dash"} {
			muster(t, dir, nil, "run", "--", shell, "-c", script).ends(0, "calls torchrun: it is run once", "[rank 1] rank 1\n")
		}
	}
}

// A real launcher that muster cannot take the place of is stopped, for it would train apart.
func TestShellRunsRealLauncher(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "torchrun"), []byte("#!/usr/bin/python3\nimport sys, time\nprint('apart', flush=True)\nend = time.monotonic() + (4 if 'brief' in sys.argv else 1e9)\n"+
		"while time.monotonic() < end: time.sleep(0.02)\nsys.exit(9)\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := muster(t, dir, nil, "run", "--verdict", "v.json", "--", "bash", "-c", "if false; then torchrun x; fi; export PATH=$PWD:/usr/bin; unset PYTHONPATH; torchrun x.py; echo went on")
	p.ends(2, "apart", "torchrun (pid ", "which is not muster: stopping it", "would train apart from the job's other nodes: it was stopped")
	if v, err := os.ReadFile(filepath.Join(dir, "v.json")); err != nil || !strings.Contains(string(v), `"exit_code": 2`) {
		t.Errorf("%v: %s", err, v)
	}
	muster(t, dir, nil, "run", "--", "sh", "-c", "if false; then torchrun x; fi; "+bypass+"=1 env -u PYTHONPATH python3 ./torchrun brief").ends(9, "apart")
}

// What a script has of launchers' names is its own where it is no launcher: a tool of the name ds, and one that looks whether another launcher
// is there finds none.
func TestShellLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	dir, bin := t.TempDir(), t.TempDir()
	own := "#!/usr/bin/python3\nimport os, sys, time\nend = time.monotonic() + (4 if 'long' in sys.argv else 0)\nwhile time.monotonic() < end: time.sleep(0.02)\nprint('my own', *sys.argv[1:])\n"
	for path, text := range map[string]string{filepath.Join(bin, "ds"): own, filepath.Join(bin, "torchrun"): "#!/bin/false\n", filepath.Join(dir, "x.py"): "print('trained')\n"} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	vars := []string{"PATH=" + bin + ":/usr/bin:/bin"}
	muster(t, dir, vars, "run", "--", "bash", "-c", "torchrun x.py; ds push; env -u PYTHONPATH ds long run; "+
		"command -v deepspeed || python3 -c 'import shutil; print(\"found\", shutil.which(\"accelerate\"))'").
		ends(0, "calls torchrun", "trained", "my own push\n", "my own long run\n", "found None\n")
	muster(t, dir, vars, "run", "--", "bash", "-c", "ds push").ends(0, "my own push\n") // it is a worker
	muster(t, dir, vars, "run", "--", "ds", "push").ends(0, "ds is not DeepSpeed's", "my own push\n")
	muster(t, dir, vars, "run", "--", filepath.Join(bin, "ds"), "push").ends(0, "my own push\n")
	muster(t, dir, vars, "ds", "--num_gpus", "1", "x.py").ends(0, "trained")
	if err := os.WriteFile(filepath.Join(bin, "deepspeed"), []byte("#!/bin/false\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	muster(t, dir, vars, "run", "--", "ds", "--num_gpus", "1", "x.py").ends(0, "trained")
	if err := os.Remove(filepath.Join(bin, "deepspeed")); err != nil {
		t.Fatal(err)
	}
	muster(t, dir, vars, "run", "--", "bash", "-c", "accelerate launch --num_processes 1 x.py").ends(0, "calls accelerate launch", "trained")
}

// A shell within the shell, in which a function of bash waits, may be told to end by its number. Then muster is.
func TestShellInBackground(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	train := "import os, signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(print('told', flush=True)))\nopen('up', 'w').close()\nwhile True: time.sleep(0.02)\n"
	if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte(train), 0o644); err != nil {
		t.Fatal(err)
	}
	script := "torchrun train.py & while [ ! -e up ]; do sleep 0.05; done; kill $!; wait $!; echo ended $?; while [ ! -e v.json ]; do sleep 0.05; done; exit 5"
	for _, hook := range []string{"", "off"} {
		muster(t, dir, []string{"MUSTER_HOOK=" + hook}, "run", "--verdict", "v.json", "--", "bash", "-c", "rm -f up v.json; "+script).ends(5, "ended 143", "told\n")
	}
}

// Flags of muster run before a script count in it, and what the launcher says there must not be something else.
func TestFlagsBeforeShell(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	train := "import os\nprint('rank', os.environ['RANK'], os.environ['WORLD_SIZE'], os.environ['TORCHELASTIC_MAX_RESTARTS'], os.environ.get('MUSTER_SHELL_FLAGS'))\n"
	if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte(train), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(script string, flags ...string) *program {
		return muster(t, dir, nil, append(append([]string{"run"}, flags...), "--", "sh", "-c", script)...)
	}
	run("torchrun --nproc-per-node 2 train.py", "--max_restarts", "3").ends(0, "rank 1 2 3 None")
	run("torchrun --nproc-per-node 2 train.py", "--nproc_per_node=2").ends(0, "rank 1 2 0 None")
	run("torchrun --nproc_per_node 2 train.py", "--nproc-per-node", "1").
		ends(2, "--nproc_per_node 2 and muster's own --nproc-per-node 1 say different things")
	run("muster run --nproc-per-node 2 train.py; exit $?", "--nproc-per-node", "2").ends(0, "rank 0 2 0 None")
	run("muster run --nproc-per-node 2 train.py", "--nproc-per-node", "1").
		ends(2, "--nproc-per-node here and --nproc-per-node 1 before the script say different things")
}

// muster env looks into a script as muster run does, as far as its text says what the launcher is told.
func TestEnvOfShell(t *testing.T) {
	t.Parallel()
	dir := places(t)
	if err := os.WriteFile(filepath.Join(dir, "s.sh"), []byte("set -e\ntorchrun --nproc-per-node 2 --role r \\\n  train a >log\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	muster(t, dir, nil, "env", "--rank", "1", "--max-restarts", "4", "--", "bash", "s.sh").
		ends(0, "# note: as s.sh calls torchrun", "WORLD_SIZE=2 ", "ROLE_NAME=r ", "TORCHELASTIC_MAX_RESTARTS=4 ", `"train" "a"]`)
	muster(t, dir, nil, "env", "--nproc-per-node", "3", "--", "bash", "s.sh").ends(2, "--nproc-per-node 2 and muster's own --nproc-per-node 3 say different things")
	muster(t, dir, nil, "env", "--", "bash", "-c", "muster run --nproc-per-node 2 -- train").ends(127, "train")
	muster(t, dir, nil, "env", "--", "bash", "-c", "torchrun --nnodes $N train").ends(2, "calls torchrun with $N, of which only the shell knows what it is")
}

// muster env shows all that muster adds to a worker's environment, and with --diff what changes alone: as a worker sees it.
func TestEnvIsWhatWorkersGet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte("import os\nprint('names', *sorted(os.environ))\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	vars := []string{"OMP_NUM_THREADS=1", "ROLE_NAME=mine", "MUSTER_TOKEN=secret-secret-secret", "PYTHONPATH=/x"}
	args := []string{"--nproc-per-node", "2", "train.py"}
	p := muster(t, dir, vars, append([]string{"run"}, args...)...)
	p.ends(0, "names ")
	_, rest, _ := strings.Cut(p.out.String(), "names ")
	rest, _, _ = strings.Cut(rest, "\n")
	env := muster(t, dir, vars, append([]string{"env"}, args...)...)
	env.ends(0, "ROLE_NAME=default ", `(was "mine")`)
	for _, name := range strings.Fields(rest) {
		own := os.Getenv(name) != "" || strings.Contains(name, "PYENV") || slices.Contains([]string{asMuster, "GORACE", "TMPDIR", "LC_CTYPE", "OMP_NUM_THREADS"}, name)
		if !own && !strings.Contains(env.out.String(), "\n"+name+"=") {
			t.Errorf("a worker has %s, of which muster env does not tell", name)
		}
	}
	diff := muster(t, dir, vars, append([]string{"env", "--diff"}, args...)...)
	diff.ends(0, "-ROLE_NAME=mine\n+ROLE_NAME=default ", "-MUSTER_TOKEN ", "-PYTHONPATH=/x\n+PYTHONPATH=<directory of the run>/hook:/x ", "+RANK=0 ")
	if said := diff.out.String(); strings.Contains(said, "OMP_NUM_THREADS") || strings.Contains(said, "secret") {
		t.Error(said)
	}
}

// What another launcher's words add for workers is in the difference, too.
func TestEnvDiffOfDialect(t *testing.T) {
	t.Parallel()
	dir := places(t)
	vars := []string{"OMP_NUM_THREADS=7", "ACCELERATE_MIXED_PRECISION=no"}
	line := []string{"accelerate", "launch", "--num_processes", "2", "--cpu", "--mixed_precision", "bf16", "--num_cpu_threads_per_process", "3", "train"}
	diff := muster(t, dir, vars, append([]string{"env", "--diff"}, line...)...)
	diff.ends(0, "-ACCELERATE_MIXED_PRECISION=no\n+ACCELERATE_MIXED_PRECISION=bf16 ", "-OMP_NUM_THREADS=7\n+OMP_NUM_THREADS=3 ", "+ACCELERATE_USE_CPU=True")
	muster(t, dir, vars, append([]string{"env"}, line...)...).ends(0, `(was "7")`, `(was "no")`)
	diff = muster(t, dir, vars, "env", "--diff", "--", "bash", "-c", strings.Join(line, " "))
	diff.ends(0, "+ACCELERATE_MIXED_PRECISION=bf16 ")
	if said := diff.out.String(); strings.Contains(said, "MUSTER_SHELL_FLAGS") {
		t.Error(said)
	}
}

// A shell script that calls a launcher somewhere, but ends without having done so, has trained nothing that muster knows of.
func TestShellNeverCalls(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	words := filepath.Join(dir, "words")
	if err := os.WriteFile(words, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	vars := []string{terminationLog + "=" + words}
	muster(t, dir, vars, "run", "--", "bash", "-c", "if false; then torchrun x.py; fi; echo alone").
		ends(2, "alone\n", "has ended, and never called torchrun by the link to muster")
	if err := os.WriteFile(filepath.Join(dir, "hosts"), []byte("localhost slots=1\nelsewhere slots=1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	muster(t, dir, nil, "run", "--", "sh", "-c", "deepspeed -H hosts -i elsewhere x.py").ends(0, "localhost, but the job is to run without it")
	muster(t, dir, nil, "run", "--", "sh", "-c", "muster run -- sh -c 'torchrun --help'").ends(0, "torchrun")
	muster(t, dir, vars, "run", "--verdict", "v.json", "--", "bash", "-c", "if false; then torchrun x.py; fi; exit 7").
		ends(7, "the command line ended with exit code 7 before it called torchrun")
	for _, file := range []string{words, filepath.Join(dir, "v.json")} {
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "ended with exit code 7 before it called torchrun") {
			t.Errorf("%s: %v: %s", file, err, text)
		}
	}
}

// A launcher that a script calls with words that cannot be right was called: the verdict and the termination log have what it said.
func TestShellCallsWrongly(t *testing.T) {
	t.Parallel()
	for call, want := range map[string]string{
		"torchrun --bogus 1 train.py": "torchrun: ", "muster run --bogus 1 train.py": "run: ", "torchrun --nproc-per-node 2 x.py": "say different things",
	} {
		dir := t.TempDir()
		words := filepath.Join(dir, "words")
		if err := os.WriteFile(words, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		muster(t, dir, []string{terminationLog + "=" + words}, "run", "--nproc-per-node", "1", "--verdict", "v.json", "--", "bash", "-c", call+" || exit 3").ends(3, want)
		for _, file := range []string{words, filepath.Join(dir, "v.json")} {
			if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), want) || strings.Contains(string(text), "before it called") {
				t.Errorf("%s: %s: %v: %s", call, file, err, text)
			}
		}
	}
}

// A job that a script leaves running is waited for: its end is that of all, signals reach it, also in a session of its own, and what was made for
// the script is gone then.
func TestShellLeavesJob(t *testing.T) {
	t.Parallel()
	train := "import os, signal, sys, time\n" +
		"signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('saved', os.environ['RANK'], flush=True)))\n" +
		"print('up', flush=True)\nwhile not os.path.exists('over'): time.sleep(0.01)\nsys.exit(7)\n"
	words := " --nproc-per-node 2 train.py"
	for name, c := range map[string]struct{ shell, script, left string }{
		"bash":        {"bash", "torchrun" + words + " &", "ended, and left torchrun running"},
		"dash":        {"dash", "torchrun" + words + " &", "ended, and left torchrun running"},
		"nohup":       {"bash", "nohup torchrun" + words + " 2>&1 &", "ended, and left torchrun running"},
		"subshell":    {"bash", "( torchrun" + words + "; echo behind ) &", "ended, and left torchrun running"},
		"the second":  {"dash", "torchrun --help >/dev/null; { until [ -e left ]; do sleep 0.05; done; torchrun" + words + "; } & : >left", "ended, and left torchrun running"},
		"own session": {"dash", "setsid torchrun" + words + " &", "ended, and left torchrun running"},
		"own group":   {"bash", "set -m; torchrun" + words + " & wait; exit 7", "up"},
		"wait":        {"dash", "torchrun" + words + " & wait $!", "up"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte(train), 0o644); err != nil {
				t.Fatal(err)
			}
			p := muster(t, dir, nil, "run", "--", c.shell, "-c", c.script)
			p.says(c.left)
			p.says("up")
			if err := os.WriteFile(filepath.Join(dir, "over"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			p.ends(7, "exit 7")
			if err := os.Remove(filepath.Join(dir, "over")); err != nil {
				t.Fatal(err)
			}
			runs := []*program{p}
			for s, code := range map[syscall.Signal]int{syscall.SIGTERM: job.ExitTERM, syscall.SIGINT: job.ExitINT} {
				os.Remove(filepath.Join(dir, "left"))
				q := muster(t, dir, nil, "run", "--", c.shell, "-c", c.script)
				q.says(c.left)
				q.says("[rank 0] up")
				q.says("[rank 1] up")
				if name == "dash" && s == syscall.SIGTERM {
					q.cmd.Process.Signal(syscall.SIGQUIT) // which says where muster stands, and ends nothing
					q.says("goroutine 1 [")
				}
				q.cmd.Process.Signal(s)
				q.ends(code, "saved 0", "saved 1", fmt.Sprintf("was told to stop by %s; exit %d", job.SignalName(s), code))
				runs = append(runs, q)
			}
			for _, p := range runs {
				if left, _ := filepath.Glob(filepath.Join(p.tmp, "muster-links-*")); len(left) > 0 {
					t.Errorf("left %q", left)
				}
			}
		})
	}
}

// A script that leaves something else running and never calls a launcher has trained nothing; one that hides a job's failure is told of.
func TestShellLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte("raise SystemExit(7)\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	muster(t, dir, nil, "run", "--", "bash", "-c", "if false; then torchrun x; fi; sleep 600 >/dev/null 2>&1 & echo $! >pid").ends(2, "never called torchrun by the link to muster")
	pid, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := strconv.Atoi(strings.TrimSpace(string(pid))); n > 1 {
		_ = syscall.Kill(n, syscall.SIGKILL)
	}
	muster(t, dir, nil, "run", "--verdict", "v.json", "--", "dash", "-c", "torchrun --bogus 1 train.py &").ends(2, "there is no flag --bogus")
	if v, err := os.ReadFile(filepath.Join(dir, "v.json")); err != nil || !strings.Contains(string(v), "--bogus") {
		t.Errorf("%v: %s", err, v)
	}
	muster(t, dir, nil, "run", "--", "dash", "-c", "torchrun train.py | cat").ends(0, "ended well, though the last job in it ended with 7")
}

// What is found to be wrong only when the job begins is in the verdict, too.
func TestVerdictOnLateWrongs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ variable, flags, command, want string }{
		{"MUSTER_MAX_RESTARTS=x", "", "dash -c torchrun=train.py", "MUSTER_MAX_RESTARTS"},
		{"", "--fold --log-format=json", "dash -c torchrun=train.py", "lines of several ranks are no lines of one"},
		{"", "--fold --log-format=json", "train.py", "lines of several ranks are no lines of one"},
	} {
		dir := t.TempDir()
		args := strings.Fields("run --verdict v.json " + c.flags + " --")
		for _, word := range strings.Fields(c.command) {
			args = append(args, strings.ReplaceAll(word, "=", " "))
		}
		muster(t, dir, []string{c.variable}, args...).ends(2, c.want)
		if v, err := os.ReadFile(filepath.Join(dir, "v.json")); err != nil || !strings.Contains(string(v), c.want) {
			t.Errorf("%q: %v: %s", args, err, v)
		}
	}
}

// A launcher that was killed while its script ran is the script's matter, which knows it. One that was killed behind the script's end is not.
func TestShellKillsJob(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte("import sys, time\nopen(sys.argv[1], 'w')\nwhile sys.argv[1] == 'up': time.sleep(1)\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const script = "torchrun --nproc-per-node 1 train.py up & until [ -e up ]; do sleep 0.05; done; kill -9 $!; wait $!; torchrun --nproc-per-node 1 train.py second"
	muster(t, dir, nil, "run", "--", "dash", "-c", script).ends(0)
	if _, err := os.Stat(filepath.Join(dir, "second")); err != nil {
		t.Error(err)
	}
	code := func(n int) *int { return &n }
	for name, c := range map[string]struct {
		after, before called
		alive         []int
		want          int
	}{
		"in the script":        {called{{PID: 1}, {PID: 2}, {PID: 2, Code: code(0)}}, called{{PID: 1}, {PID: 2}, {PID: 2, Code: code(0)}}, nil, 0},
		"behind it":            {called{{PID: 1}, {PID: 2}, {PID: 2, Code: code(0)}}, called{{PID: 1}, {PID: 2}}, []int{1, 2}, killed},
		"called behind it":     {called{{PID: 1}, {PID: 2}}, called{{PID: 1}}, nil, killed},
		"another failed there": {called{{PID: 1}, {PID: 2}, {PID: 2, Code: code(7)}}, called{{PID: 1}, {PID: 2}}, []int{2}, 7},
	} {
		if got := c.after.after(c.before, c.alive); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// Where links cannot all be made, those that were are removed.
func TestLinksThatFail(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir, err := linkDir([]string{"torchrun", "no/such"})
	if err == nil || dir == "" {
		t.Errorf("%q, %v: runShell cannot remove what it is not told of", dir, err)
	}
}

// A shell without a script would run nothing, and end well: standard input is no worker's, unless --stdin gives it to one.
func TestShellReadsInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, command := range []string{"bash", "sh -s x", "bash /dev/stdin"} {
		muster(t, dir, nil, append([]string{"run", "--"}, strings.Fields(command)...)...).
			ends(2, command+" would read its commands from standard input, which is empty in workers: name a file")
	}
	muster(t, dir, nil, "run", "--nproc-per-node", "1", "--stdin", "0", "--", "bash").ends(0)
}
