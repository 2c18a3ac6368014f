package dialect

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
)

func TestInShell(t *testing.T) {
	files := map[string]string{
		"a.sh":     "#!/bin/bash\nset -e\n# torchrun is below\nN=2 torchrun \\\n --nproc-per-node 2 train.py\n",
		"outer.sh": "source env.sh\nif true; then sh inner.sh; fi\n", "env.sh": "export PATH\n", "inner.sh": "a.sh", "round.sh": "bash round.sh\n",
		"here.sh": "cat >job.sh <<'EOF'\ntorchrun x.py\nEOF\npython job.py\n", "told.sh": "cat <<< word\nbash -e <<-EOF\n\ttorchrun x.py\nEOF\n",
		"sh.sh": "#!/usr/bin/env bash\npython3 -u -m torch.distributed.run x.py\n", "a.out": "\x7fELF torchrun x\n", "no.sh": "#!/bin/sh\nls /opt/env/bin/torchrun\n",
	}
	for command, want := range map[string]string{
		"bash a.sh x": "torchrun", "./a.sh": "", "a.sh": "torchrun", "bash -eu a.sh": "torchrun", "bash -o errexit a.sh": "torchrun",
		"sh.sh": "python3 -m torch.distributed.run by path", "a.out": "", "bash no.sh": "", "bash missing.sh": "", "bash": "", "bash -c": "",
		"bash -c|torchrun x": "torchrun", "bash -euo|pipefail|-c|exec torchrun x": "torchrun", "sh -lc|cd \"/tmp x\" && torchrun x": "torchrun",
		"sh -c|echo 'a b'; accelerate  launch x": "accelerate launch", "sh -c|accelerate config": "", "sh -c|\"torchrun\" x": "torchrun",
		"sh -c|timeout 20 env A=b torchrun x": "torchrun", "sh -c|if true; then torchrun x; fi": "torchrun", "sh -c|/opt/bin/torchrun x": "/opt/bin/torchrun by path",
		"sh -c|echo torchrun x": "", "sh -c|echo 'do torchrun x'": "", "sh -c|cd /workspace/env/deepspeed": "", "sh -c|torchrunner x": "", "python a.sh": "",
		"bash here.sh": "", "bash told.sh": "torchrun", "sh -c|python -W ignore -Bm torch.distributed.run x": "python -W ignore -Bm torch.distributed.run by path", "sh -c|echo $((1<<N))\ntorchrun x": "torchrun",
		"sh -c|muster run --nnodes 2 x.py": "muster run", "sh -c|exec /usr/local/bin/muster torchrun x.py": "/usr/local/bin/muster torchrun",
		"sh -c|muster status": "", "sh -c|cd /x; bash -euc 'set -x; torchrun x' | cat": "torchrun", "sh -c|bash ./a.sh": "", "sh -c|exec bash a.sh": "torchrun",
		"env A=b torchrun x": "torchrun", "uv run --python 3.12 accelerate launch x": "accelerate launch", "timeout 9 /opt/bin/torchrun x": "/opt/bin/torchrun by path", "nohup bash a.sh": "torchrun", "env A=b bash a.sh": "torchrun", "env bash a.sh": "", "env torchrun x": "", "env env A=b torchrun x": "", "/usr/bin/env -i torchrun x": "torchrun",
		"env A=b accelerate config": "", "nice python x.py": "", "env A=b": "", "env A=b muster run x": "", "numactl -N 0 python3 -m torch.distributed.run x": "python3 -m torch.distributed.run by path",
		"sh -c|. ./outer.sh": "", "sh outer.sh": "torchrun", "sh -c|sh.sh 2": "python3 -m torch.distributed.run by path", "sh round.sh": "", "sh -c|echo a.sh": "", "sh -c|command torchrun x": "torchrun",
	} {
		var argv []string
		for i, part := range strings.Split(command, "|") {
			if i == 0 {
				argv = strings.Fields(part)
				continue
			}
			argv = append(argv, part)
		}
		in, ok := InShell(host("h", nil, files), argv)
		got := in.Call
		if ok && !in.Linked {
			got = strings.Replace(got, " -u", "", 1) + " by path"
		}
		if got != want {
			t.Errorf("%q: %q, want %q", argv, got, want)
		}
	}
}

// What Python is to run is found behind its options, in shell scripts, and not in what they only name.
func TestMains(t *testing.T) {
	files := map[string]string{
		"job.sh": "#!/bin/bash\nset -e\nexec python -u train.py \"$@\"\n", "two.sh": "python prepare.py\nif true; then python3 -m pkg.train --lr 1; fi\npython prepare.py\n",
		"sub/beside.sh": "cd \"$(dirname \"$0\")\"; $PYTHON \"$(dirname \"$0\")/train.py\"\npython \"$(dirname \"$0\")/x.py\"", "no.sh": "echo python train.py\npython -c 'import torch'\npython <<E\nprint()\nE\n",
		"launch.sh": "torchrun train.py",
	}
	for command, want := range map[string]string{
		"python3 train.py": "train.py", "/opt/venv/bin/python -u -X dev -W ignore x/train.py --a b.py": "x/train.py", "python -um pkg.train": "-m pkg.train", "env A=b python train.py": "train.py",
		"./train.py": "./train.py", "bash job.sh x": "train.py", "job.sh": "train.py", "bash two.sh": "prepare.py -m pkg.train", "sh sub/beside.sh": "sub/train.py sub/x.py", "bash no.sh": "", "bash launch.sh": "",
		"uv run train.py": "train.py", "numactl -N 0 python train.py": "train.py", "python": "", "python -c pass x.py": "", "./a.out train.py": "", "python train": "train", "bash missing.sh": "",
	} {
		var got []string
		for _, m := range Mains(host("h", nil, files), strings.Fields(command)) {
			if m.Module != "" {
				m.Script = "-m " + m.Module
			}
			got = append(got, m.Script)
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

// A shell without commands and without a file takes commands from its standard input.
func TestReadsInput(t *testing.T) {
	for command, want := range map[string]bool{
		"bash": true, "/bin/sh -eu": true, "sh -s a b": true, "bash -es": true, "bash /dev/stdin x": true, "dash -": true, "bash --": true, "env A=b timeout 9 zsh": true, "busybox sh": true, "bash -o pipefail": true,
		"bash --norc --rcfile x": true, "bash a.sh": false, "bash -c true": false, "bash -c": false, "bash -ec true -s": false, "bash --version": false, "busybox": false, "busybox ls": false, "python": false, "env": false, "bash -x a.sh -s": false,
	} {
		if got := ReadsInput(strings.Fields(command)); got != want {
			t.Errorf("%s: %v", command, got)
		}
	}
}

// Whatever the grammar of shells lets stand before a launcher does not hide it.
func TestInShellAnywhere(t *testing.T) {
	files := map[string]string{
		"run.sh": "#!/bin/sh\nset -e\nexec \"$@\"\n", "/w/outer.sh": "D=$(cd \"$(dirname \"$0\")\" && pwd)\nbash \"$D/inner.sh\" 8\n", "/w/inner.sh": "torchrun --nproc-per-node $1 x.py\n",
		"broken.sh": "echo ok\nif [ x; do\ntorchrun x\n", "own": "#!/usr/bin/python3\ntorchrun\n",
	}
	for script, want := range map[string]string{
		"if torchrun x; then a; fi": "torchrun", "if a; then b; elif torchrun x; then c; fi": "torchrun", "while torchrun x; do :; done": "torchrun", "until torchrun x; do :; done": "torchrun",
		"! torchrun x": "torchrun", "time torchrun x": "torchrun", "time -p torchrun x": "torchrun", "case $x in a) torchrun x;; esac": "torchrun", "case x in\na|b)\n torchrun x\n ;;\nesac": "torchrun",
		"for i in 1 2; do torchrun x && break; done": "torchrun", "{ torchrun x; }": "torchrun", "a || torchrun x": "torchrun", "a | torchrun x": "torchrun", "x=$(torchrun x)": "torchrun", "echo `torchrun x`": "torchrun",
		"f() { torchrun x; }; f": "torchrun", "(cd x && torchrun y) &": "torchrun", "coproc torchrun x": "torchrun", "echo \"$(torchrun x)\"": "torchrun", "select a in b; do torchrun x; done": "torchrun",

		"nice -n 5 torchrun x": "torchrun", "nice -5 torchrun x": "torchrun", "sudo -E torchrun x": "torchrun", "sudo -u me -E A=b torchrun x": "torchrun", "/usr/bin/time -f %e torchrun x": "torchrun",
		"stdbuf -oL torchrun x": "torchrun", "stdbuf -o L torchrun x": "torchrun", "timeout -k 5 60 torchrun x": "torchrun", "timeout -s INT --foreground 60 torchrun x": "torchrun",
		"numactl --cpunodebind=0 torchrun x": "torchrun", "numactl -N 0 -m 0 torchrun x": "torchrun", "env -u X A=b torchrun x": "torchrun", "env -i A=b B=c torchrun x": "torchrun", "exec -a name torchrun x": "torchrun",
		"setsid -w torchrun x": "torchrun", "ionice -c2 -n 0 torchrun x": "torchrun", "taskset -c 0-3 torchrun x": "torchrun", "chrt -b 0 torchrun x": "torchrun", "nohup -- torchrun x": "torchrun",
		"nsys profile -t cuda -o out torchrun x": "torchrun", "conda run -n env --no-capture-output torchrun x": "torchrun", "uv run torchrun x": "torchrun", "sudo nice -n 5 env A=b timeout 9 torchrun x": "torchrun",
		"command -v torchrun": "", "which torchrun": "", "nice": "", "timeout 5": "", "env A=b": "", "taskset -p 1": "", "conda activate torchrun": "", "echo torchrun": "", "sudo -l torchrun": "", "type torchrun": "",

		">log torchrun x": "torchrun", "2>&1 >>log torchrun x": "torchrun", "A=1 B=\"c d\" torchrun x": "torchrun", "A=1 >log torchrun x": "torchrun",
		"python3 -u /usr/bin/torchrun x": "python3 -u /usr/bin/torchrun by path", "$PYTHON -m torch.distributed.run x": "$PYTHON -m torch.distributed.run by path", "${PYTHON:-python3} -m torch.distributed.run x": "python3 -m torch.distributed.run by path",
		"\"$CONDA_PREFIX\"/bin/torchrun x": "$CONDA_PREFIX/bin/torchrun by path", "$SUDO torchrun x": "torchrun", "python $(command -v torchrun) x": "python torchrun by path",
		"eval torchrun x": "torchrun", "eval \"torchrun x\"": "torchrun", "CMD='torchrun x'; eval $CMD": "torchrun", "CMD='torchrun x'; eval \"$CMD >log\"": "torchrun", "CMD='torchrun x'; bash -c \"$CMD\"": "torchrun",
		"LAUNCHER=\"torchrun --nproc 4\"; $LAUNCHER train.py": "torchrun", "export L=torchrun; $L x": "torchrun", "L=accelerate; \"$L\" launch x": "accelerate launch", "L=${L:-torchrun}; $L x": "torchrun",
		"if gpu; then L=python; else L=torchrun; fi; $L x": "torchrun", "cmd=(a); cmd=(torchrun --x); \"${cmd[@]}\" y": "torchrun", "cmd=(); cmd+=(torchrun); ${cmd[*]} y": "torchrun", "local L=torchrun; $L x": "torchrun",
		"A='torchrun --x'; A+=' --y'; $A": "torchrun", "set -- torchrun x": "", "echo \"$L\" torchrun": "", "FROM_ENV=1; $LAUNCH x": "torchrun",

		"./run.sh torchrun x": "torchrun", "bash run.sh accelerate launch x": "accelerate launch", "bash /w/outer.sh": "torchrun", "bash broken.sh": "torchrun", "./own": "",
		"bash -s <<EOF\ntorchrun x\nEOF": "torchrun", "sudo bash <<'EOF'\ntorchrun x\nEOF": "torchrun", "cat <<EOF\ntorchrun x\nEOF": "", "cat <<EOF\n$(torchrun x)\nEOF": "torchrun",
		"done\ntorchrun x": "torchrun", "# torchrun x": "", "muster init -- torchrun x": "", "trap 'torchrun x' EXIT": "", "alias t=torchrun": "", "x=torchrun": "",
	} {
		in, ok := InShell(host("h", map[string]string{"LAUNCH": "torchrun"}, files), []string{"sh", "-c", strings.ReplaceAll(script, "./", "")})
		got := in.Call
		if ok && !in.Linked {
			got += " by path"
		}
		if got != want {
			t.Errorf("%q: %q, want %q", script, got, want)
		}
	}
}

// What a script has more of than any script of a person is left out, and no text keeps the reader for long.
func TestInShellHasBounds(t *testing.T) {
	for _, part := range []string{
		"(", "$(", "((", "$((", "{ ", "if ", "while ", "${a:-", "`", "x[", "[[ (", "\"$(", "<(", "case a in a) ", "a|", "a&&", "time ", "f() ", "((a, ", "a[$((", "x\n'\n", "A=$A$A; ", "a=(${a[@]} ${a[@]} b); ",
		"eval \"$X\"; ", "bash -c '", "sh self; ", "<<E ", "${a[", "A=$B B=$A; ", "if\n", "{a,{b,", "{a,b}{a,b}",
	} {
		code := "X='eval \"$X\"; sh self'; A=a; a=(b)\n" + strings.Repeat(part, (maxScript-100)/len(part))
		files := map[string]string{"self": code}
		InShell(host("h", nil, files), []string{"sh", "self"})
		if in, _ := InShell(host("h", nil, files), []string{"sh", "-c", "torchrun x\n" + code}); in.Call != "torchrun" {
			t.Errorf("%q hides a launcher before it", part)
		}
	}
}

// What a script says of few variables, over and over, costs no more memory than a reading may take; a launcher behind it is found. The bound is that of
// the reading, with room for what the parser makes of so much text.
func TestInShellCosts(t *testing.T) {
	for _, c := range []struct{ begin, part string }{
		{"A='" + strings.Repeat("a ", maxField/2-1) + "'\n", "$A "}, {"A='" + strings.Repeat("a", maxField/2) + "'\n", "\"$A$A\" "}, {"A='" + strings.Repeat("a ", maxField/2-1) + "'\n", ": $A\n"},
		{"a=(" + strings.Repeat("b ", maxFields) + ")\n", ": \"${a[@]}\"\n"}, {"a=(" + strings.Repeat("b ", maxFields-1) + ")\n", "a+=(b)\n"}, {"A=" + strings.Repeat("a", maxField/2) + "\n", "B=$A; B+=b\n"},
		{"set -- " + strings.Repeat("a ", maxFields-1) + "\n", ": \"$@\"\n"}, {"a=(" + strings.Repeat("b ", maxFields) + ")\n", "A=\"${a[*]}\"\n"},
	} {
		code := c.begin + strings.Repeat(c.part, (maxScript-len(c.begin)-100)/len(c.part)) + "\ntorchrun x\n"
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		in, _ := InShell(host("h", nil, map[string]string{"s.sh": code}), []string{"sh", "s.sh"})
		runtime.ReadMemStats(&after)
		if cost := after.TotalAlloc - before.TotalAlloc; cost > 250<<20 || in.Call != "torchrun" {
			t.Errorf("%q, over and over: %d MiB, %q", c.part, cost>>20, in.Call)
		}
	}
}

// A script's launchers are known by all their names; ds is one where it is DeepSpeed's.
func TestNamesInShell(t *testing.T) {
	h := host("h", map[string]string{"PATH": "/usr/bin:/opt/bin:/own"}, map[string]string{"in.sh": "sh in.sh; accelerate launch x\nsh in.sh\n"})
	h.List = func(dir string) []string {
		return map[string][]string{"/opt/bin": {"ds", "deepspeed"}, "/own": {"ds"}}[dir]
	}
	for script, want := range map[string]string{
		"torchrun x && ds y; deepspeed z | /opt/bin/fleetrun": "torchrun [torchrun ds deepspeed]", "/opt/bin/ds x": "/opt/bin/ds []", "/own/ds x": " []",
		"sh in.sh; torchrun x": "accelerate launch [accelerate torchrun]", "muster torchrun x": "muster torchrun []", "ds x": "ds [ds]",
	} {
		in, _ := InShell(h, []string{"sh", "-c", script})
		if got := fmt.Sprint(in.Call, " ", in.Names); got != want {
			t.Errorf("%s: %s, want %s", script, got, want)
		}
	}
	h.List = func(dir string) []string { return map[string][]string{"/own": {"ds"}}[dir] }
	if in, ok := InShell(h, []string{"sh", "-c", "ds x"}); ok {
		t.Errorf("somebody's own ds is %s", in.Call)
	}
}

// The words of a call are known where the shell changes nothing in them.
func TestWordsInShell(t *testing.T) {
	for script, want := range map[string]string{
		`torchrun --nproc-per-node 2 "a b" 'c$d' e\ f >log 2>&1 | tee x`: `["torchrun" "--nproc-per-node" "2" "a b" "c$d" "e f"]`,
		`"torchrun" x.py --n=3 # why`:                                    `["torchrun" "x.py" "--n=3"]`, "A=1 torchrun x &>log &": `["torchrun" "x"]`, "(torchrun x)": `["torchrun" "x"]`,
		"torchrun --nnodes $N x": "[] $N", `torchrun "$@"`: `["torchrun"]`, "torchrun x.py *.txt": "[] *.txt", "torchrun x 'a\nb'": `["torchrun" "x" "a\nb"]`,
		"N=2\ntorchrun --nnodes $N x": `["torchrun" "--nnodes" "2" "x"]`, "if a; then N=2; else N=3; fi; torchrun --nnodes $N x": "[] $N",
		"N=2; for N in 4 8; do torchrun --nnodes $N x; done": "[] $N", "N=2; N=4; torchrun $N": `["torchrun" "4"]`, "N=2; read N; torchrun $N": "[] $N",
		"f() { torchrun $N; }; N=2; N=3; f": "[] $N", `A="a b"; torchrun $A "$A" ${B:-c} ${C:+d}`: `["torchrun" "a" "b" "a b" "c"]`, "torchrun ~/x": "[] ~/x", "torchrun {a,b}": "[] {a,b}",
		`cmd=(torchrun --nnodes 2); cmd+=("a b"); "${cmd[@]}" x`: `["torchrun" "--nnodes" "2" "a b" "x"]`, `CMD="torchrun 'a b'"; eval $CMD`: `["torchrun" "a b"]`, "torchrun $1": "[] $1",
		"torchrun \\$x \"\\$y\" $((1+1))": "[] $((1+1))", "torchrun $(nproc)": "[] $(nproc)", "$(which torchrun) x": `["torchrun" "x"]`, `X="torchrun $N"; $X`: "[] $N", "torchrun $'a\\tb'": "[] $'a\\tb'",
	} {
		in, ok := InShell(host("h", nil, nil), []string{"sh", "-c", script})
		if got := strings.TrimSpace(fmt.Sprintf("%q %s", in.Words, in.Unknown)); !ok || got != want {
			t.Errorf("%s: %s, want %s", script, got, want)
		}
	}
}

// Whatever a script is, it is read to an end, and a launcher's words are those of its text.
func FuzzInShell(f *testing.F) {
	for _, script := range []string{
		"set -e\nexport A=1 B=(x y)\nfor i in 1 2; do if ! torchrun $A \"${B[@]}\" x; then exit 1; fi; done", "eval \"$(which torchrun) $1\"; cat <<E | sh -c 'torchrun x'\n$x\nE",
		"L=${L:-torchrun}; L+=' a'; case $x in a|b) sudo -u x $L {a,b} ~/x ;; esac; ((i++)); [[ a == b* ]] && bash -s <<-'E'\n\ttorchrun x\n\tE\n",
	} {
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script string) {
		in, ok := InShell(host("h", nil, map[string]string{"s.sh": script}), []string{"bash", "s.sh", "a", "b"})
		if ok && (in.Call == "" || in.Words != nil && in.Unknown != "" || in.Words != nil && !strings.HasPrefix(strings.Join(in.Words, " "), in.Call)) {
			t.Errorf("%+v", in)
		}
	})
}

// panics is a script that makes the parser panic behind its first lines.
type panics struct{ text io.Reader }

func (p panics) Read(b []byte) (int, error) {
	if n, _ := p.text.Read(b); n > 0 {
		return n, nil
	}
	panic("of the parser")
}

// What makes the parser panic is what it does not take.
func TestParserPanics(t *testing.T) {
	all, whole := statements(panics{strings.NewReader("cd /app\ntorchrun train.py\n")})
	if len(all) == 0 || whole {
		t.Errorf("%d statements, whole: %v", len(all), whole)
	}
}
