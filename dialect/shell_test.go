package dialect

import (
	"fmt"
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

// A script's launchers are known by all their names; ds is one where it is DeepSpeed's.
func TestNamesInShell(t *testing.T) {
	h := host("h", map[string]string{"PATH": "/usr/bin:/opt/bin:/own"}, map[string]string{"in.sh": "sh in.sh; accelerate launch x\nsh in.sh\n"})
	h.List = func(dir string) []string {
		return map[string][]string{"/opt/bin": {"ds", "deepspeed"}, "/own": {"ds"}}[dir]
	}
	for script, want := range map[string]string{
		"torchrun x && ds y; deepspeed z | /opt/bin/fleetrun": "torchrun [torchrun ds deepspeed]", "/opt/bin/ds x": "/opt/bin/ds []", "/own/ds x": " []",
		"sh in.sh; torchrun x": "torchrun [torchrun accelerate]", "muster torchrun x": "muster torchrun []", "ds x": "ds [ds]",
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
		"torchrun --nnodes $N x": "[] $N", `torchrun "$@"`: `[] $@"`, "torchrun x.py *.txt": "[] *.txt", "torchrun x '": "[] a quoted text of several lines",
	} {
		in, ok := InShell(host("h", nil, nil), []string{"sh", "-c", script})
		if got := strings.TrimSpace(fmt.Sprintf("%q %s", in.Words, in.Unknown)); !ok || got != want {
			t.Errorf("%s: %s, want %s", script, got, want)
		}
	}
}
