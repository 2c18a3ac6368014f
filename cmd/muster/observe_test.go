package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-run/muster/control"
	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/test/freeport"
)

// observed starts a command under muster init --observe.
func observed(t *testing.T, vars []string, flags string, argv ...string) *program {
	t.Helper()
	dir := t.TempDir()
	line := slices.Concat([]string{"init", "-s", "--observe", "--verdict", filepath.Join(dir, "verdict")}, strings.Fields(flags), []string{"--"}, argv)
	return muster(t, dir, append(vars, terminationLog+"="+filepath.Join(dir, "words")), line...)
}

// observer is its status, once it observes and is as it should be. Before it listens another test's may be found.
func (p *program) observer(is func(report.Status) bool) (s report.Status) {
	p.t.Helper()
	if !comes(patience, func() bool {
		all := control.Find(p.tmp)
		s = report.Status{}
		return len(all) == 1 && strings.HasPrefix(all[0].Path, p.tmp) && all[0].Ask(context.Background(), control.Request{Do: "status"}, &s) == nil && is(s)
	}) {
		p.t.Fatalf("the observer is never so: %+v\n%s", s, p.out.String())
	}
	return s
}

func observes(s report.Status) bool { return s.Phase == report.Observing }

// leaves checks the verdict and the last words.
func (p *program) leaves(code int, class string) {
	p.t.Helper()
	b, err := os.ReadFile(filepath.Join(p.cmd.Dir, "verdict"))
	if err != nil {
		p.t.Fatal(err)
	}
	var v struct {
		Code  int    `json:"exit_code"`
		Class string `json:"class"`
	}
	if err := json.Unmarshal(b, &v); err != nil || v.Code != code || v.Class != class {
		p.t.Errorf("verdict %s: %v; want code %d, class %s", b, err, code, class)
	}
	if words, err := os.ReadFile(filepath.Join(p.cmd.Dir, "words")); err != nil || !strings.Contains(string(words), fmt.Sprintf(`"exit_code":%d`, code)) {
		p.t.Errorf("last words %s, %v", words, err)
	}
	if left, _ := filepath.Glob(filepath.Join(p.tmp, "muster-*")); len(left) > 0 {
		p.t.Errorf("%s is left behind", left)
	}
}

func TestObserveEnds(t *testing.T) {
	for _, c := range []struct {
		script, class string
		code          int
	}{
		{"echo mine", "succeeded", 0}, {"echo mine; exit 7", "failed", 7}, {"echo mine; kill -9 $$", "killed", 137}, {"echo mine; kill -11 $$", "killed", 139},
	} {
		t.Run(fmt.Sprint(c.code), func(t *testing.T) {
			t.Parallel()
			p := observed(t, nil, "", sh(c.script)...)
			p.ends(c.code, "mine\n")
			p.leaves(c.code, c.class)
		})
	}
}

// Who watches an observer hears how the command ended.
func TestObserverIsWatched(t *testing.T) {
	t.Parallel()
	open := filepath.Join(t.TempDir(), "open")
	p := observed(t, nil, "", sh("while [ ! -e "+open+" ]; do sleep 0.02; done; exit 7")...)
	p.observer(observes)
	w := p.asks("status", "--watch")
	w.says("observing")
	signalFile(t, open)
	p.ends(7)
	w.ends(7, "the job has ended: ", "; exit 7")
}

// What cannot be started ends as without --observe, and nobody looks on.
func TestObserveNothing(t *testing.T) {
	t.Parallel()
	observed(t, nil, "", "/none").ends(127, "no such file")
}

// Without --observe its flags say nothing; that is told. Variables may be for others.
func TestObserveFlags(t *testing.T) {
	t.Parallel()
	muster(t, t.TempDir(), nil, "init", "-s", "--evidence", "x", "--", "true").ends(2, "--evidence goes with --observe")
	muster(t, t.TempDir(), []string{"MUSTER_EVIDENCE=x"}, "init", "-s", "--", "true").ends(0)
	observed(t, nil, "--on-hang restart", "true").ends(2, "never does")
	observed(t, nil, "--events x", "true").ends(2, "there is no --events with --observe: it decides nothing")
	observed(t, []string{"MUSTER_EVENTS=x"}, "", "true").ends(0)
	observed(t, []string{"MUSTER_ON_HANG=restart"}, "", "true").ends(0)
	others := filepath.Join(t.TempDir(), "verdict")
	muster(t, t.TempDir(), []string{"MUSTER_VERDICT=" + others}, "init", "-s", "--observe", "--", "true").ends(0)
	if _, err := os.Stat(others); err == nil {
		t.Error("the file that a variable names is for the verdict of what init starts")
	}
}

// The command's environment is its own, but for what loads the hook.
func TestObserveEnvironment(t *testing.T) {
	t.Parallel()
	names := func(vars ...string) (all []string) {
		p := observed(t, vars, "", "sh", "-c", "env | cut -d= -f1 | sed 's/^/name /'")
		p.ends(0)
		for _, line := range strings.Split(p.out.String(), "\n") {
			if name, ok := strings.CutPrefix(line, "name "); ok && !slices.Contains([]string{"_", "PWD", "OLDPWD", "SHLVL"}, name) {
				all = append(all, name)
			}
		}
		slices.Sort(all)
		return all
	}
	plain := []string{terminationLog, "PATH", asMuster, "GORACE", "TMPDIR"}
	hooked := append(slices.Clone(plain), "MUSTER_PAGES", "PYTHONPATH", "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
	off := append(slices.Clone(plain), "MUSTER_HOOK")
	for _, want := range [][]string{plain, hooked, off} {
		slices.Sort(want)
	}
	if got := names(); !slices.Equal(got, hooked) {
		t.Errorf("%v, want %v", got, hooked)
	}
	if got := names("MUSTER_HOOK=off"); !slices.Equal(got, off) {
		t.Errorf("%v, want %v", got, off)
	}
	if got := names("MUSTER_TOKEN=0123456789abcdef", "MUSTER_ETCD_USER=me:secret"); !slices.Equal(got, hooked) {
		t.Errorf("what the observer alone needs: %v, want %v", got, hooked)
	}
}

// Without --observe all is for the command, in which muster may be told to run.
func TestInitEnvironment(t *testing.T) {
	t.Parallel()
	vars := []string{"MUSTER_TOKEN=0123456789abcdef", "MUSTER_ETCD_USER=me:secret"}
	muster(t, t.TempDir(), vars, "init", "-s", "--", "sh", "-c", "echo $MUSTER_TOKEN $MUSTER_ETCD_USER").ends(0, "0123456789abcdef me:secret")
}

// The launcher that is looked at is not one within a worker, whatever number of nodes the platform tells it.
func TestObserveOnPlatform(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "torchrun")
	if err := os.WriteFile(script, []byte("print('real')\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	observed(t, []string{"WORLD_SIZE=4", "RANK=1"}, "", "python3", script).ends(0, "real")
}

// Whatever becomes of who looks on, nothing becomes of the command.
func TestObserverDies(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGSTOP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			p := observed(t, nil, "", sh("trap 'echo got it; exit 9' TERM; echo up; while :; do sleep 0.1; done")...)
			p.says("up")
			s := p.observer(observes)
			if err := syscall.Kill(s.PID, sig); err != nil {
				t.Fatal(err)
			}
			if sig != syscall.SIGSTOP {
				p.says("the command goes on")
			}
			if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			p.ends(9, "got it")
		})
	}
}

// What one leaves in memory that is killed with all of its namespace, the next one removes.
func TestObserverTidiesUp(t *testing.T) {
	t.Parallel()
	p := observed(t, nil, "", sh("echo up $$; while :; do sleep 0.1; done")...)
	p.says("up")
	p.observer(observes)
	dirs, _ := filepath.Glob(filepath.Join(p.tmp, "muster-observe-*"))
	if len(dirs) != 1 {
		t.Fatalf("%q, want one", dirs)
	}
	pages := filepath.Join("/dev/shm", filepath.Base(dirs[0]))
	observed(t, nil, "", "true").ends(0)
	if _, err := os.Stat(pages); err != nil {
		t.Fatalf("of one that lives: %v", err)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if child := regexp.MustCompile(`up (\d+)`).FindStringSubmatch(p.out.String()); child != nil {
		pid, _ := strconv.Atoi(child[1])
		syscall.Kill(pid, syscall.SIGKILL)
	}
	<-p.done
	observed(t, nil, "", "true").ends(0)
	if _, err := os.Stat(pages); err == nil {
		t.Errorf("%s is still there", pages)
	}
}

// Those that observe two nodes find each other by what the commands were told; the commands wait for nobody.
func TestObserversMeet(t *testing.T) {
	t.Parallel()
	at := fmt.Sprintf("--rdzv_endpoint=127.0.0.1:%d", freeport.Take(t))
	var nodes []*program
	for range 2 {
		p := observed(t, nil, "", "sh", "-c", "echo up; trap 'exit 5' TERM; while :; do sleep 0.1; done", "--nnodes", "2", "--rdzv-id", "two", at)
		p.says("up")
		p.observer(observes)
		nodes = append(nodes, p)
	}
	for _, p := range nodes {
		p.observer(func(s report.Status) bool { return s.Job == "two" && len(s.Nodes) == 2 })
	}
	for i, p := range nodes {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		p.ends(5, "exited with code 5")
		p.leaves(5, "failed")
		if i == 0 { // the other one looks on alone, and waits for another to come
			nodes[1].observer(func(s report.Status) bool { return len(s.Nodes) == 0 && strings.Contains(s.Waits, "observed alone") })
		}
	}
}

// It does not act, whoever asks.
func TestObserverObeysNobody(t *testing.T) {
	t.Parallel()
	p := observed(t, nil, "", sh("echo up; trap 'exit 5' TERM; while :; do sleep 0.1; done")...)
	p.says("up")
	p.observer(observes)
	for _, do := range []string{"stop", "restart", "pause", "resume", "upgrade", "inside"} {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err := control.Find(p.tmp)[0].Ask(ctx, control.Request{Do: do}, nil)
		cancel()
		if err == nil || !strings.Contains(err.Error(), "only observes") {
			t.Errorf("%s: %v", do, err)
		}
	}
	p.observer(observes)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.ends(5)
}
