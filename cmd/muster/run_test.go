package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/test/freeport"
)

// Every way to go wrong before a worker runs: one clear line, and the documented code.
func TestWrongUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"plain.txt": 0o644, "broken": 0o755} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("neither ELF nor script\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args string
		env  string
		code int
		say  string
	}{
		{"", "", 2, "muster COMMAND --help"},
		{"rnu", "", 2, `unknown command "rnu"; did you mean muster run?`},
		{"ctl --job a stop", "", 2, "ctl: flags follow the command: muster ctl stop --job ..."},
		{"health --job=a live", "", 2, "health: flags follow the command: muster health live --job ..."},
		{"ctl --job", "", 2, "ctl: no command, and flags follow it; muster ctl --help lists them"},
		{"bash s.sh", "", 2, `unknown command "bash"; muster --help lists them, and what starts a job of another program is: muster run -- bash ...`},
		{"OMP_NUM_THREADS=1 torchrun x.py", "", 2, "a variable stands before muster (OMP_NUM_THREADS=1 muster ...), or behind the program env (muster run -- env OMP_NUM_THREADS=1 ...)"},
		{"env A=b torchrun x.py", "", 127, "or behind the program env (muster run -- env A=b ...)"},
		{"store gte", "", 2, "did you mean muster store get?"},
		{"run", "", 2, "nothing to run; for example: muster run train.py"},
		{"run --nnods 2 true", "", 2, "unknown flag --nnods; did you mean --nnodes?"},
		{"run --lr 1e-4 train.py", "", 2, "unknown flag --lr"},
		{"run --nnodes", "", 2, "--nnodes needs a value"},
		{"run --nnodes two true", "", 2, `"two" is no number of nodes`},
		{"run --nnodes 4:1 true", "", 2, "the first is to be the fewest"},
		{"run --standalone --nnodes 1:4 true", "", 2, "--nnodes 1:4 more"},
		{"run --nnodes 1 --spares 1 true", "", 2, "2 nodes, but nothing says where they meet"},
		{"run --nnodes 2 true", "", 2, "say --rdzv-endpoint HOST:PORT"},
		{"run --nnodes 2 --standalone true", "", 2, "--standalone means one node"},
		{"run --nnodes 2 --node-rank 2 --rdzv-endpoint h:1 true", "", 2, "--node-rank 2, but the nodes are 2"},
		{"run --nnodes 2 --rdzv-endpoint h:0 true", "", 2, "--rdzv-endpoint h:0 has no port from 1 to 65535"},
		{"run --nnodes 2 --rdzv-endpoint h --master-addr m true", "", 2, "both say where to meet"},
		{"run --worker-store agnet true", "", 2, `--worker-store: "agnet" is none of auto, agent, rank0`},
		{"run --max-restarts -1 true", "", 2, `"-1" is no whole number from 0`},
		{"run --no-python --module true", "", 2, "--module is Python, --no-python is not"},
		{"run --redirects 4 true", "", 2, `"4" is none of 0 (no stream), 1 (stdout)`},
		{"run -t 1:3 true", "", 2, "--tee names local rank 1, but this node has 1 workers"},
		{"run true", "PET_STANDALONE=x", 2, `PET_STANDALONE: "x" is neither true nor false`},
		{"run true", "PET_TEE=x", 2, `PET_TEE: "x" is none of 0`},
		{"run --ranks 3-1 true", "", 2, `"3-1" names no ranks`},
		{"run --log-quota 1 true", "", 2, `"1" is no size`},
		{"run --log-format xml true", "", 2, `"xml" is neither text nor json`},
		{"run --fold --log-format json true", "", 2, "--fold and --log-format"},
		{"run --rdzv-id none true", "", 2, `--rdzv-id "none" cannot name a job`},
		{"run --nproc-per-node 0 true", "", 2, "--nproc-per-node 0 is no number of workers"},
		{"run --join-timeout soon true", "", 2, "is no duration"},
		{"run --join-timeout 0 true", "", 2, `--join-timeout: "0" is no time to wait`},
		{"run --rdzv-conf join_timeout=0 true", "", 2, `--rdzv-conf: join_timeout: "0" is no time to wait`},
		{"run --framework torhc true", "", 2, "--framework torhc: no framework"},
		{"run true", "MUSTER_NNODES=x", 2, `MUSTER_NNODES: "x" is no number of nodes`},
		{"run true", "MUSTER_WORKER_STORE=x", 2, `MUSTER_WORKER_STORE: "x" is none of`},
		{"run true", "MUSTER_UNEVEN=perhaps", 2, `MUSTER_UNEVEN: "perhaps" is neither true nor false`},
		{"run true", "MUSTER_NPROC_PER_NODE=x", 2, "MUSTER_NPROC_PER_NODE=x is no number of workers"},
		{"run true", "MUSTER_FRAMEWORK=x", 2, "MUSTER_FRAMEWORK=x: no framework"},
		{"run --standalone true", "MUSTER_NNODES=2", 2, "--standalone means one node, MUSTER_NNODES=2 more"},
		{"run --worker-port 7 --rdzv-endpoint h:7 true", "MUSTER_NNODES=2", 2, "--worker-port 7 is also where the nodes meet (--rdzv-endpoint h:7)"},
		{"run true", "PET_NNODES=2 PET_MASTER_ADDR=h PET_MASTER_PORT=99999", 2, "PET_MASTER_PORT=99999 is no port"},
		{"run true", "MUSTER_WORKER_STORE= MUSTER_NNODES= MUSTER_UNEVEN= MUSTER_GRACE= MUSTER_RDZV_ID=", 0, ""},
		{"run --run-path train.py", "", 2, "--run-path is torchrun's, and not in this version: leave it out"},
		{"run --role trainer true", "", 2, `--role: "trainer" is none of default`},
		{"run --start-method thread true", "", 2, `--start-method: "thread" is none of spawn, fork, forkserver`},
		{"run --rdzv-conf rdzv_backend=c10d,overlap_timeout=9 true", "", 0, "--rdzv-conf overlap_timeout changes nothing: torchrun's rendezvous reads no such key either"},
		{"run --rdzv-conf x true", "", 2, `--rdzv-conf: "x" is no KEY=VALUE`},
		{"run --rdzv-conf join_timeout=soon true", "", 2, `--rdzv-conf: join_timeout: "soon" is no duration`},
		{"run --role default --monitor_interval 5 true", "", 0, "--monitor-interval changes nothing"},
		{"run --start-method=spawn true", "", 0, "--start-method changes nothing"},
		{"run --rdzv-conf keep_alive_interval=2,keep_alive_max_attempt=0 true", "", 2, `--rdzv-conf: keep_alive_max_attempt: "0" is no whole number from 1 to 1000`},
		{"run --rdzv-conf keep_alive_interval=0 true", "", 2, "--rdzv-conf: keep_alive_interval: 0 is no time between two signs of life"},
		{"run --nnodes 1:2 --rdzv-endpoint 127.0.0.1:1 --node-timeout 60 --join-timeout 60 true", "", 2, "until no worker can live any more that an older one knew of, and for half of --join-timeout at most, which is 1m0s; give --join-timeout 2m18s"},
		{"run --node-timeout 2s true", "", 2, "--node-timeout: 2s: give 5s to 5m0s"},
		{"run true", "MUSTER_NODE_TIMEOUT=2h", 2, "MUSTER_NODE_TIMEOUT: 2h0m0s: give 5s to 5m0s"},
		{"run --rdzv-conf timeout=900,read_timeout=60 true", "", 0, "--rdzv-conf read_timeout changes nothing"},
		{"run --nnodes 2 --rdzv-endpoint 127.0.0.1:1 --rdzv-conf is_host=0,join_timeout=1 true", "", 68, "no store at 127.0.0.1:1 within 1s"},
		{"run true", "MUSTER_UNEVEN=no MUSTER_PORT=tcp://10.0.0.1:80", 0, ""},
		{"run --framework mpi --on-worker-exit restart --max-restarts 1 true", "", 2, "MPI takes no rank back"},
		{"pmi --world (vector,(0,2,2)) --node 2 --name k --store h:1", "", 2, "are not enough for the 2 nodes"},
		{"pmi --world 2x2", "", 2, `"2x2" is no mapping`},
		{"store serve --inherit", "MUSTER_PORT=tcp://10.0.0.1:80", 70, ""},
		{"run --nnodes 2 --rdzv-id j --rdzv-endpoint etcd://h true", "", 2, "built without the client for etcd; `make build` builds one with it"},
		{"run --rdzv-backend zeus true", "", 2, `--rdzv-backend: "zeus" is none of c10d, static, etcd, etcd-v2`},
		{"run --rdzv-backend etcd-v2 --rdzv-conf cacert=/x,protocol=https true", "", 0, "torchrun speaks etcd's API v2, muster its v3"},
		{"run true", "WORLD_SIZE=4", 2, "looks like one of several nodes"},
		{"run true", "MASTER_ADDR=m WORLD_SIZE=2 RANK=2", 2, "node 2, but there are only 2 nodes"},
		{"run --nproc-per-node gpu true", "", job.ExitRefused, "no GPU for the workers"},
		{"run nothere.py", "", 127, "no script nothere.py (in " + dir},
		{"run nothere", "", 127, "start nothere: no such command in PATH ("},
		{"run ./nothere", "", 127, "start ./nothere: no such file; paths are relative"},
		{"run -- plain.txt", "", 127, "a file of the working directory is ./plain.txt"},
		{"run ./plain.txt", "", 126, "start ./plain.txt: permission denied; is it executable (chmod +x)?"},
		{"run ./broken", "", 126, "broken"},
		{"run train.py", "PYTHON_EXEC=/nothere/python", 127, "PYTHON_EXEC: start /nothere/python: no such file; exit 127"},
		{"env --rank 7 true", "", 2, "rank 7: the world would have ranks 0 to 0"},
		{"store set k", "", 2, "store set: takes KEY VALUE"},
		{"init", "", 2, "init: nothing to run"},
		{"init --rewrite TERM:NOPE true", "", 2, `"NOPE" is no signal`},
	} {
		t.Run(c.args+" "+c.env, func(t *testing.T) {
			t.Parallel()
			muster(t, dir, strings.Fields(c.env), strings.Fields(c.args)...).ends(c.code, c.say)
		})
	}
}

// What each worker sees, and how its output looks.
func TestSingleNode(t *testing.T) {
	t.Parallel()
	p := muster(t, t.TempDir(), []string{"RANK=7", "OMP_NUM_THREADS=9"}, "run", "--nproc_per_node=3", "--nnodes=1", "--",
		"sh", "-c", `echo "rank $RANK of $WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE, threads $OMP_NUM_THREADS"; printf 'no newline' >&2`)
	p.ends(0,
		"[rank 0] rank 0 of 3, local 0 of 3, threads 9\n",
		"[rank 1] rank 1 of 3, local 1 of 3, threads 9\n",
		"[rank 2] rank 2 of 3, local 2 of 3, threads 9\n",
		"[rank 2] no newline [muster: no newline here]\n")
}

// The exit code is that of the worker that failed first, and the last line says which that was.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		script string
		code   int
		say    string
	}{
		{"exit 0", 0, ""},
		{"exit 3", 3, "exited with code 3; exit 3"},
		{"exit 255", 1, "exited with code 255; exit 1"},
		{"kill -9 $$", 137, "was killed by SIGKILL, which muster did not send"},
		{"kill -SEGV $$", 122, "was killed by SIGSEGV"},
		{"exit 139", 122, "a shell's word for SIGSEGV"},
	} {
		t.Run(c.script, func(t *testing.T) {
			t.Parallel()
			muster(t, t.TempDir(), nil, "run", "--", "sh", "-c", c.script).ends(c.code, c.say)
		})
	}
	for script, code := range map[string]int{"kill -SEGV $$": 139, "kill -USR1 $$": 138, "exit 134": 134, "exit 255": 1, "exit 7": 7} {
		t.Run("posix "+script, func(t *testing.T) {
			t.Parallel()
			muster(t, t.TempDir(), nil, "run", "--signal-exit", "posix", "--", "sh", "-c", script).ends(code)
		})
	}
}

// A script is run by the interpreter that PYTHON_EXEC, the virtual environment or PATH names.
func TestPython(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := "import os, sys\nprint('argv', sys.argv[1:], 'venv', os.environ.get('VIRTUAL_ENV'), sys.stdout.write_through)\n" +
		"raise ValueError('bad seed')\n"
	if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	p := muster(t, dir, nil, "run", "train.py", "--nnodes", "$$5", "--", "x")
	p.ends(1, "argv ['--nnodes', '$$5', '--', 'x']", "exited with code 1: ValueError: bad seed; exit 1")
	muster(t, dir, nil, "run", "-m", "train", "y").ends(1, "argv ['y']")
	if err := os.WriteFile(filepath.Join(dir, "-x.py"), []byte("print('a script like any other')\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	muster(t, dir, nil, "run", "--", "-x.py").ends(0, "a script like any other")
	muster(t, dir, nil, "run", "").ends(2, "the name of the script or program is empty")
	muster(t, dir, nil, "run", "-m", "").ends(2, "the name of the script or program is empty")
}

// Two nodes agree on ranks; the order of their coming does not matter.
func TestTwoNodes(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 2, nil, "--", "sh", "-c", `echo "rank $RANK of $WORLD_SIZE on node $GROUP_RANK at $MASTER_ADDR"`)
	all[0].ends(0, "[rank 0] rank 0 of 4 on node 0 at 127.0.0.1\n", "[rank 1] rank 1 of 4 on node 0 at 127.0.0.1\n")
	all[1].ends(0, "[rank 2] rank 2 of 4 on node 1 at 127.0.0.1\n", "[rank 3] rank 3 of 4 on node 1 at 127.0.0.1\n")
}

// A node without a number gets one; MASTER_ADDR and PET_ variables do what flags do.
func TestPlatformVariables(t *testing.T) {
	t.Parallel()
	port := strconv.Itoa(freeport.Take(t))
	var all []*program
	for n := range 2 {
		env := []string{"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port, "WORLD_SIZE=2", "RANK=" + strconv.Itoa(n)}
		if n == 1 { // the other one is told in torchrun's words
			env = []string{"PET_NNODES=2", "PET_NODE_RANK=1", "PET_MASTER_ADDR=127.0.0.1", "PET_MASTER_PORT=" + port, "PET_NPROC_PER_NODE=1"}
		}
		all = append(all, muster(t, t.TempDir(), env, "run", "--", "sh", "-c", `echo "$RANK of $WORLD_SIZE"`))
	}
	all[0].ends(0, "[rank 0] 0 of 2\n")
	all[1].ends(0, "[rank 1] 1 of 2\n")
}

// One worker of one node is killed: every agent ends with that, on either node, and nothing is left.
func TestKilledWorker(t *testing.T) {
	t.Parallel()
	for victim := range 4 {
		t.Run(fmt.Sprintf("rank %d", victim), func(t *testing.T) {
			t.Parallel()
			mark := "TEST_MARK=" + t.TempDir()
			all := startNodes(t, 2, []string{mark}, "--", "sh", "-c", `echo "pid $$"; (setsid sleep 1000 & echo started; wait) & wait`)
			for n, p := range all {
				p.says(fmt.Sprintf("[rank %d] started", 2*n))
				p.says(fmt.Sprintf("[rank %d] started", 2*n+1))
			}
			pid := regexp.MustCompile(fmt.Sprintf(`\[rank %d\] pid (\d+)`, victim)).FindStringSubmatch(all[victim/2].out.String())
			number, err := strconv.Atoi(pid[1])
			if err != nil {
				t.Fatal(err)
			}
			syscall.Kill(number, syscall.SIGKILL)
			host, _ := os.Hostname()
			for _, p := range all {
				p.ends(137, fmt.Sprintf("rank %d on %s (node %d, local rank %d, pid %d) was killed by SIGKILL, which muster did not send",
					victim, host, victim/2, victim%2, number), "; all 2 nodes stopped; exit 137")
			}
			if left := alive(t, mark); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

// A worker fails on its own, and the louder failures that follow do not hide it.
func TestFirstCause(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 2, nil, "--", "sh", "-c",
		`trap 'exit 9' TERM; if [ $RANK = 3 ]; then sleep 0.2; exit 4; fi; while :; do sleep 0.05; done`)
	for _, p := range all {
		p.ends(4, "rank 3 on", "(node 1, local rank 1")
	}
}

// A program that cannot be started on one node is told on both.
func TestMissingOnOneNode(t *testing.T) {
	t.Parallel()
	endpoint := fmt.Sprintf("127.0.0.1:%d", freeport.Take(t))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "worker"), []byte("#!/nothere/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	good := t.TempDir()
	if err := os.WriteFile(filepath.Join(good, "worker"), []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	flags := []string{"run", "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-endpoint", endpoint, "./worker"}
	a, b := muster(t, good, nil, flags...), muster(t, dir, nil, flags...)
	a.ends(127, "could not be started")
	b.ends(127, "could not be started")
}

// Told to stop, a node tells the others; workers have time for a checkpoint.
func TestTerm(t *testing.T) {
	t.Parallel()
	for asked := range 2 {
		t.Run(fmt.Sprintf("node %d", asked), func(t *testing.T) {
			t.Parallel()
			all := startNodes(t, 2, nil, "--", "sh", "-c", `trap 'echo checkpoint $RANK; exit 0' TERM; echo "ready $RANK"; while :; do sleep 0.05; done`)
			for n, p := range all {
				p.says(fmt.Sprintf("ready %d", 2*n))
				p.says(fmt.Sprintf("ready %d", 2*n+1))
			}
			all[asked].cmd.Process.Signal(syscall.SIGTERM)
			for n, p := range all {
				p.ends(143, fmt.Sprintf("node %d (", asked), "was told to stop by SIGTERM; exit 143",
					fmt.Sprintf("checkpoint %d\n", 2*n), fmt.Sprintf("checkpoint %d\n", 2*n+1))
			}
		})
	}
}

// Told to stop while it waits for peers, a node does so at once, also as the only process of a container.
func TestTermWhileWaiting(t *testing.T) {
	t.Parallel()
	endpoint := fmt.Sprintf("127.0.0.1:%d", freeport.Take(t))
	p := muster(t, t.TempDir(), nil, "run", "--nnodes", "2", "--rdzv-endpoint", endpoint, "--", "true")
	p.says("1 of 2 nodes here")
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.ends(143, "was told to stop by SIGTERM before any worker was started")
	q := muster(t, t.TempDir(), nil, "run", "--nnodes", "2", "--serve", "no", "--rdzv-endpoint", endpoint, "--", "true")
	q.says("waiting for the store at " + endpoint)
	q.cmd.Process.Signal(syscall.SIGINT)
	q.ends(130, "SIGINT")
}

// No time at all is none, whoever ends the workers.
func TestNoTime(t *testing.T) {
	t.Parallel()
	const deaf = `trap '' TERM; echo ready; while :; do sleep 0.05; done`
	p := muster(t, t.TempDir(), nil, "run", "--stop-timeout", "0", "--", "sh", "-c", deaf)
	p.says("ready")
	p.doom()
	p.ends(job.ExitRetry, "1 workers did not end within 0s of TERM and are killed")
	q := muster(t, t.TempDir(), nil, "run", "--grace", "0", "--", "sh", "-c", deaf)
	q.says("ready")
	told := time.Now()
	q.cmd.Process.Signal(syscall.SIGTERM)
	q.ends(143)
	if d := time.Since(told); d >= 25*time.Second { // --grace by default
		t.Errorf("it took %v", d)
	}
	muster(t, t.TempDir(), nil, "run", "--stop-timeout", "0", "--nproc-per-node", "2", "--", "sh", "-c", "[ $RANK = 0 ] && exit 3; "+deaf).ends(3)
}

// A limit that leaves no room is named; workers have the limit of open files that the user set.
func TestLimits(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	startProgram(t, t.TempDir(), nil, "sh", "-c", `ulimit -n 16; exec "$0" run -- true`, self).
		ends(job.ExitSystem, "no room to start: ulimit -n is 16, and muster needs 32 open files; raise that limit")
	startProgram(t, t.TempDir(), nil, "sh", "-c", `ulimit -Sn 6; exec "$0" run -- sh -c 'ulimit -Sn'`, self).ends(0, "[rank 0] 6\n")
	startProgram(t, t.TempDir(), nil, "sh", "-c", `ulimit -n 63; exec "$0" run --nproc-per-node 8 -- sh -c 'echo no'`, self).
		ends(job.ExitSystem, "no room for the workers: ulimit -n is 63, and muster needs 64 open files for 8 of them; raise that limit; exit 71")
	startProgram(t, t.TempDir(), nil, "sh", "-c", `ulimit -n 64; exec "$0" run --nproc-per-node 8 -- sh -c 'echo yes $RANK'`, self).ends(0, "[rank 7] yes 7\n")
}

// What a container may lack is named, or done without.
func TestBareContainer(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	startProgram(t, t.TempDir(), nil, "unshare", "-m", "sh", "-c", `umount -l /proc; exec "$0" run -- true`, self).
		ends(job.ExitSystem, "no process table at /proc, which muster cannot do without")
	startProgram(t, t.TempDir(), nil, "unshare", "-p", "-f", self, "run", "--", "true").
		ends(job.ExitSystem, "no process table at /proc, which muster cannot do without (what is there is of another PID namespace); mount it")
	const readOnly = `unset TMPDIR; mount --bind /tmp /tmp; mount -o remount,bind,ro /tmp; `
	startProgram(t, t.TempDir(), nil, "unshare", "-m", "sh", "-c", readOnly+`exec "$0" run -- sh -c 'echo $TORCHELASTIC_ERROR_FILE'`, self).
		ends(0, "[rank 0] /dev/shm/muster-job-")
	startProgram(t, t.TempDir(), nil, "unshare", "-m", "sh", "-c", readOnly+`TMPDIR=/tmp exec "$0" run -- true`, self).
		ends(job.ExitSystem, "mkdir /tmp/muster-job-", "read-only file system; set TMPDIR to a directory that can be written")
}

// A variable that misses one of ours by a slip is told: without it a node might train alone.
func TestMisspeltVariable(t *testing.T) {
	t.Parallel()
	vars := []string{"MUSTER_NNODE=2", "MUSTER_GRAEC=4", "MUSTER_SERVICE_PORT=80", "MUSTER_PORT_80_TCP=tcp://10.0.0.1:80", "MUSTER_GRACE=5", "MUSTER_TERMINATION_LOG=/dev/null"}
	p := muster(t, t.TempDir(), vars, "run", "true")
	p.ends(0, "MUSTER_NNODE is not known here; did you mean MUSTER_NNODES?", "MUSTER_GRAEC is not known here; did you mean MUSTER_GRACE?")
	if n := strings.Count(p.out.String(), "is not known here"); n != 2 {
		t.Errorf("%d variables are told:\n%s", n, p.out.String())
	}
}

// The first process is killed: nothing outlives it, and the other node knows.
func TestLostFirstProcess(t *testing.T) {
	t.Parallel()
	mark := "TEST_MARK=" + t.TempDir()
	all := startNodes(t, 2, []string{mark}, "--", "sh", "-c", `echo "started $RANK"; exec sleep 1000`)
	for n, p := range all {
		p.says(fmt.Sprintf("started %d", 2*n))
		p.says(fmt.Sprintf("started %d", 2*n+1))
	}
	all[1].cmd.Process.Kill()
	all[0].ends(job.ExitRetry, "exit 138")
	all[1].says("the first process on")
	for left := alive(t, mark); len(left) > 0; left = alive(t, mark) { // the agent leaves on its own
		if t.Context().Err() != nil {
			t.Fatalf("left behind: %q", left)
		}
		runtime.Gosched()
	}
}

// agentOf returns the agent that the first process started.
func agentOf(t *testing.T, first int) int {
	t.Helper()
	agents := agentsOf(first)
	if len(agents) == 0 {
		t.Fatalf("the first process %d has no agent", first)
	}
	return agents[0]
}

// agentsOf returns the agents of the first process, of which one may be dying. The store's process is of the same program.
func agentsOf(first int) (agents []int) {
	children, _ := proc.Root("/proc").Children(first)
	for _, child := range children {
		if env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", child)); bytes.Contains(env, []byte("MUSTER_PID1=")) {
			agents = append(agents, child)
		}
	}
	return agents
}

// Peers that never come are named, and a meeting point that is none is told from one that is not there yet.
func TestNobodyComes(t *testing.T) {
	t.Parallel()
	stranger, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stranger.Close() })
	go greet(stranger)
	held := stranger.Addr().(*net.TCPAddr).Port
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	mute := silent.Addr().(*net.TCPAddr).Port
	for _, c := range []struct {
		name, flags string
		code        int
		say         []string
	}{
		{"one is missing", fmt.Sprintf("--nnodes 2 --node-rank 0 --rdzv-endpoint 127.0.0.1:%d --join-timeout 2", freeport.Take(t)),
			job.ExitPeers, []string{"1 of 2 nodes here", "missing node 1", "exit 66"}},
		{"nobody hosts", fmt.Sprintf("--nnodes 2 --serve no --rdzv-endpoint 127.0.0.1:%d --join-timeout 4", freeport.Take(t)),
			job.ExitStore, []string{"waiting for the store at 127.0.0.1:", "connection refused", "no store at"}},
		{"no such name", "--nnodes 2 --rdzv-endpoint nosuch.invalid:29400 --join-timeout 2",
			job.ExitStore, []string{"no store at nosuch.invalid:29400 within 2s: name"}},
		{"a stranger has the port", fmt.Sprintf("--nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --master-port %d", held),
			job.ExitStranger, []string{fmt.Sprintf("another program holds port %d (pid %d", held, os.Getpid())}},
		{"a stranger that says nothing has the port", fmt.Sprintf("--nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --master-port %d", mute),
			job.ExitStranger, []string{fmt.Sprintf("another program holds port %d (pid %d", mute, os.Getpid())}},
		{"a stranger that says nothing is here", fmt.Sprintf("--nnodes 2 --rdzv-endpoint 127.0.0.1:%d", mute),
			job.ExitStranger, []string{fmt.Sprintf("another program holds port %d (pid %d", mute, os.Getpid())}},
		{"a stranger answers", fmt.Sprintf("--nnodes 2 --serve no --rdzv-endpoint 127.0.0.1:%d", held),
			job.ExitStranger, []string{"another program listens at 127.0.0.1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			args := append(append([]string{"run"}, strings.Fields(c.flags)...), "--", "true")
			muster(t, t.TempDir(), nil, args...).ends(c.code, c.say...)
		})
	}
}

// The workers' port that another program holds is named as it was given.
func TestWorkerPortIsTaken(t *testing.T) {
	t.Parallel()
	stranger, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stranger.Close() })
	held := stranger.Addr().(*net.TCPAddr).Port
	taken := fmt.Sprintf("%d is held by another program (pid %d", held, os.Getpid())
	muster(t, t.TempDir(), nil, "run", "--worker-port", strconv.Itoa(held), "true").ends(job.ExitStranger, "--worker-port "+taken)
	muster(t, t.TempDir(), []string{fmt.Sprint("MUSTER_WORKER_PORT=", held)}, "run", "true").ends(job.ExitStranger, "MUSTER_WORKER_PORT="+taken)
}

// greet answers every connection as a mail server would.
func greet(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		c.Write([]byte("220 mail.example ESMTP\r\n"))
		c.Close()
	}
}

// Nodes that do not fit together are told so, all with the same words.
func TestMisfits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, one, other, say string }{
		{"numbers of nodes", "--nnodes 2", "--nnodes 3", "give all nodes the same --nnodes"},
		{"slots", "--nnodes 2 --nproc-per-node 1", "--nnodes 2 --nproc-per-node 2", "slots"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			endpoint := fmt.Sprintf("127.0.0.1:%d", freeport.Take(t))
			for _, p := range []*program{
				muster(t, t.TempDir(), nil, append(append([]string{"run", "--rdzv-endpoint", endpoint}, strings.Fields(c.one)...), "true")...),
				muster(t, t.TempDir(), nil, append(append([]string{"run", "--rdzv-endpoint", endpoint}, strings.Fields(c.other)...), "true")...),
			} {
				p.ends(job.ExitRefused, c.say)
			}
		})
	}
}

// The last words are where Kubernetes looks for them.
func TestLastWords(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "termination-log")
	if err := os.WriteFile(log, []byte(strings.Repeat("x", 3000)), 0o644); err != nil {
		t.Fatal(err)
	}
	p := muster(t, t.TempDir(), []string{"MUSTER_TERMINATION_LOG=" + log}, "run", "--", "sh", "-c", "exit 7")
	p.ends(7)
	words, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(words)), "\n")
	if len(words) > 1024 || len(lines) != 3 || lines[0] != lines[2] || !strings.Contains(lines[0], "exited with code 7") ||
		!strings.Contains(lines[1], `"exit_code":7`) {
		t.Errorf("%d bytes: %q", len(words), words)
	}
}

// Wrong use is told there too, whichever process finds it out.
func TestLastWordsOfWrongUse(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"run --nnods 2 true":            "unknown flag --nnods",
		"run --worker-store agnet true": "is none of auto, agent, rank0",
		"run --nnodes 2 true":           "nothing says where they meet",
	} {
		log := filepath.Join(t.TempDir(), "termination-log")
		muster(t, t.TempDir(), []string{"MUSTER_TERMINATION_LOG=" + log}, strings.Fields(args)...).ends(2)
		words, err := os.ReadFile(log)
		if err != nil || strings.Count(string(words), want) != 2 || !strings.Contains(string(words), `"class":"refused"`) {
			t.Errorf("%s: %q, %v", args, words, err)
		}
	}
}

// The store alone, from a shell.
func TestStoreCommands(t *testing.T) {
	t.Parallel()
	port := freeport.Take(t)
	server := muster(t, t.TempDir(), nil, "store", "serve", "--host", "127.0.0.1", "--port", strconv.Itoa(port))
	server.says("store at 127.0.0.1")
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"set k v", 0, ""}, {"get k", 0, "v\n"}, {"add n 5", 0, "5\n"}, {"add n", 0, "6\n"}, {"append k w", 0, ""},
		{"get k", 0, "vw\n"}, {"check k n", 0, ""}, {"check k nope", 1, ""}, {"compare-set k vw x", 0, "x\n"},
		{"num-keys", 0, "2\n"}, {"delete k", 0, ""}, {"delete k", 1, ""}, {"keys", 0, "n\n"}, {"wait n", 0, ""},
		{"--timeout 300ms get nope", 66, "muster: nope at 127.0.0.1"},
	} {
		args := []string{"store", strings.Fields(c.args)[0], "--endpoint", fmt.Sprintf("127.0.0.1:%d", port)}
		if rest, slow := strings.CutPrefix(c.args, "--timeout 300ms "); slow {
			args = append([]string{"store", strings.Fields(rest)[0], "--timeout", "300ms"}, args[2:]...)
			c.args = rest
		}
		p := muster(t, t.TempDir(), nil, append(args, strings.Fields(c.args)[1:]...)...)
		p.ends(c.code)
		if got := p.out.String(); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("store %s: %q, want %q", c.args, got, c.want)
		}
	}
	server.cmd.Process.Signal(syscall.SIGTERM)
	server.ends(0)
}
