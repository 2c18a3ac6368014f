package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/test/etcdtest"
	"github.com/muster-run/muster/test/stage"
)

// Nodes meet in an etcd, and leave nothing in it.
func TestEtcd(t *testing.T) {
	t.Parallel()
	exe := stage.Build(t) // the test binary itself does not have the client for etcd
	for name, test := range map[string]func(t *testing.T, exe string){
		"training": etcdTraining, "torchrun's variables": etcdPET, "agents are killed": etcdTakeOver, "a worker fails": etcdFailure,
		"etcd starts again": etcdRestart, "etcd stands still": etcdStill, "etcd stands still at the end": etcdLate, "an agent dies as etcd stands still at the end": etcdLateKilled, "two of an index": etcdSecond, "two of an index, elastic": etcdSecondElastic, "a member is lost": etcdMember, "a node is lost": etcdNode, "TLS": etcdTLS,
		"wrong password": etcdPassword, "hosts": etcdHosts, "a node that may not come": etcdStranger, "the release before": etcdPrevious, "no programs in memory": etcdNoMemfd,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, exe) })
	}
}

// viaEtcd starts two nodes that meet there.
func viaEtcd(t *testing.T, exe string, at *etcdtest.Cluster, vars []string, args ...string) []*program {
	t.Helper()
	return []*program{oneOf(t, exe, at, 0, "2", vars, args...), oneOf(t, exe, at, 1, "2", vars, args...)}
}

// oneOf starts one of so many.
func oneOf(t *testing.T, exe string, at *etcdtest.Cluster, rank int, nodes string, vars []string, args ...string) *program {
	t.Helper()
	return startProgram(t, t.TempDir(), vars, append([]string{exe, "run", "--nnodes", nodes, "--node-rank", strconv.Itoa(rank), "--nproc-per-node", "2",
		"--rdzv-id", "job7", "--rdzv-endpoint", "etcd://" + strings.Join(at.Endpoints(), ","), "--join-timeout", "2m"}, args...)...)
}

// each waits for a word of all ranks of the two nodes.
func each(all []*program, word string) {
	for rank := range 4 {
		all[rank/2].says(fmt.Sprintf("[rank %d] %s", rank, word))
	}
}

// nothingLeft: the last node to go has cleared all away.
func nothingLeft(t *testing.T, at *etcdtest.Cluster) {
	t.Helper()
	if keys := at.Keys(); len(keys) > 0 {
		t.Errorf("left in etcd: %q", keys)
	}
}

// Two agents of two workers each train with real PyTorch; the workers' own store is one of muster's processes, or rank 0.
func etcdTraining(t *testing.T, exe string) {
	at, torch := etcdtest.Start(t, 1), python(t, "debian")
	for _, kind := range []string{"agent", "rank0"} {
		for _, p := range viaEtcd(t, exe, at, []string{"PYTHON_EXEC=" + torch, "GLOO_SOCKET_IFNAME=lo"}, "--worker-store", kind,
			abs(t, "../../examples/pytorch-ddp/train.py"), "--epochs", "2", "--expect-world", "4") {
			p.ends(0)
		}
	}
	nothingLeft(t, at)
}

// What an operator sets for torchrun is enough.
func etcdPET(t *testing.T, exe string) {
	at := etcdtest.Start(t, 1)
	var all []*program
	for n := range 2 {
		all = append(all, startProgram(t, t.TempDir(), []string{"PET_NNODES=2", "PET_NODE_RANK=" + strconv.Itoa(n), "PET_NPROC_PER_NODE=2",
			"PET_RDZV_ID=job7", "PET_RDZV_BACKEND=etcd-v2", "PET_RDZV_ENDPOINT=" + at.Endpoints()[0]},
			exe, "run", "--", "sh", "-c", "echo of $WORLD_SIZE"))
	}
	each(all, "of 4")
	for _, p := range all {
		p.ends(0)
	}
	nothingLeft(t, at)
}

// Agents die, both of them, and others take over, with all that etcd takes.
func etcdTakeOver(t *testing.T, exe string) {
	at, done := etcdtest.Start(t, 1), filepath.Join(t.TempDir(), "done")
	all := viaEtcd(t, exe, at, nil, "--", "sh", "-c", "echo up; until [ -e "+done+" ]; do sleep 0.05; done; echo of $WORLD_SIZE")
	each(all, "up")
	for _, p := range all {
		p.killAgent()
	}
	all[0].asks("ctl", "upgrade", exe).ends(0, "makes way for")
	all[0].says("took over from the agent that made way")
	all[0].saysTimes(tookOver, 1)
	signalFile(t, done)
	each(all, "of 4")
	for _, p := range all {
		p.ends(0)
	}
	nothingLeft(t, at)
}

// A failure is told on its own road, and the next round needs no etcd.
func etcdFailure(t *testing.T, exe string) {
	at := etcdtest.Start(t, 1)
	all := viaEtcd(t, exe, at, nil, "--max-restarts", "1", "--", "sh", "-c",
		`echo "up $TORCHELASTIC_RESTART_COUNT"; [ $RANK = 3 ] && exit 9; exec sleep 1000`)
	for _, p := range all {
		p.ends(9, "rank 3", "restart 1 of 1")
	}
	nothingLeft(t, at)
}

// etcd is killed under a node that waits for another, and under a running world, and comes back with what it had.
func etcdRestart(t *testing.T, exe string) {
	at, done := etcdtest.Start(t, 1), filepath.Join(t.TempDir(), "done")
	work := []string{"--", "sh", "-c", "echo up; until [ -e " + done + " ]; do sleep 0.05; done"}
	all := []*program{oneOf(t, exe, at, 0, "2", nil, work...)}
	all[0].says("1 of 2 nodes here")
	at.Members[0].Kill()
	all[0].says("the store at " + at.Endpoints()[0] + " is away: connection ") // refused, reset or closed
	at.Members[0].Start()
	all = append(all, oneOf(t, exe, at, 1, "2", nil, work...))
	each(all, "up")
	at.Members[0].Kill()
	at.Members[0].Start()
	at.Keys() // it answers
	signalFile(t, done)
	for _, p := range all {
		p.ends(0)
	}
	nothingLeft(t, at)
}

// For more than half a minute etcd does not answer, until after the end of the job: its keys go later.
func etcdStill(t *testing.T, exe string) {
	at := etcdtest.Start(t, 1)
	all := viaEtcd(t, exe, at, nil, "--", "sh", "-c", "echo up; exec sleep 31")
	each(all, "up")
	at.Members[0].Stop()
	for _, p := range all {
		p.ends(0)
	}
	at.Members[0].Continue()
	if len(at.Keys()) == 0 {
		t.Error("etcd did not stand still")
	}
	at.Empties()
}

// etcd does not answer just as a job ends for whose end a spare waits: the leader tells it when it does, and the spare does not begin the job again.
func etcdLate(t *testing.T, exe string) { etcdLateFor(t, exe, false) }

// An agent that dies meanwhile leaves that to the next one.
func etcdLateKilled(t *testing.T, exe string) { etcdLateFor(t, exe, true) }

func etcdLateFor(t *testing.T, exe string, killed bool) {
	at, done := etcdtest.Start(t, 1), filepath.Join(t.TempDir(), "done")
	node := func(script string) *program {
		return startProgram(t, t.TempDir(), nil, exe, "run", "--nnodes", "1", "--spares", "1", "--nproc-per-node", "1", "--rdzv-id", "job7",
			"--rdzv-endpoint", "etcd://"+at.Endpoints()[0], "--", "sh", "-c", script)
	}
	a := node("echo up; until [ -e " + done + " ]; do sleep 0.05; done")
	a.says("[rank 0] up")
	b := node("echo again; exit 3")
	b.saysTimes("waiting for its end", 2) // by then the leader knows of it
	at.Members[0].Stop()
	signalFile(t, done)
	a.says("1 node waits to hear how the job ended, and the store at " + at.Endpoints()[0] + " is away: ")
	if killed {
		if err := syscall.Kill(agentOf(t, a.cmd.Process.Pid), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		a.says("another one takes over")
		a.says("nodes may wait to hear how the job ended")
	}
	at.Members[0].Continue()
	a.ends(0, "the store answers again, and how the job ended was said there")
	b.ends(0, "the job ended while this node stood by: all workers ended well")
	nothingLeft(t, at)
}

// A second agent under the index of one that lives ends with the job, and leaves nothing either.
func etcdSecond(t *testing.T, exe string) { etcdSecondOf(t, exe, "2") }

func etcdSecondElastic(t *testing.T, exe string) { etcdSecondOf(t, exe, "1:2") }

func etcdSecondOf(t *testing.T, exe, nodes string) {
	at, done := etcdtest.Start(t, 1), filepath.Join(t.TempDir(), "done")
	work := []string{"--", "sh", "-c", "echo up; until [ -e " + done + " ]; do sleep 0.05; done"}
	all := []*program{oneOf(t, exe, at, 0, nodes, nil, work...), oneOf(t, exe, at, 1, nodes, nil, work...)}
	each(all, "up")
	for n := range 2 {
		p := oneOf(t, exe, at, n, nodes, nil, work...)
		p.says("waiting for its end, for another agent has the place of ")
		all = append(all, p)
	}
	signalFile(t, done)
	for i, p := range all {
		if p.ends(0); i >= 2 {
			p.ends(0, "the job ended without this agent", "all workers of all 2 nodes ended well")
		}
	}
	nothingLeft(t, at)
}

// The first process of the leading node is killed; those that are left meet again, and nothing is left in the end.
func etcdNode(t *testing.T, exe string) {
	at, done := etcdtest.Start(t, 1), filepath.Join(t.TempDir(), "done")
	var all []*program
	for n := range 3 {
		all = append(all, oneOf(t, exe, at, n, "2:3", nil, "--last-call", "1m", "--", "sh", "-c",
			"echo of $WORLD_SIZE; until [ -e "+done+" ]; do sleep 0.05; done"))
	}
	for _, p := range all {
		p.says("of 6")
	}
	all[0].cmd.Process.Kill()
	for _, p := range all[1:] {
		p.says("of 4")
	}
	signalFile(t, done)
	for _, p := range all[1:] {
		p.ends(0)
	}
	at.Empties()
}

// A member of three is lost before one node comes, another one while they meet, which comes back, and then two under the running world.
func etcdMember(t *testing.T, exe string) {
	at, done := etcdtest.Start(t, 3), filepath.Join(t.TempDir(), "done")
	at.Keys() // it answers
	at.Members[0].Kill()
	work := []string{"--", "sh", "-c", "echo up; until [ -e " + done + " ]; do sleep 0.05; done"}
	all := []*program{oneOf(t, exe, at, 0, "3", nil, work...), oneOf(t, exe, at, 1, "3", nil, work...)}
	for _, p := range all {
		p.says("2 of 3 nodes here")
	}
	at.Members[0].Start()
	at.Keys()
	at.Members[1].Kill()
	all = append(all, oneOf(t, exe, at, 2, "3", nil, work...))
	for _, p := range all {
		p.says("up")
	}
	at.Members[2].Kill()
	signalFile(t, done)
	for _, p := range all {
		p.ends(0)
	}
}

// An etcd that asks for certificates and a password gets them by etcdctl's variables, or by torchrun's words.
func etcdTLS(t *testing.T, exe string) {
	at, certs := etcdtest.StartTLS(t)
	at.Lock("secret")
	all := viaEtcd(t, exe, at, []string{"ETCDCTL_CACERT=" + certs.CA, "ETCDCTL_CERT=" + certs.Cert, "ETCDCTL_KEY=" + certs.Key, "ETCDCTL_USER=root:secret"},
		"--", "sh", "-c", "echo of $WORLD_SIZE")
	each(all, "of 4")
	for _, p := range all {
		p.ends(0)
	}
	all = viaEtcd(t, exe, at, []string{"ETCDCTL_PASSWORD=secret"}, "--rdzv-conf", fmt.Sprintf("protocol=https,ca_cert=%s,ssl_cert=%s,ssl_cert_key=%s", certs.CA, certs.Cert, certs.Key),
		"--etcd-user", "root", "--", "sh", "-c", "echo of $WORLD_SIZE")
	each(all, "of 4")
	for _, p := range all {
		p.ends(0)
	}
	for _, p := range viaEtcd(t, exe, at, nil, "--etcd-cacert", "/dev/null", "true") {
		p.ends(2, "/dev/null holds no certificate in PEM; see --etcd-cacert")
	}
}

// Who does not know the password, or may only read, is told so at once.
func etcdPassword(t *testing.T, exe string) {
	at := etcdtest.Start(t, 1)
	at.Post("auth/user/add", `{"name":"reader","password":"secret"}`, nil)
	at.Post("auth/role/add", `{"name":"reads"}`, nil)
	at.Post("auth/role/grant", `{"name":"reads","perm":{"permType":"READ","key":"AA==","range_end":"AA=="}}`, nil)
	at.Post("auth/user/grant", `{"user":"reader","role":"reads"}`, nil)
	at.Lock("secret")
	for user, why := range map[string]string{
		"root:guess":    "log in as root: etcdserver: authentication failed, invalid user ID or password; ",
		"reader:secret": "etcd: reader may not read and write the keys below /muster/job7/: etcdserver: permission denied; ",
	} {
		for _, p := range viaEtcd(t, exe, at, nil, "--etcd-user", user, "true") {
			p.ends(job.ExitStore, "etcd at "+at.Endpoints()[0]+": ", why)
		}
	}
}

// Two hosts with an etcd on one of them: the workers get an address of their leader that the other host can reach.
func etcdHosts(t *testing.T, exe string) {
	names, _ := hosts(t)
	at := etcdtest.StartOn(t, "10.77.0.1", "ip", "netns", "exec", names[0])
	var all []*program
	for _, name := range names {
		all = append(all, startProgram(t, t.TempDir(), nil, "ip", "netns", "exec", name, exe, "run", "--nnodes", "2", "--rdzv-id", "job7",
			"--rdzv-endpoint", "etcd://"+at.Endpoints()[0], "--join-timeout", "1m", "--", "sh", "-c", `echo "$RANK of $WORLD_SIZE at $MASTER_ADDR"`))
	}
	for _, p := range all {
		p.ends(0)
	}
	worldOfHosts(t, all)
}

// Where nodes meet in an etcd, addresses that may not come are kept from the agents' line, and say so.
func etcdStranger(t *testing.T, exe string) {
	names, _ := withStranger(t)
	at := etcdtest.StartOn(t, "10.77.0.1", "ip", "netns", "exec", names[0])
	joins := func(host, rank int, code int, words ...string) func() {
		p := startProgram(t, t.TempDir(), nil, "ip", "netns", "exec", names[host], exe, "run", "--nnodes", "2", "--node-rank", fmt.Sprint(rank), "--rdzv-id", "job7",
			"--rdzv-endpoint", "etcd://"+at.Endpoints()[0], "--store-allow", "10.77.0.0/24", "--join-timeout", "1m", "--", "sh", "-c", `echo "$RANK of $WORLD_SIZE"`)
		return func() { p.ends(code, words...) }
	}
	for _, end := range []func(){joins(0, 0, job.ExitRetry, "connection from 10.77.1.3 to the agents' line was closed"),
		joins(2, 1, job.ExitRetry, "--store-allow 10.77.0.0/24 has none of this node's addresses, [10.77.1.3]", "this node's address is not among those that are let in (--store-allow)")} {
		end()
	}
	for _, end := range []func(){joins(0, 0, 0), joins(1, 1, 0, "1 of 2")} {
		end()
	}
}

// A kernel that lets nobody run what is in memory alone is told of.
func etcdNoMemfd(t *testing.T, exe string) {
	p := startProgram(t, t.TempDir(), nil, "unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", `echo 2 >/proc/sys/vm/memfd_noexec; exec "$@"`, "sh",
		exe, "run", "--nnodes", "2", "--rdzv-id", "job7", "--rdzv-endpoint", "etcd://127.0.0.1:1", "true")
	p.ends(job.ExitSystem, "start the build of muster that has the client for etcd: a file in memory: permission denied; is vm.memfd_noexec 2")
}

// BenchmarkTwoNodes is a job of two nodes that does nothing, from the start of the first agent to the end of the last.
func BenchmarkTwoNodes(b *testing.B) {
	exe := stage.Build(b)
	etcd := etcdtest.Start(b, 1)
	etcd.Keys() // it answers
	for name, endpoint := range map[string]string{"c10d": "127.0.0.1:29417", "etcd": "etcd://" + etcd.Endpoints()[0]} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				var both sync.WaitGroup
				for n := range 2 {
					both.Go(func() {
						args := []string{"run", "--nnodes", "2", "--node-rank", strconv.Itoa(n), "--rdzv-id", "job7", "--rdzv-endpoint", endpoint, "true"}
						if out, err := exec.Command(exe, args...).CombinedOutput(); err != nil {
							b.Errorf("%v: %s", err, out)
						}
					})
				}
				both.Wait()
			}
		})
	}
}
