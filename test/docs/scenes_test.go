package docs

// named are lines that only name a command, wherever nothing else is typed of them: it is there, and has help.
const named = ""

// ours is a script that no page has, for what one shows.
const ours = "-"

var scenes = []scene{
	{lines: []line{{text: named, says: "^muster"}}},
	{
		page: "README.md", hosts: []string{"host0", "host1"},
		lines: []line{
			{
				text: "muster run --nnodes 2 --rdzv-endpoint host0:29400", says: "world size 2 rank 1",
				how: "typed; ! MUSTER_NPROC_PER_NODE=2 KILLED=3 typed", shows: "muster: rank 3",
			},
		},
	},
	{
		page: "README.md", hosts: []string{"e1", "e2"}, gives: members,
		lines: []line{{text: "muster run --nnodes 2 --rdzv-id job7 --rdzv-endpoint etcd://", says: "world size 2 rank 1"}},
	},
	{
		page: "README.md", // what is to be looked at, and one machine
		lines: []line{
			{text: "muster discover", says: "platform"},
			{text: "muster doctor", says: "torchrun"},
			{text: "muster probe", says: "NUMA"},
			{text: "muster check", how: "typed --nnodes 1", says: checked},
			{text: "muster env … train.py", says: "WORLD_SIZE"},
			{text: "muster run train.py", says: "world size 1 rank 0"},
			{text: "muster torchrun …", says: "world size 1 rank 0"},
			{text: "muster accelerate launch …", says: "world size 1 rank 0"},
			{text: "muster deepspeed …", how: "DS_ACCELERATOR=cpu typed", says: "world size 1 rank 0"},
			{text: "muster init -- command", where: []string{"command", "echo well"}, says: "^well$"},
			{text: "muster store serve", how: "set -m; typed & muster store set --timeout 10m a b; muster store get --timeout 10m a; kill %1; wait %1 || [ $? = 143 ]", says: "^b$"},
			{text: "muster run --help", says: "take part in a job"},
			{text: "make help", how: "cd $TOP; typed", says: "make demo"},
		},
	},
	{
		page: "README.md", python: "newest",
		lines: []line{
			{text: "make demo", where: []string{"make", `PYTHON_EXEC=$(command -v python) make -o build -C "$TOP"`}, shows: "demo: world size"},
			{text: "muster init --observe -- torchrun … train.py", says: "world size 2 rank 1"},
		},
	},
	{
		page: "README.md", gives: "mount -t tmpfs tmpfs /usr/local/bin; mkdir bin; cp $(command -v muster) bin",
		lines: []line{{text: "sudo install bin/muster /usr/local/bin/", where: []string{"sudo ", ""}, how: "typed; /usr/local/bin/muster run train.py", says: "world size 1 rank 0"}},
	},
	{
		page: "README.md", gives: "job --nproc-per-node 4",
		lines: []line{
			{text: "muster health live"},
			{text: "muster health ready"},
			{text: "muster exec --rank 3", how: `echo 'echo rank $RANK' | typed`, says: "^rank 3$"},
			{text: "muster bugreport", how: "typed; ls muster-bugreport-*", says: "tar.gz"},
			{text: "muster ctl pause", how: "typed; muster status --watch | grep -m 1 paused; muster ctl resume; read -r <began", says: "paused"},
			{text: "muster status --watch", how: watched, says: "4 on 1 node"},
		},
	},
	{
		page:  "README.md",
		lines: []line{{text: "muster run --debug …", where: []string{"…", "train.py"}, how: "typed & " + started + "muster exec -- env; muster ctl stop; wait $! || exit $?", code: 143, says: "^WORLD_SIZE=1"}},
	},
	{
		page: "docs/control.md", hosts: []string{"ann", "bob"},
		gives: mnist,
		lines: []line{
			{text: "muster status [--json] [--watch] [--html]", where: []string{"[--json] [--watch] [--html]", "--json"}, says: `"schema": ?"muster.status/1"`},
			{text: "kubectl exec POD -- muster status", shows: "job mnist"},
		},
	},
	{
		page: "docs/control.md", gives: "job --nproc-per-node 4", python: "newest",
		lines: []line{
			{text: "muster health live"},
			{text: "muster health ready"},
			{text: "muster status --json", says: `"schema": ?"muster.status/1"`},
			{text: "kubectl exec -it POD -- muster exec --rank 3", how: `echo 'echo rank $RANK' | typed`, says: "^rank 3$"},
			{text: "kubectl exec POD -- muster exec --rank 3 -- python -c", says: "^0$"},
			{text: "kubectl exec POD -- muster bugreport --output - >report.tar.gz", how: "typed; tar -tzf report.tar.gz", says: "status.json"},
			{text: "muster exec [--rank N] [-- command]", where: []string{"[--rank N] [-- command]", "--rank 2 -- env"}, says: "^RANK=2$"},
			{text: "muster exec --rank N", where: []string{"N", "1"}, how: `echo 'echo rank $RANK' | typed`, says: "^rank 1$"},
			{text: "muster bugreport [--output FILE]", where: []string{"[--output FILE]", "--output another.tar.gz"}, how: "typed; tar -tzf another.tar.gz", says: "journal"},
			{text: "muster ctl dump", says: "^job .*: evidence of this node's workers is in "},
			{text: "muster ctl restart", how: "typed & read -r <began; wait $!", says: "the next round follows"},
			{text: "muster ctl stop", says: "^job .*: the job ends"},
		},
	},
	{
		page:  "docs/control.md",
		lines: []line{{text: "muster run --debug …", where: []string{"…", "train.py"}, how: "typed & " + started + "muster exec -- env; muster ctl stop; wait $! || exit $?", code: 143, says: "^WORLD_SIZE=1"}},
	},
	{page: "README.md", gives: upgraded, lines: []line{{text: "muster ctl upgrade FILE", how: upgrades, says: "running for"}}},
	{page: "docs/control.md", gives: upgraded, lines: []line{{text: "muster ctl upgrade FILE", how: upgrades, says: "running for"}}},
	{page: "docs/control.md", gives: upgraded, lines: []line{{text: "muster ctl upgrade /tmp/muster-new", where: []string{"/tmp/muster-new", "./FILE"}, how: upgrades, says: "running for"}}},
	{
		page: "docs/dialects.md", hosts: []string{"host0", "host1"},
		lines: []line{
			{text: "muster torchrun --nnodes 2", says: "world size 16 rank 15"},
			{text: "muster accelerate launch --num_processes 32 --num_machines 4", where: []string{"--num_machines 4 --machine_rank 0", "--num_machines 2 --machine_rank $NODE", "--num_processes 32", "--num_processes 4"}, says: "world size 4 rank 3"},
			{text: "muster run --spares 1 -- torchrun --nnodes 2", where: []string{"train.py", "--rdzv-endpoint host0:29400 train.py"}, how: "typed", says: "world size 2 rank 1"},
		},
	},
	{
		page: "docs/dialects.md", gives: "mount -t tmpfs tmpfs /usr/local/bin; ln -s $(readlink $(command -v muster)) /usr/local/bin/muster; echo torchrun train.py >train.sh",
		lines: []line{
			{text: "ln -s /usr/local/bin/muster", how: "typed; /usr/local/bin/torchrun --nproc-per-node 2 train.py", says: "world size 2 rank 1"},
			{text: "muster doctor", says: "muster"},
			{text: "muster env torchrun … train.py", says: "WORLD_SIZE"},
			{text: "muster env accelerate launch …", says: "WORLD_SIZE"},
			{text: "muster env -- bash train.sh", says: "WORLD_SIZE"},
		},
	},
	{page: "docs/environment.md", lines: []line{{text: "muster env train.py", says: "WORLD_SIZE"}}},
	{
		page: "docs/exit-codes.md", hosts: []string{"host0", "host1"},
		lines: []line{{text: "muster run", how: "! typed --nnodes 2 --nproc-per-node 2 --rdzv-endpoint host0:29400 train.py raise=3", shows: "muster: rank 3"}},
	},
	{
		page: "docs/frameworks.md", hosts: []string{"host0", "host1"}, gives: `
			mount -t sysfs sysfs /sys
			printf '#include <mpi.h>\n#include <stdio.h>\nint main(int n, char **a) { int r, s; MPI_Init(&n, &a); MPI_Comm_rank(MPI_COMM_WORLD, &r); MPI_Comm_size(MPI_COMM_WORLD, &s); printf("rank %%d of %%d\\n", r, s); return MPI_Finalize(); }\n' >a.c
			mpicc.mpich -o a.out a.c`,
		lines: []line{
			{text: "muster run --framework mpi", where: []string{"--nproc-per-node 32", "--nproc-per-node 2"}, says: "rank 3 of 4"},
			{text: "muster run --framework horovod", says: "world size 8 rank 7"},
			{text: "muster paddle …", says: "world size 1 rank 0"},
			{text: "muster env train.py", how: `typed; echo 'import tensorflow' >>train.py; ! muster run train.py`, says: "WORLD_SIZE", shows: "muster: train.py imports"},
		},
	},
	{
		page: "docs/hangs.md", gives: "job",
		lines: []line{
			{text: "muster status --json", says: `"muster.status/1"`},
			{text: "muster beat --phase checkpoint --for 10m", how: "muster ctl stop; read -r <began; " + inWorker},
		},
	},
	{
		page: "docs/heartbeat.md",
		lines: []line{
			{text: "echo step 500", how: inWorker, says: "500"},
			{text: "perl", how: inWorker, says: "500"},
			{text: "muster beat --step 500", how: inWorker, says: "500"},
			{text: "muster beat --phase checkpoint", how: inWorker},
			{text: "muster beat --phase-end", how: inWorker},
		},
	},
	{
		page: "docs/images.md", gives: "mount -t tmpfs tmpfs /opt",
		lines: []line{
			{text: "muster install /opt/muster", how: "typed; ls -l /opt/muster; /opt/muster/muster version", says: "muster$"},
			{text: "muster install /opt/muster --links", how: "typed; ls /opt/muster", says: "^fleetrun$"},
			{text: "muster install /opt/muster --links=", how: "typed; ls /opt/muster", says: "^sshd$"},
			{text: "muster install DIR", how: "typed; ls DIR", says: "^muster$"},
		},
	},
	{
		page:  "docs/ledger.md",
		gives: "mount -t tmpfs tmpfs /mnt; cp $TOP/report/testdata/*.json .; mkdir DIR; muster run --verdict DIR/v.json train.py",
		lines: []line{
			{text: "muster run --verdict FILE", how: "typed train.py; cat FILE", says: `"ledger"`},
			{text: "muster ledger DIR", says: "succeeded"},
			{text: "muster ledger /logs", where: []string{"/logs", "DIR"}, says: "succeeded"},
			{text: "muster ledger --json /logs", where: []string{"/logs", "DIR"}, says: `"muster.ledger/1"`},
			{text: "muster beat --step N", where: []string{"N", "7"}, how: inWorker},
			{text: "muster status --json", how: "job; typed", says: `"ledger"`},
		},
	},
	{
		page: "docs/metrics.md", hosts: []string{"HOST"},
		lines: []line{
			{text: "muster run --http :8090 train.py", says: "the status page is at http://HOST:8090/"},
			{text: "curl -s http://HOST:8090/metrics", how: "job --http :8090; typed", says: "muster_phase"},
		},
	},
	{
		page: "docs/moving.md", python: "newest", gives: "printf '#!/bin/sh\necho here\n' >a.out; chmod +x a.out",
		lines: []line{
			{text: "muster doctor", says: "torchrun"},
			{text: "muster env torchrun --nproc-per-node 2", says: "WORLD_SIZE"},
			{text: "muster init --observe -- torchrun --nproc-per-node 2", says: "world size 2 rank 1"},
			{text: "muster torchrun --nproc-per-node 2", says: "world size 2 rank 1"},
			{text: "muster run -- bash train.sh", how: "echo python -m torch.distributed.run --nproc-per-node 2 train.py >train.sh; typed", says: "world size 2 rank 1"},
			{text: "muster accelerate launch …", says: "world size 1 rank 0"},
			{text: "muster deepspeed …", how: "DS_ACCELERATOR=cpu typed", says: "world size 1 rank 0"},
			{text: "muster run --framework mpi -- ./a.out", says: "here"},
			{text: "muster run train.py", says: "world size 1"},
			{text: "muster run --framework horovod train.py", says: "world size 1"},
			{text: "muster python -m paddle.distributed.launch …", says: "world size 1 rank 0"},
			{text: "muster status --watch", how: "job; " + watched, says: "world size 1"},
			{text: "muster check", how: "typed --nnodes 1", says: checked},
		},
	},
	{
		page: "docs/moving.md", hosts: []string{"host0", "host1"},
		lines: []line{
			{text: "torchrun --nnodes 2 --nproc-per-node 8", where: []string{"torchrun", "muster torchrun"}, how: "typed", says: "world size 16 rank 15"},
		},
	},
	{
		page: "docs/nccl.md", hosts: []string{"host0"},
		lines: []line{
			{text: "muster env --nnodes 4", says: "NCCL"},
			{text: "muster run --nccl-tune", says: "world size 1 rank 0"},
		},
	},
	{page: "docs/no-ssh.md", lines: []line{{text: "openssl rand -hex 32", says: "^[0-9a-f]{64}$"}}},
	{
		page: "docs/observe.md", hosts: []string{"host0", "host1"}, python: "newest",
		lines: []line{{text: "muster init --observe -- torchrun --nnodes 2", where: []string{"--nproc-per-node 8", "--nproc-per-node 1"}, says: "world size 2 rank 1"}},
	},
	{
		page: "docs/output.md",
		lines: []line{
			{text: ours, how: "muster run --nproc-per-node 4 -- echo 'epoch 1  loss 0.21'", shows: "[rank 3]"},
			{text: ours, how: "hostname host3; muster run --log-format json --nproc-per-node 2 -- echo epoch 1", shows: `{"time"`},
		},
	},
	{
		page: "docs/performance.md",
		lines: []line{
			{text: "muster run true"},
			{text: "muster probe --root TREE", where: []string{"TREE", "/"}, says: "NUMA"},
		},
	},
	{
		page: "docs/place.md", gives: "mount -t tmpfs tmpfs /mnt; echo 'host0 rack=r7' >places",
		lines: []line{
			{text: "muster run --place", says: "world size 1 rank 0"},
			{text: "muster run --place-file", where: []string{"/etc/places", "places"}, says: "world size 1 rank 0"},
			{text: "muster discover", how: "MUSTER_PLACE=r7/leaf3 typed", says: "rack=r7,switch=leaf3(.|\n)*MUSTER_PLACE"},
		},
	},
	{
		page: "docs/place.md", hosts: []string{"ann", "bob"},
		lines: []line{{text: "muster status", how: "job --place r7/leaf$NODE --nnodes 2 --rdzv-endpoint ann:29400; typed", says: `^1 +bob +- +rack=r7,switch=leaf1 `}},
	},
	{
		page: "docs/platforms.md", gives: "mkdir mounted",
		lines: []line{
			{text: "muster discover", says: "platform"},
			{text: "muster discover --json", says: `"rule"`},
			{text: "muster env train.py", says: "WORLD_SIZE"},
			{text: "kubectl exec POD -- env > env.txt"},
			{text: "muster discover --env-file", says: "platform"},
			{text: "muster discover --fixture FILE [--pod NAME]", where: []string{"FILE [--pod NAME]", "$(ls $TOP/discovery/testdata/platforms/*.json | head -n 1)"}, says: "platform"},
		},
	},
	{
		page:  "docs/ports.md",
		lines: []line{{text: "muster check --peers", how: "typed --nnodes 1", says: measured}},
	},
	{
		page: "docs/preflight.md", gives: "mkdir checkpoints",
		lines: []line{
			{text: "muster check", how: "typed --nnodes 1", says: checked},
			{text: "muster check --all", where: []string{"--all", "--all --nnodes 1"}, says: "^pass +disk"},
			{text: "muster check --json", where: []string{"--json", "--json --nnodes 1"}, says: `"findings"`},
			{text: "muster check --nnodes 1", says: checked},
			{text: "muster check --nproc-per-node 4 --dir", where: []string{"/mnt/", "./"}, how: "typed --all", says: "checkpoints has .* free"},
			{text: "muster check --root /host", where: []string{"/host", "/"}, says: checked},
		},
	},
	{
		page: "docs/preflight.md", hosts: []string{"node0", "node1"},
		lines: []line{
			{text: "muster check --peers", where: []string{"--peers", "--peers --nnodes 2 --rdzv-endpoint node0"}, says: "node"},
			{text: "muster check --peers --nnodes 4", where: []string{"--nnodes 4", "--nnodes 2"}, says: "^FROM +TO +Mb/s"},
		},
	},
	{
		page: "docs/probe.md",
		lines: []line{
			{text: "muster probe", says: "NUMA"},
			{text: "muster probe --json", says: `"gpus"`},
			{text: "muster probe --svg machine.svg", how: "typed; head -c 4 machine.svg", says: "<svg"},
			{text: "muster probe --snapshot m.txt", how: "typed; wc -l m.txt", says: "m.txt"},
			{text: "muster probe --root /host", where: []string{"/host", "/"}, says: "NUMA"},
		},
	},
	{
		page: "docs/processes.md",
		lines: []line{
			{text: "muster init -- my-server --port 80", where: []string{"my-server", "echo my-server"}, says: "^my-server --port 80$"},
			{text: "muster ctl upgrade FILE", how: upgraded + "\n" + upgrades, says: "running for"},
			{text: "muster run --help", says: "--stop-timeout"},
		},
	},
	{
		page: "docs/processes.md", gives: "job --nproc-per-node 8",
		lines: []line{{
			text: ours, shows: "muster: the agent died",
			how: `kill -9 $(agent); until muster ctl stop 2>refused; do :; done; muster status --watch >ended || true; cat job.log`,
		}},
	},
	{
		page: "docs/rendezvous.md", hosts: []string{"e1", "e2"}, gives: members,
		lines: []line{{text: "muster run --nnodes 2 --rdzv-id job7 --rdzv-endpoint etcd://", says: "world size 2 rank 1"}},
	},
	{
		page: "docs/replay.md",
		lines: []line{
			{text: "muster run --journal FILE", how: "typed train.py raise=0", code: 1},
			{text: "muster replay FILE", code: 1, says: `==> rank 0 on host0 .*ValueError: bad seed; exit 1$`},
			{text: "muster replay --max-restarts 3 FILE", says: `restart 1 of 3 follows(.|\n)*from here on all would have been otherwise`},
		},
	},
	{
		page: "docs/run.md", gives: "cp train.py script.py; mkdir -p .config/fish/completions fpath",
		lines: []line{
			{text: "muster run [flags] script.py [argument...]", where: []string{"[flags]", "--nproc-per-node 2", "[argument...]", "--lr 1"}, says: "world size 2 rank 1"},
			{text: "muster env [flags] train.py", where: []string{"[flags]", "--nproc-per-node 2"}, says: "WORLD_SIZE"},
			{text: "source <(muster completion bash)", how: "typed; complete -p muster", says: "muster"},
			{text: "muster completion zsh >", how: `declare -f typed >typed.zsh; zsh -efc 'fpath=($PWD/fpath $fpath); . ./typed.zsh; typed; ls fpath'`, says: "_muster"},
			{text: "muster completion fish >", how: "HOME=$PWD; typed; fish --no-execute .config/fish/completions/muster.fish; ls .config/fish/completions", says: "muster.fish"},
			{text: "muster man | man -l -", says: "MUSTER"},
			{text: "muster probe", says: "NUMA"},
		},
	},
	{
		page: "docs/security.md", hosts: []string{"host0", "host1"},
		lines: []line{
			{text: "openssl rand -hex 32 >token", how: "cd ..; [ $NODE = 1 ] || typed"},
			{text: "muster run --token-file token", how: "cp ../token .; typed", says: "world size 2 rank 1"},
			{text: "muster run --store-allow", where: []string{"10.8.0.0", "10.77.0.0"}, says: "world size 2 rank 1"},
			{text: "muster check --peers", how: "[ $NODE = 1 ] || typed --nnodes 1", says: measured},
		},
	},
	{
		page: "docs/status-page.md", hosts: []string{"gpu-07"},
		lines: []line{
			{text: "muster run --http :8080 … train.py", says: "world size 2 rank 1"},
			{text: "cat /tmp/muster-mnist-*/http", how: "job --rdzv-id mnist --http :8080; typed", where: []string{"/tmp", "$TMPDIR"}},
			{text: "curl --unix-socket", where: []string{"/tmp", "$TMPDIR"}, says: `"schema": ?"muster.status/1"`},
			{text: "kubectl exec POD -- muster status --html >page.html", how: "typed; head -c 9 page.html", says: "<!"},
			{text: "muster probe --svg", how: "typed m.svg"},
			{text: "muster status --json", says: "muster.status/1"},
			{text: "muster status --watch", how: watched, says: "world size 1"},
		},
	},
	{
		page: "docs/status-page.md", python: "newest",
		lines: []line{{text: "muster init --observe --http :8080 -- torchrun … train.py", says: "the status page is at http://host0:8080/(.|\n)*world size 2 rank 1"}},
	},
	{
		page: "docs/troubleshooting.md",
		lines: []line{
			{text: "muster explain CODE", where: []string{"CODE", "137"}, says: "137"},
			{text: "muster run -- sh file", how: "echo 'echo well' >file; typed", says: "well$"},
			{text: "muster run -- python file", where: []string{"python", "python3"}, how: `echo 'print("well")' >file; typed`, says: "well$"},
			{text: "muster run $SCRIPT", how: "SCRIPT=; typed", code: 2, says: "nothing to run"},
			{text: "muster run FLAGS train.py SCRIPT-FLAGS", where: []string{"SCRIPT-FLAGS", "--lr 1", "FLAGS", "--nproc-per-node 2"}, says: "world size 2 rank 1"},
			{text: "muster run -- program", where: []string{"program", "echo well"}, says: "well$"},
			{text: "muster NAME=value …", code: 2, says: "a variable stands before muster"},
			{text: "muster run -- env NAME=value …", where: []string{" …", " env"}, says: "NAME=value$"},
			{text: "muster check --peers", how: "typed --nnodes 1", says: measured},
			{text: "muster env … train.py", says: "WORLD_SIZE"},
		},
	},
	{
		page:  "docs/verdict.md",
		lines: []line{{text: "muster run --verdict FILE", how: "typed train.py; cat FILE", says: `"schema"`}},
	},
	{
		page:  "docs/events.md",
		lines: []line{{text: "muster run --events FILE", how: "typed train.py; cat FILE", says: `"event":"verdict"`}},
	},
	{
		page:  "examples/init-container/README.md",
		lines: []line{{text: "muster run -- bash train.sh", how: "echo torchrun --nproc-per-node 2 train.py >train.sh; typed", says: "world size 2 rank 1"}},
	},
	{
		page: "examples/monitoring/README.md", gives: "cp $TOP/examples/monitoring/* .",
		lines: []line{
			{text: "prometheus --config.file prometheus.yml", how: "set -m; >log; typed >log 2>&1 & mkfifo said; tail -f log --pid $! >said & grep -q -m 1 'ready to receive' <said; kill %1; wait %1 || [ $? = 143 ]"},
			{text: "promtool test rules rules_test.yml", says: "SUCCESS"},
		},
	},
	{
		page: "examples/pytorch-ddp/README.md", hosts: []string{"host0", "host1"}, gives: "cp $TOP/examples/pytorch-ddp/* .",
		lines: []line{
			{text: "muster run train.py", how: "[ $NODE = 1 ] || typed", says: "world size 1, accuracy"},
			{text: "muster run --nproc-per-node 2 train.py", how: "[ $NODE = 1 ] || typed", says: "world size 2, accuracy"},
			{text: "muster run --nnodes 2 --nproc-per-node 2", says: "world size 4, accuracy"},
		},
	},
}

// members are two hosts, the first of which has an etcd.
const members = `if [ $NODE = 0 ]; then etcd --data-dir etcd --listen-client-urls http://0.0.0.0:2379 --advertise-client-urls http://e1:2379 --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 --initial-cluster default=http://127.0.0.1:2380 >etcd.log 2>&1 & fi`

// upgraded is a job, and another program for it; upgrades waits for the agent that runs that, and has the job.
const (
	upgraded = "job --nproc-per-node 2; cp $(command -v muster) FILE"
	upgrades = `old=$(agent); typed; until new=$(agent); [ "$new" ] && [ "$new" != "$old" ]; do :; done; muster status --watch | grep -m 1 'running for'`
)

// checked and measured are how checks end; the second is that of one node.
const (
	checked  = `^0 failed, \d+ to look at, \d+ not known, \d+ well$`
	measured = `^1 node: there is no other to compare it with$`
)

// ready waits until a job can be asked.
const ready = "until muster health ready 2>ready; do :; done; "

// started waits until a worker was started, whose environment can be shown.
const started = "until muster exec -- true 2>ready; do :; done; "

// watched is a line that goes on until the job ends.
const watched = `mkfifo seen; typed >seen & exec 3<seen; head -n 3 <&3; muster ctl stop; cat <&3; wait $! || [ $? = 143 ]`

// inWorker types a line in a worker, and looks until the worker is known to have a heartbeat.
const inWorker = `declare -f typed >typed.sh; muster run -- bash -ec '. ./typed.sh; typed; exec sleep infinity' >job.log 2>&1 & ` + ready +
	`muster status --watch --json | grep -m 1 '"heartbeats": *"[a-z]'; muster status; cat job.log; muster ctl stop; wait $! || [ $? = 143 ]`

// mnist is a job on two hosts, whose first round a worker ended.
const mnist = `
cat >train.py <<'python'
import os, signal
import muster_beat
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if os.environ["RANK"] == "3":
        raise ValueError("bad batch")
    signal.pause()
muster_beat.step(1804)
if os.environ["LOCAL_RANK"] == "0":
    open("began", "w").write("\n")
signal.pause()
python
job --nnodes 2 --nproc-per-node 2 --rdzv-id mnist --rdzv-endpoint ann:29400 --max-restarts 3
until muster status >now; [ $(grep -cw 1804 now) = 2 ] && { [ $NODE = 1 ] || grep -q '2-3 running' now; }; do :; done`
