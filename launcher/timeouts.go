package launcher

import (
	"strconv"
	"time"

	"github.com/muster-run/muster/heartbeat"
)

// ownTimeouts are time-outs of PyTorch that the workers' environment sets, beside those of process groups, which heartbeats tell.
func (c Config) ownTimeouts() []heartbeat.Timeout {
	const name = "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC" // torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp
	text, _ := c.getenv(name)
	seconds, err := strconv.ParseUint(text, 10, 31)
	if watched, _ := c.getenv("TORCH_NCCL_ENABLE_MONITORING"); err != nil || seconds == 0 || watched == "0" {
		return nil
	}
	return []heartbeat.Timeout{{
		After: time.Duration(seconds) * time.Second, What: "PyTorch ends a rank whose NCCL watchdog does not get on", From: name, Raise: "raise it",
	}}
}

// clashes tells of time-outs that do not go with each other, each once.
func (w *watch) clashes(tell func(any)) {
	for _, c := range w.judge.Clashes() {
		if !w.clashed[c.Kind] {
			w.clashed[c.Kind] = true
			tell(clashing{c.Text})
		}
	}
}

// clashing is the leader's: people hear of it once, and see it for as long as this world lasts.
func (s *state) clashing(e clashing) []any {
	for _, text := range s.Clashes {
		if text == e.Text {
			return nil
		}
	}
	s.Clashes = append(s.Clashes[:len(s.Clashes):len(s.Clashes)], e.Text)
	return []any{say(e)}
}
