package launcher

import (
	"context"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-run/muster/control"
	"github.com/muster-run/muster/heartbeat"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/topology"
)

func TestForeign(t *testing.T) {
	for _, c := range []struct {
		line string
		want map[string]string
	}{
		{"torchrun --nnodes=2 --rdzv_endpoint h0:29500 --rdzv-id=7 train.py", map[string]string{"nnodes": "2", "rdzv-endpoint": "h0:29500", "rdzv-id": "7"}},
		{"python -m torch.distributed.run --nnodes 1:4 --master-addr=h0 --master_port 1234 --node_rank 1 x.py --nnodes 9 --master-addr h9",
			map[string]string{"nnodes": "1:4", "master-addr": "h0", "master-port": "1234", "node-rank": "1"}},
		{"accelerate launch --num_machines 2 --main_process_ip 10.0.0.1 --main_process_port 5 --machine_rank 0 x.py",
			map[string]string{"nnodes": "2", "master-addr": "10.0.0.1", "master-port": "5", "node-rank": "0"}},
		{"torchrun x.py --nnodes", map[string]string{"nnodes": ""}},
		{"sh -c train", map[string]string{}},
	} {
		if got := foreign(strings.Fields(c.line)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.line, got, c.want)
		}
	}
}

// lookout is a config for looking at a command.
func lookout(line string, env map[string]string) Config {
	return Config{
		Argv: strings.Fields(line), NodeRank: -1, OnExit: onExitStop, OnHang: hangDump, Serve: "auto", Log: slog.New(slog.DiscardHandler),
		Host: job.Host{Getenv: func(name string) string { return env[name] }, ReadFile: func(string) ([]byte, error) { return nil, fs.ErrNotExist }, Hostname: "h7"},
	}
}

func TestPlanLookout(t *testing.T) {
	for _, c := range []struct {
		name     string
		c        Config
		endpoint string // host and port, or the host alone
		alone    string // why
	}{
		{"flags", lookout("torchrun --nnodes 2 --rdzv-endpoint h0:29500 x.py", nil), "h0", ""},
		{"the platform", lookout("torchrun x.py", map[string]string{"PET_NNODES": "2", "PET_RDZV_ENDPOINT": "h0:29500", "PET_RDZV_BACKEND": "c10d"}), "h0", ""},
		{"one node", lookout("torchrun --standalone --nproc-per-node 8 x.py", nil), "", ""},
		{"a script", lookout("bash train.sh", nil), "", ""},
		{"nobody says where", lookout("torchrun --nnodes 2 x.py", nil), "", "nothing says where they meet"},
		{"an etcd", lookout("torchrun x.py", map[string]string{"PET_NNODES": "2", "PET_RDZV_ENDPOINT": "h0:2379", "PET_RDZV_BACKEND": "etcd", "PET_RDZV_ID": "a"}), "", "etcd"},
		{"nonsense", lookout("torchrun --nnodes 2 --rdzv-endpoint :::: x.py", nil), "", "::::"},
	} {
		p, err := planLookout(c.c)
		if (err != nil) != (c.alone != "") || err != nil && !strings.Contains(err.Error(), c.alone) {
			t.Errorf("%s: %v, want %q", c.name, err, c.alone)
		}
		host := hostOf(p.Endpoint)
		if host != c.endpoint || p.Spec.ID == "" || strings.HasSuffix(string(p.Endpoint), ":29500") {
			t.Errorf("%s: %+v, want to meet at %q", c.name, p, c.endpoint)
		}
	}
	inside := lookout("muster run x.py", nil)
	inside.Nodes, inside.Endpoint, inside.From = 2, "h1:4000", map[string]string{"rdzv-endpoint": "MUSTER_RDZV_ENDPOINT"}
	if p, err := planLookout(inside); err != nil || p.Endpoint != beside("h1:4000", p.Spec.ID, nil) {
		t.Errorf("an endpoint that is meant for what is inside: %+v, %v", p, err)
	}
	inside.Argv = strings.Fields("muster run --rdzv-endpoint h0:29500 x.py")
	if p, err := planLookout(inside); err != nil || hostOf(p.Endpoint) != "h0" {
		t.Errorf("the command knows better: %+v, %v", p, err)
	}
	inside.From = map[string]string{"rdzv-endpoint": "--rdzv-endpoint"}
	if p, err := planLookout(inside); err != nil || p.Endpoint != "h1:4000" {
		t.Errorf("a flag counts: %+v, %v", p, err)
	}
	own := lookout("torchrun --nnodes 2 --rdzv-endpoint h0:29500 x.py", nil)
	own.Endpoint = "h1:4000"
	if p, err := planLookout(own); err != nil || p.Endpoint != "h1:4000" || p.Spec.Nodes != 2 {
		t.Errorf("an endpoint of its own: %+v, %v", p, err)
	}
}

// All nodes find the same port.
func TestBeside(t *testing.T) {
	a, b := beside("h0:29500", "x", nil), beside("h0:29500", "y", nil)
	if a != beside("h0:29500", "x", nil) || a == b || hostOf(a) != "h0" {
		t.Errorf("%s and %s", a, b)
	}
	_, port, _ := net.SplitHostPort(string(a)) // workers may have it
	for _, c := range []Config{
		lookout("torchrun --nnodes 2 --rdzv-endpoint h0:29500 --rdzv-id x --master-port "+port, nil),
		lookout("torchrun --nnodes 2 --rdzv-endpoint h0:29500 --rdzv-id x", map[string]string{"MASTER_PORT": port}),
		lookout("torchrun --rdzv-endpoint h0:29500 --rdzv-id x", map[string]string{"PET_NNODES": "2", "PET_MASTER_PORT": port}),
	} {
		p, err := planLookout(c)
		if err != nil || hostOf(p.Endpoint) != "h0" || strings.HasSuffix(string(p.Endpoint), ":"+port) {
			t.Errorf("%s: %s is the command's own, %v", c.Argv, p.Endpoint, err)
		}
	}
	for i := range 3 * lookPorts { // some of them come to what is taken
		at := beside("h0:20001", strconv.Itoa(i), nil)
		if _, port, _ := net.SplitHostPort(string(at)); slices.Contains([]string{"20001", "29400", "29500"}, port) {
			t.Errorf("%d: %s is taken", i, at)
		}
	}
}

// Only what is known to be nobody's any more is removed.
func TestTidy(t *testing.T) {
	place := t.TempDir()
	made := func(name string) string {
		dir := filepath.Join(place, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	owned := func(name string) *os.File {
		f, err := own(made(name))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	defer owned("muster-observe-lives").Close()
	defer owned("muster-job-7-lives").Close()
	owned("muster-observe-killed").Close()
	owned("muster-job-7-killed").Close()
	made("muster-observe-older")
	if err := os.Symlink("muster-job-7-killed", filepath.Join(place, "muster-observe-elsewhere")); err != nil {
		t.Fatal(err)
	}
	tidy(place)
	left, _ := filepath.Glob(filepath.Join(place, "*"))
	for i := range left {
		left[i] = filepath.Base(left[i])
	}
	if want := []string{"muster-job-7-lives", "muster-observe-elsewhere", "muster-observe-lives", "muster-observe-older"}; !slices.Equal(left, want) {
		t.Errorf("%q are left, want %q", left, want)
	}
}

func TestTurnover(t *testing.T) {
	var o turnover
	for i, c := range []struct {
		rank, pid int
		anew      bool
	}{
		{0, 10, false}, {1, 11, false}, {0, 10, false}, {0, 20, true}, {1, 11, false}, {1, 21, false}, {0, 20, false}, {1, 31, true}, {0, 20, false}, {0, 30, false},
	} {
		if got := o.note(c.rank, c.pid); got != c.anew {
			t.Errorf("%d: rank %d is pid %d: %v", i, c.rank, c.pid, got)
		}
	}
}

// observing is an observer of a command that exited with a code.
func observing(code int) *observer {
	return &observer{c: lookout("python3 -m torch.distributed.run x.py", nil), command: pid1.Told{PID: 5, Code: code, End: &proc.Exit{PID: 5, Code: code}}}
}

// The verdict waits for nothing that is to be closed.
func TestObserverLeavesVerdict(t *testing.T) {
	c := lookout("sh train.sh", nil)
	c.Root, c.VerdictFile = topology.Root(t.TempDir()), filepath.Join(t.TempDir(), "verdict")
	news, closing, left := make(chan pid1.Told), make(chan struct{}), make(chan bool)
	o := newObserver(c, pid1.Told{Note: t.TempDir(), PID: 5}, time.Now())
	o.finding.Go(func() { <-closing })
	var ran sync.WaitGroup
	ran.Go(func() {
		o.run(news, func() {
			o.ending(report.Ending{})
			close(left)
		})
	})
	news <- pid1.Told{PID: 5, Code: 3, End: &proc.Exit{PID: 5, Code: 3}}
	select {
	case <-left:
	case <-time.After(4 * time.Minute):
		t.Error("nothing is left before all is closed")
	}
	if b, err := os.ReadFile(c.VerdictFile); !strings.Contains(string(b), `"exit_code": 3`) {
		t.Errorf("%s, %v", b, err)
	}
	close(closing)
	ran.Wait()
}

// An observer whose loop stands still is not well, whoever asks.
func TestObserverStandsStill(t *testing.T) {
	o := newObserver(lookout("sh train.sh", nil), pid1.Told{Note: t.TempDir(), PID: 5}, time.Now())
	defer o.openPage().Close()
	socket := filepath.Join(o.out.Dir, pageSocket)
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	for _, c := range []struct {
		turns time.Duration
		code  int
		says  string
	}{{time.Hour, 200, "the agent"}, {-time.Hour, 503, "the observer's main loop stands still"}} {
		o.turns.within(c.turns)
		for _, path := range []string{"/healthz", "/readyz"} {
			r, err := client.Get("http://localhost" + path)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(r.Body)
			if r.Body.Close(); r.StatusCode != c.code || !strings.Contains(string(text), c.says) {
				t.Errorf("%v: %s is %d, %s", c.turns, path, r.StatusCode, text)
			}
		}
		for _, do := range []string{"live", "ready"} {
			if _, err := o.handle(t.Context(), control.Request{Do: do}); (err == nil) != (c.code == 200) {
				t.Errorf("%v: %s: %v", c.turns, do, err)
			}
		}
	}
}

func hung(s heartbeat.Stage, quiet time.Duration) stalled {
	return stalled{Finding: heartbeat.Finding{Stage: s, Hang: job.Hang{Class: "A", Quiet: quiet}, False: s == heartbeat.Resumed}, Text: s.String()}
}

func TestObserversVerdict(t *testing.T) {
	over := observing(1)
	for _, e := range []stalled{hung(heartbeat.Suspect, 12), hung(heartbeat.Hung, 32), hung(heartbeat.Resumed, 50)} {
		over.noted(e)
	}
	lasts := observing(1)
	lasts.noted(hung(heartbeat.Slow, 30))
	before := observing(1)
	before.noted(hung(heartbeat.Hung, 30))
	before.lapse()
	before.round++
	well := observing(0)
	well.noted(hung(heartbeat.Hung, 30))
	killed := observing(137)
	killed.command.End = &proc.Exit{PID: 5, Signal: 9}
	for _, c := range []struct {
		name, class, says string
		o                 *observer
		hang              bool
	}{
		{"over before", job.Failed, "torch.distributed.run (pid 5) exited with code 1", over, false},
		{"to the end", job.Failed, "torch.distributed.run (pid 5) exited with code 1; before that: slow: slow", lasts, true},
		{"in the round before", job.Failed, "torch.distributed.run (pid 5) exited with code 1", before, false},
		{"that did no harm", job.Succeeded, "torch.distributed.run (pid 5) exited with code 0", well, false},
		{"none", job.Killed, "torch.distributed.run (pid 5) was killed by SIGKILL, which muster did not send", killed, false},
	} {
		v := c.o.verdict()
		if v.Class != c.class || v.Sentence != c.says || (v.Hang != nil) != c.hang || v.Code != c.o.command.Code {
			t.Errorf("a hang %s: %+v", c.name, v)
		}
	}
	if s := over.stalls; len(s) != 1 || s[0].Over != 50 || !s[0].False || s[0].Stage != "hung" || over.said.Alarms != 1 {
		t.Errorf("standstills %+v", s)
	}
}

// What torchrun leaves of a worker's exception is in the verdict, but not what an earlier run left.
func TestObserversException(t *testing.T) {
	path := filepath.Join(t.TempDir(), "error.json")
	if err := os.WriteFile(path, []byte(`{"message": {"message": "ValueError: x\ny", "errorCode": 1}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	o := observing(1)
	o.c.Environ = []string{"TORCHELASTIC_ERROR_FILE=" + path}
	o.falls = openFalls(o.c)
	if got := o.verdict().Sentence; !strings.HasSuffix(got, "exited with code 1, of ValueError: x") {
		t.Error(got)
	}
	o.began = time.Now().Add(time.Minute)
	if got := o.verdict().Sentence; !strings.HasSuffix(got, "exited with code 1") {
		t.Error(got)
	}
}

// Ranks that nobody observes may be those that are waited for.
func TestStrangers(t *testing.T) {
	o := observing(0)
	o.size = 4
	look := heartbeat.Look{Beats: []job.Beat{{Rank: 1}}, Ended: []int{0}, Unheard: []int{3}}
	o.strangers(&look)
	if len(look.Beats) != 2 || look.Beats[1].Rank != 2 || look.Beats[1].Sources != 0 || look.Beats[1].Mute == "" {
		t.Errorf("%+v", look.Beats)
	}
}
