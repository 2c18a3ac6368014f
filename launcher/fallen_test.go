package launcher

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/heartbeat/page"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/proc"
)

// Who ended how is the kernel's word; where that came too late, Python's.
func TestHowItEnded(t *testing.T) {
	now, ago := time.Now(), monotonic()-time.Minute
	const lost = "it was reaped"
	for _, c := range []struct {
		name   string
		e      proc.Exit
		said   page.Snapshot
		want   job.Exit
		failed bool
	}{
		{"a code", proc.Exit{Code: 7, At: now}, page.Snapshot{}, job.Exit{Code: 7}, true},
		{"a signal", proc.Exit{Signal: 9, At: now}, page.Snapshot{Exiting: true}, job.Exit{Signal: 9}, true},
		{"well", proc.Exit{At: now}, page.Snapshot{Exiting: true, Raised: "x"}, job.Exit{}, false},
		{"reaped, of an exception", proc.Exit{At: now, Lost: lost}, page.Snapshot{Exiting: true, Raised: "x", Helper: ago}, job.Exit{Code: 1}, true},
		{"reaped, by Python", proc.Exit{At: now, Lost: lost}, page.Snapshot{Exiting: true, Helper: ago}, job.Exit{Code: 1}, false},
		{"reaped, before Python could say", proc.Exit{At: now, Lost: lost}, page.Snapshot{}, job.Exit{Err: lost}, true},
		{"never seen, of an exception", proc.Exit{Lost: lost}, page.Snapshot{Exiting: true, Raised: "x", Helper: ago}, job.Exit{Code: 1}, true},
		{"never seen", proc.Exit{Lost: lost}, page.Snapshot{}, job.Exit{}, false},
	} {
		at, exit, failed := howItEnded(c.e, c.said)
		if failed != c.failed || failed && exit != c.want {
			t.Errorf("%s: %+v, %v", c.name, exit, failed)
		}
		if before := at.Before(now.Add(-time.Second)); before != (c.said.Helper > 0 || c.e.At.IsZero()) {
			t.Errorf("%s: at %v, now is %v", c.name, at, now)
		}
	}
}

// failing is a rank's failure, told by a node so long after it.
func failing(node string, group, rank, signal int, exception string, ago time.Duration) job.Failure {
	exit := job.Exit{Code: 1}
	if signal != 0 {
		exit = job.Exit{Signal: signal}
	}
	return job.Failure{Node: node, Group: group, Rank: rank, PID: 100 + rank, Exit: exit, Exception: exception, Ago: ago, Echo: toldToStop(exit)}
}

// The first one of all nodes is named, whoever told of it first; who was told to stop is not to blame.
func TestObserversFirst(t *testing.T) {
	o := observing(1)
	o.began, o.with = time.Now(), &company{rank: 1, line: &line{}}
	o.heardOf(0, failing("h0", 0, 1, 0, "RuntimeError: late", time.Second))
	o.heardOf(0, failing("h0", 0, 0, 15, "", 5*time.Second))
	o.heardOf(0, failing("h2", 2, 4, 9, "", 3*time.Second)) // the leader tells of others
	o.heardOf(2, failing("h3", 3, 6, 9, "", 9*time.Second)) // nobody else does
	o.heardOf(0, failing("h2", 2, 4, 9, "", 3*time.Second))
	o.heardOf(0, failing("h0", 0, 2, 9, "", -time.Second))
	v := o.verdict()
	if v.First == nil || v.First.Rank != 4 || v.Class != job.Killed || v.Code != 1 || len(v.Consequences) != 2 ||
		!strings.HasPrefix(v.Sentence, "rank 4 on h2 (node 2, ") || !strings.HasSuffix(v.Sentence, "; then torch.distributed.run (pid 5) exited with code 1") {
		t.Errorf("%+v", v)
	}
	o.absolve(0)
	if v = o.verdict(); v.First != nil || len(v.Rounds) != 1 || v.Rounds[0].First.Rank != 4 || v.Class != job.Failed {
		t.Errorf("of the round before: %+v", v)
	}
	o.heardOf(0, failing("h0", 0, 0, 15, "", time.Second))
	if v = o.verdict(); v.First != nil || v.Class != job.Failed || !strings.Contains(v.Sentence, "; before that rank 0 on h0") {
		t.Errorf("told to stop: %+v", v)
	}
	o.absolve(0)
	next := failing("h0", 0, 0, 9, "", time.Second)
	next.Restarts = 2
	o.heardOf(0, next)
	o.absolve(2)
	if v = o.verdict(); len(v.Rounds) != 1 || v.First == nil {
		t.Errorf("a round in which nobody failed, and the next one, told of early: %+v", v)
	}
}

// What the kernel, the page and the error file tell of a rank comes together.
func TestFell(t *testing.T) {
	o := observing(1)
	o.falls = openFalls(o.c)
	file := filepath.Join(t.TempDir(), "error.json")
	cmd := exec.Command("sh", "-c", "echo up; read line; exit 3")
	cmd.Env = append(os.Environ(), errorFileName+"="+file, restartCount+"=2")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 3)); err != nil { // its environment may be read only when it runs
		t.Fatal(err)
	}
	p, err := page.Create(filepath.Join(t.TempDir(), "rank-3"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	now, err := proc.Root("/proc").Process(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	o.first = 2
	for range 2 { // twice is once
		o.watchOver(t.Context(), []seat{{rank: 3, local: -1, pid: now.PID, start: now.Start, page: p}})
	}
	if err := os.WriteFile(file, []byte(`{"message": {"message": "ValueError: x"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	in.Close()
	o.fell(<-o.falls.ends)
	cmd.Wait()
	o.endVigils()
	o.finding.Wait()
	if len(o.falls.causes) != 1 {
		t.Fatalf("%+v", o.falls.causes)
	}
	f := *o.falls.causes[0].Failure
	if f.Rank != 3 || f.LocalRank != 1 || f.PID != now.PID || f.Exit != (job.Exit{Code: 3}) || f.Exception != "ValueError: x" || f.Restarts != 2 || f.Node != "h7" {
		t.Errorf("%+v", f)
	}
	o.roll.gone = []seat{{rank: 3, local: -1, pid: now.PID, start: now.Start, page: p}, {rank: 4, pid: 1 << 21, start: 1, page: p}}
	o.fallenUnseen()
	if len(o.falls.causes) != 1 {
		t.Errorf("%+v", o.falls.causes)
	}
}
