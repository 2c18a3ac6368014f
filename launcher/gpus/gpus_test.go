package gpus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/witness"
)

// fakes starts a shell script in place of nvidia-smi, and counts.
type fakes struct {
	t      *testing.T
	script string
	undead bool // it cannot be killed, as in state D

	mu      sync.Mutex
	started int
	killed  []int
	end     []func() // of those that cannot be killed
}

func (f *fakes) start(_ context.Context, s proc.Spec) (*proc.Child, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.started++
	if !slices.Equal(s.Argv, witness.SMI()) && !slices.Equal(s.Argv, witness.NVLinkSMI()) || !slices.Equal(s.Env, []string{"A=1"}) || s.Tag != "" {
		f.t.Errorf("%+v", s)
	}
	if f.script == "" {
		return nil, &proc.StartError{Code: 127, Text: "nvidia-smi: not found"}
	}
	cmd := exec.Command("sh", append([]string{"-c", f.script}, s.Argv...)...)
	var ours, theirs [2]*os.File
	for i := range ours {
		var err error
		if ours[i], theirs[i], err = os.Pipe(); err != nil {
			f.t.Fatal(err)
		}
		defer theirs[i].Close()
	}
	cmd.Stdout, cmd.Stderr = theirs[0], theirs[1]
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	exit, ended := make(chan proc.Exit, 1), make(chan struct{})
	f.t.Cleanup(func() { cmd.Process.Kill(); <-ended })
	go func() {
		cmd.Wait()
		exit <- proc.Exit{PID: cmd.Process.Pid}
		close(ended)
	}()
	f.end = append(f.end, func() { cmd.Process.Kill(); <-ended })
	return &proc.Child{PID: cmd.Process.Pid, Stdout: ours[0], Stderr: ours[1], Exit: exit}, nil
}

func (f *fakes) kill(_ context.Context, pids ...int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.killed = append(f.killed, pids...)
	if f.undead {
		return errors.New("state D")
	}
	f.end[len(f.end)-1]()
	return nil
}

func newFakes(t *testing.T, script string) (*fakes, *Meter) {
	f := &fakes{t: t, script: script}
	return f, New(f.start, f.kill, []string{"A=1"}, []string{"0", "1"})
}

// What accelerators draw is seen beside what they drew while training went on.
func TestGPUPower(t *testing.T) {
	at := filepath.Join(t.TempDir(), "watts")
	f, g := newFakes(t, `read a b <`+at+`; echo "0, GPU-a, $a, 100, 71250"; echo "1, GPU-b, $b, 0, 71250"; echo noise >&2`)
	ask := func(watts string, trains bool) {
		t.Helper()
		if err := os.WriteFile(at, []byte(watts+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		text, err := g.Ask(t.Context(), witness.SMI())
		if err != nil {
			t.Fatal(err)
		}
		g.note(text, nil, trains)
	}
	ask("380 390", true)
	ask("410.7 100", true)
	ask("120 70", false)
	want := []job.Sight{{GPU: 120, GPUBusy: 100, GPUUsual: 411}, {GPU: 70, GPUBusy: 0, GPUUsual: 390}, {}}
	for local := range want {
		var got job.Sight
		if g.See(&got, local); got.GPU != want[local].GPU || got.GPUBusy != want[local].GPUBusy || got.GPUUsual != want[local].GPUUsual {
			t.Errorf("local rank %d: %+v", local, got)
		}
	}
	if e := g.Evidence(); len(e) != 1 || !strings.Contains(e[0].Text, `"watts": 120`) {
		t.Errorf("%+v", e)
	}
	g.at = g.at.Add(-time.Minute)
	var old job.Sight
	if g.See(&old, 0); old.GPU != 0 {
		t.Errorf("what was seen a minute before counts: %+v", old)
	}
	if f.started != 3 || f.killed != nil {
		t.Errorf("%d were started, and %v killed", f.started, f.killed)
	}
}

// What moves over NVLinks while workers stand still is a sign of life of those whose GPU it is; what kernels that wait might exchange is none, nor
// is what was carried before.
func TestNVLinks(t *testing.T) {
	_, g := newFakes(t, "")
	g.note("0, GPU-a, 120, 100, 1\n1, GPU-b, 70, 100, 1\n", nil, false)
	answer := func(a, b uint64) string {
		return fmt.Sprintf("GPU 0: H100 (UUID: GPU-a)\n\t Link 0: Data Tx: %d KiB\nGPU 1: H100 (UUID: GPU-b)\n\t Link 0: Data Tx: %d KiB\n", a, b)
	}
	for i, c := range []struct {
		a, b   uint64 // KiB that were carried
		wa, wb uint64 // KiB that the workers moved, besides what their sockets did
	}{
		{1 << 30, 1 << 30, 0, 0},
		{1<<30 + 1<<20, 1<<30 + 1, 1 << 20, 0},
		{1<<30 + 1<<20, 7, 1 << 20, 0}, // a driver that was loaded anew
		{1<<30 + 2<<20, 8, 2 << 20, 0},
	} {
		g.told = time.Now().Add(-closer)
		g.links(answer(c.a, c.b), nil)
		for local, want := range []uint64{c.wa, c.wb} {
			s := job.Sight{Wire: 5}
			if g.See(&s, local); s.Wire != 5+want<<10 {
				t.Errorf("look %d: local rank %d moved %d, want %d", i, local, s.Wire, 5+want<<10)
			}
		}
	}
	if g.links("Unable to retrieve NVLink information", nil); !g.linkless {
		t.Error("who has no NVLinks is asked again")
	}
}

// What was moved does not shrink and grow again when nvidia-smi fails now and then: nothing has moved by that.
func TestNVLinksFlap(t *testing.T) {
	_, g := newFakes(t, "")
	const both = "0, GPU-a, 120, 100, 1\n1, GPU-b, 70, 100, 1\n"
	g.note(both, nil, false)
	for i := range 2 {
		g.told = time.Now().Add(-closer)
		g.links(fmt.Sprintf("GPU 0: H100 (UUID: GPU-a)\n\t Link 0: Data Tx: %d KiB\n", (1+i)<<20), nil)
	}
	late := errors.New("nvidia-smi does not end within 2s")
	for i, answer := range []func(){
		func() { g.note("", late, false) },
		func() { g.note(both, nil, false) },
		func() { g.note("0, [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]\n", nil, false) },
		func() { g.note(both, nil, false) },
		func() { g.links("", late) },
		func() { g.links("", late) },
	} {
		answer()
		s := job.Sight{Wire: 5}
		if g.See(&s, 0); s.Wire != 5+1<<30 || g.linkless {
			t.Errorf("answer %d: moved %d, given up %v", i, s.Wire, g.linkless)
		}
	}
	g.told = time.Now().Add(-closer)
	g.links("GPU 0: H100 (UUID: GPU-a)\n\t Link 0: Data Tx: 2097152 KiB\n", nil)
	for i := range maxFailed {
		if g.linkless {
			t.Errorf("given up after %d failures", i)
		}
		g.links("", late)
	}
	if !g.linkless {
		t.Error("is asked for ever")
	}
}

// One that does not end is killed, and no other is started before it is gone.
func TestGPUsHang(t *testing.T) {
	for _, undead := range []bool{false, true} {
		f, g := newFakes(t, "echo 0, GPU-a, 1, 1, 1; exec sleep 1000")
		f.undead = undead
		if _, err := g.Ask(t.Context(), witness.SMI()); err == nil || !strings.Contains(err.Error(), "does not end within 2s") || len(f.killed) != 1 {
			t.Fatalf("%v, killed %v", err, f.killed)
		}
		_, err := g.Ask(t.Context(), witness.SMI())
		if undead != (f.started == 1) || undead != strings.Contains(err.Error(), "though it was killed: its driver hangs") {
			t.Errorf("undead %v: %d were started: %v", undead, f.started, err)
		}
		g.note("", err, false)
		if e := g.Evidence(); len(e) != 1 || !strings.Contains(e[0].Text, "nvidia-smi does not end") {
			t.Errorf("%+v", e)
		}
		if !undead {
			continue
		}
		f.end[0]()
		f.script, f.undead = "echo 0, GPU-a, 1, 1, 1", false // a busy machine may take too long for one
		for try := time.After(4 * time.Minute); ; {
			text, err := g.Ask(t.Context(), witness.SMI())
			if err == nil && text != "" {
				break
			}
			select {
			case <-try:
				t.Fatalf("%q, %v", text, err)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

// Where there is no nvidia-smi it is tried once; and nobody is asked when the round has ended.
func TestGPUsEnd(t *testing.T) {
	f, g := newFakes(t, "")
	g.Run(t.Context(), func() bool { return true })
	if f.started != 1 {
		t.Errorf("%d were tried", f.started)
	}
	f, g = newFakes(t, "exec sleep 1000")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(closer+time.Second/2, cancel)
	g.Run(ctx, func() bool { return true })
	if f.started > 1 || len(f.killed) != f.started {
		t.Errorf("%d were started, %v killed", f.started, f.killed)
	}
}

func TestVisibleGPUs(t *testing.T) {
	for _, c := range []struct {
		list       string
		n, workers int
		want       string
	}{
		{"", 2, 2, "0 1"},
		{"", 8, 1, ""},
		{"3,1", 8, 2, "3 1"},
		{"GPU-a, GPU-b", 8, 2, "GPU-a GPU-b"},
		{"3", 8, 2, ""},
	} {
		if got := strings.Join(Visible(c.list, c.n, c.workers), " "); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
