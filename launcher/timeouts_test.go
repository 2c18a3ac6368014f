package launcher

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/report"
)

func TestOwnTimeouts(t *testing.T) {
	for _, c := range []struct {
		environ string
		want    time.Duration // 0: none is known
	}{
		{"", 0},
		{"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=120", 2 * time.Minute},
		{"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=120 TORCH_NCCL_ENABLE_MONITORING=0", 0},
		{"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=soon", 0},
		{"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=99999999999999999999", 0},
	} {
		var got time.Duration
		for _, o := range (Config{Environ: strings.Fields(c.environ)}).ownTimeouts() {
			got += o.After
		}
		if got != c.want {
			t.Errorf("%q: %v, want %v", c.environ, got, c.want)
		}
	}
}

// Of time-outs that do not go with each other people hear once, and status shows them, in later rounds, too.
func TestClashing(t *testing.T) {
	w := newWorld(t, 2).begin()
	for range 2 {
		w.feed(0, clashing{"PyTorch gives up after 20s"})
	}
	w.run()
	if n := strings.Count(strings.Join(w.log, "\n"), "PyTorch gives up"); n != 1 {
		t.Errorf("it was said %d times: %q", n, w.log)
	}
	var s report.Status
	w.states[0].describe(&s)
	if text := s.Text(time.Time{}); !strings.Contains(text, "\nmind: PyTorch gives up after 20s\n") {
		t.Errorf("status does not show it: %s", text)
	}
}
