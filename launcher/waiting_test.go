package launcher

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A wait of which only the time goes on is told more and more rarely, and what changes at once.
func TestWaitingIsNoFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		w := newWaiting(slog.New(slog.NewTextHandler(&said, nil)), new(desk), "meeting")
		for s := range 100 {
			w.turn(fmt.Sprintf("running for %d s", s), "running")
			time.Sleep(time.Second)
		}
		if lines := strings.Count(said.String(), "\n"); lines != 7 { // after 1 s, 3, 7, 15, 31, 61 and 91
			t.Errorf("%d lines in 100 s: %s", lines, said.String())
		}
		w.turn("2 of 2 nodes here", "2 of 2 nodes here")
		if !strings.Contains(said.String(), "2 of 2") {
			t.Errorf("what changed was not told: %s", said.String())
		}
	})
}
