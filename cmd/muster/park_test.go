package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/test/freeport"
)

// lwsPod is what LeaderWorkerSet tells a pod of a group.
func lwsPod(size, index int) []string {
	return []string{"LWS_LEADER_ADDRESS=llm-0.llm.ns", fmt.Sprint("LWS_GROUP_SIZE=", size), fmt.Sprint("LWS_WORKER_INDEX=", index)}
}

// Where the platform would start the job again, its agents stay after success, answer, and end well when they are told to. What the job had is
// free for another one.
func TestPark(t *testing.T) {
	t.Parallel()
	endpoint := fmt.Sprintf("127.0.0.1:%d", freeport.Take(t))
	verdict := filepath.Join(t.TempDir(), "verdict")
	group := func(flags ...string) (all []*program) {
		for n := range 2 {
			args := append([]string{"run", "--rdzv-endpoint", endpoint, "--verdict", fmt.Sprint(verdict, n)}, flags...)
			all = append(all, muster(t, t.TempDir(), lwsPod(2, n), append(args, "--", "sh", "-c", "echo trained $RANK of $WORLD_SIZE")...))
		}
		return all
	}
	all := group("--park", "yes")
	for n, p := range all {
		p.says(fmt.Sprintf("trained %d of 2", n))
		p.says("parked after success: ")
		s := p.reaches(report.Parked)
		if s.World != 2 || len(s.Nodes) != 2 || *s.Node != n || len(s.Workers) != 0 || !strings.Contains(s.Waits, "SIGTERM") {
			t.Errorf("%+v", s)
		}
		p.asks("status").ends(0, "job llm-0.llm.ns: parked for", "world size 2 on 2 nodes", "waits for: SIGTERM")
		p.asks("status", "--watch").ends(0, "the job has ended: ")
		p.asks("health", "ready").ends(0)
		p.asks("health", "live").ends(0)
		p.asks("ctl", "restart").ends(1, "the job is over, and this agent is parked")
		p.asks("exec", "--", "true").ends(1, "no worker was started yet")
		if text, err := os.ReadFile(fmt.Sprint(verdict, n)); err != nil || !strings.Contains(string(text), `"outcome": "succeeded"`) {
			t.Errorf("no verdict while it is parked: %v %s", err, text)
		}
	}
	for n, p := range group("--park", "no") { // at the same endpoint, of the same name
		p.ends(0, fmt.Sprintf("trained %d of 2", n))
	}
	all[0].cmd.Process.Signal(syscall.SIGTERM)
	all[0].ends(0, "told to end by SIGTERM, after the job")
	all[1].asks("ctl", "stop").ends(0)
	all[1].ends(0)
}

// A pod that is made again beside parked ones waits as long as they are there, whatever --join-timeout says, whether it is that which hosts the meeting or
// another one; and when all were made again, as a rollout does, the job begins anew.
func TestParkMadeAgain(t *testing.T) {
	t.Parallel()
	for _, first := range []int{0, 1} {
		t.Run(fmt.Sprint("pod ", first), func(t *testing.T) {
			t.Parallel()
			endpoint := fmt.Sprintf("127.0.0.1:%d", freeport.Take(t))
			pod := func(n int) *program {
				serve := []string{"yes", "no"}[n]
				return muster(t, t.TempDir(), lwsPod(2, n), "run", "--park", "yes", "--join-timeout", "10s", "--rdzv-endpoint", endpoint, "--serve", serve, "--", "sh", "-c", "echo trained $RANK of $WORLD_SIZE")
			}
			all := []*program{pod(0), pod(1)}
			for _, p := range all {
				p.says("parked after success: ")
			}
			made := func(n int) {
				all[n].cmd.Process.Signal(syscall.SIGTERM)
				all[n].ends(0)
				all[n] = pod(n)
			}
			stays := all[1-first]
			agent := agentOf(t, stays.cmd.Process.Pid)
			syscall.Kill(agent, syscall.SIGKILL) // the next one says so, too
			for s := (report.Status{}); s.Phase != report.Parked || s.PID == agent; {
				q := stays.asks("status", "--json")
				if <-q.done; over(stays) {
					t.Fatalf("it ended: %s", stays.out.String())
				}
				_ = json.Unmarshal([]byte(q.out.String()), &s) // between the two nobody answers
			}
			made(first)
			all[first].says("the job has ended well, and agents of it are parked: this node waits beside them")
			for longer := regexp.MustCompile(`, (1[1-9]|[2-9]\d) s: `); !longer.MatchString(all[first].out.String()); { // than --join-timeout
				if <-all[first].asks("health", "ready").done; over(all[first]) {
					t.Fatalf("it ended: %s", all[first].out.String())
				}
			}
			all[first].asks("health", "ready").ends(0)
			made(1 - first)
			for n, p := range all {
				p.says(fmt.Sprintf("trained %d of 2", n))
				p.says("parked after success: ")
				p.cmd.Process.Signal(syscall.SIGTERM)
				p.ends(0)
			}
		})
	}
}

// An agent that dies while it is parked is followed by one that is, too. Failures do not park, nor does anything where nobody starts it again.
func TestParkOrNot(t *testing.T) {
	t.Parallel()
	p := muster(t, t.TempDir(), lwsPod(1, 0), "run", "--park", "yes", "--", "sh", "-c", "echo trained once")
	p.says("parked after success: ")
	agent := agentOf(t, p.cmd.Process.Pid)
	if s := p.reaches(report.Parked); s.PID != agent {
		t.Errorf("agent %d: %+v", agent, s)
	}
	syscall.Kill(agent, syscall.SIGKILL)
	for s := (report.Status{}); s.Phase != report.Parked || s.PID == agent; {
		q := p.asks("status", "--json")
		<-q.done
		if _ = json.Unmarshal([]byte(q.out.String()), &s); over(p) { // between the two nobody answers
			t.Fatalf("it ended: %s", p.out.String())
		}
	}
	p.cmd.Process.Signal(syscall.SIGINT)
	p.ends(0)
	if n := strings.Count(p.out.String(), "trained once"); n != 1 {
		t.Errorf("it trained %d times", n)
	}
	muster(t, t.TempDir(), lwsPod(1, 0), "run", "--", "sh", "-c", "exit 9").ends(9)
	muster(t, t.TempDir(), nil, "run", "--", "true").ends(0)
	forced := muster(t, t.TempDir(), nil, "run", "--park", "yes", "--", "true")
	forced.says("parked after success: ")
	forced.cmd.Process.Signal(syscall.SIGTERM)
	forced.ends(0)
}

// Only a container's main process stays of itself. What is called by a script goes on with it, and so does a worker that starts another job.
func TestParkOfMainProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Symlink(executable(t), filepath.Join(dir, "muster")); err != nil {
		t.Fatal(err)
	}
	container := func(argv ...string) *program {
		vars := append(lwsPod(4, 2), "PATH="+dir+":/usr/bin:/bin:/usr/sbin:/sbin")
		return startProgram(t, dir, vars, append([]string{"unshare", "-p", "--fork", "--kill-child", "--mount-proc"}, argv...)...)
	}
	for _, line := range []string{"muster run --standalone -- true", "muster init -- muster run --standalone -- true"} {
		container(strings.Fields(line)...).says("parked after success: ")
	}
	container("sh", "-c", "muster run --standalone -- echo stage one; echo stage two").ends(0, "stage one\n", "stage two\n")
	container("sh", "-c", "muster run --park no --standalone -- muster run --standalone -- echo inner; echo after").ends(0, "inner\n", "after\n")
	container("muster", "run", "--standalone", "--", "sh", "-c", "muster run --standalone -- echo inner; echo after").says("after\n")
}

// over reports whether a program has ended.
func over(p *program) bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}
