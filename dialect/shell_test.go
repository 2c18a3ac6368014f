package dialect

import (
	"strings"
	"testing"
)

func TestInShell(t *testing.T) {
	files := map[string]string{
		"a.sh":  "#!/bin/bash\nset -e\n# torchrun is below\nN=2 torchrun \\\n --nproc-per-node 2 train.py\n",
		"sh.sh": "#!/usr/bin/env bash\npython3 -u -m torch.distributed.run x.py\n", "a.out": "\x7fELF torchrun x\n", "no.sh": "#!/bin/sh\nls /opt/env/bin/torchrun\n",
	}
	for command, want := range map[string]string{
		"bash a.sh x": "torchrun", "./a.sh": "", "a.sh": "torchrun", "bash -eu a.sh": "torchrun", "bash -o errexit a.sh": "torchrun",
		"sh.sh": "python3 -m torch.distributed.run by path", "a.out": "", "bash no.sh": "", "bash missing.sh": "", "bash": "", "bash -c": "",
		"bash -c|torchrun x": "torchrun", "bash -euo|pipefail|-c|exec torchrun x": "torchrun", "sh -lc|cd \"/tmp x\" && torchrun x": "torchrun",
		"sh -c|echo 'a b'; accelerate  launch x": "accelerate launch", "sh -c|accelerate config": "", "sh -c|\"torchrun\" x": "torchrun",
		"sh -c|timeout 20 env A=b torchrun x": "torchrun", "sh -c|if true; then torchrun x; fi": "torchrun", "sh -c|/opt/bin/torchrun x": "/opt/bin/torchrun by path",
		"sh -c|echo torchrun x": "", "sh -c|echo 'do torchrun x'": "", "sh -c|cd /workspace/env/deepspeed": "", "sh -c|torchrunner x": "", "python a.sh": "",
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
