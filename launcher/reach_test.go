package launcher

import (
	"testing"
	"testing/synctest"
	"time"
)

// Who reaches for what does not answer waits once, and not again; what answers is heard.
func TestReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r reach
		if got, ok := reachFor(&r, func() int { time.Sleep(reachTime / 2); return 7 }); !ok || got != 7 {
			t.Errorf("%d, %v", got, ok)
		}
		dead := make(chan int)
		for _, want := range []time.Duration{reachTime, 0} {
			began := time.Now()
			if got, ok := reachFor(&r, func() int { return <-dead }); ok || got != 0 || time.Since(began) != want {
				t.Errorf("%d, %v after %v, want %v", got, ok, time.Since(began), want)
			}
		}
		if got, ok := reachFor(nil, func() int { return 7 }); !ok || got != 7 {
			t.Errorf("%d, %v", got, ok)
		}
		close(dead)
	})
}
