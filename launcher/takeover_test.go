package launcher

import (
	"strconv"
	"testing"
	"time"

	"github.com/muster-run/muster/launcher/pid1"
)

// An heir is the first process of an agent that takes over.
type heir struct {
	simFirst
	old *pid1.Legacy
}

func (h *heir) Legacy() *pid1.Legacy    { return h.old }
func (h *heir) Life() int               { return 1 }
func (*heir) DropOld(name string) error { return nil }

// An agent that takes over gives others up when the one before it would have, and leaves them a moment at least.
func TestAgain(t *testing.T) {
	for _, c := range []struct {
		ago, timeout, member, leader time.Duration // since others were heard; 0: nobody was
	}{
		{0, 5 * time.Second, againTime, againTime}, {0, time.Minute, time.Minute, time.Minute}, {time.Second, time.Minute, 59 * time.Second, 59 * time.Second},
		{59 * time.Second, time.Minute, 2 * time.Second, againTime}, {time.Hour, 10 * time.Second, time.Millisecond, againTime}, {-time.Hour, time.Minute, time.Minute, time.Minute},
		{8 * time.Second, 10 * time.Second, leastAgain, againTime},
	} {
		blobs := map[string][]byte{}
		if c.ago != 0 {
			blobs[keptHeard] = []byte(strconv.FormatInt(clock()-int64(c.ago), 10))
		}
		for leads, want := range map[bool]time.Duration{false: c.member, true: c.leader} {
			got := Config{First: &heir{old: &pid1.Legacy{Blobs: blobs}}}.again(c.timeout, leads)
			if got > want || got < want-100*time.Millisecond {
				t.Errorf("heard %v ago, with %v, leads %v: %v, want %v", c.ago, c.timeout, leads, got, want)
			}
		}
	}
}
