package main

import (
	"testing"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher"
)

// What torchrun calls its keep-alive is the node time-out, as far as that goes.
func TestKeepAlive(t *testing.T) {
	for conf, want := range map[string]time.Duration{
		"join_timeout=9": 0, "keep_alive_interval=8": 24 * time.Second, "keep_alive_max_attempt=12,keep_alive_interval=5": time.Minute,
		"keep_alive_interval=1": 5 * time.Second, "keep_alive_interval=90000": 5 * time.Minute,
	} {
		c := launcher.Config{}
		if err := (&rdzvConf{c: &c}).Set(conf); err != nil || c.KeepAlive != want {
			t.Errorf("%s: %v, %v; want %v", conf, c.KeepAlive, err, want)
		}
		if limited := want == job.MinNodeTimeout || want == job.MaxNodeTimeout; limited != (len(c.Notes) > 0) {
			t.Errorf("%s: it says %q", conf, c.Notes)
		}
	}
}
