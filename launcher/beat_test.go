package launcher

import (
	"strings"
	"testing"
)

func TestSuspicion(t *testing.T) {
	for beat, want := range map[string]string{
		"": "", "{": "", `{}`: "", `{"memory":100}`: "", `{"memory":89,"limit":100}`: "", `{"memory":1,"limit":-1}`: "",
		`{"memory":33285996544,"limit":34359738368}`: "; its container had 31 GiB of 32 GiB memory when it was last heard, and was probably killed for that",
	} {
		if got := suspicion([]byte(beat)); got != want {
			t.Errorf("%s: %q, want %q", beat, got, want)
		}
	}
	for range 2 { // a machine without a limit has nothing to tell
		if b := newPulse().tell(); b != nil && !strings.HasPrefix(string(b), `{"memory":`) {
			t.Errorf("%s", b)
		}
	}
}
