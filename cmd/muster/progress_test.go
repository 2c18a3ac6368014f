package main

import (
	"strings"
	"testing"
)

// A program that says how far it is, in its own words, has heartbeats; what it wrote comes through as it is.
func TestProgressOfOutput(t *testing.T) {
	t.Parallel()
	p := muster(t, t.TempDir(), nil, "run", "--standalone", "--nproc-per-node", "2", "--progress-regex", `iter +(\d+)/`, "--", "sh", "-c",
		`i=6; while i=$((i+1)); do echo "iter  $i/100 loss 3" >&2; [ $i -gt 9000 ] && exit; sleep 0.05; done`)
	p.says("[rank 1] iter  9/100 loss 3\n")
	p.beatsBy("output", 7)
}

// A program says by its socket how far it is; what is no beat is told once.
func TestBeatSocket(t *testing.T) {
	t.Parallel()
	p := muster(t, t.TempDir(), nil, "run", "--standalone", "--nproc-per-node", "2", "--no-python", "--", "python3", "-Sc", `
import os, socket, time
to, s = os.environ["MUSTER_BEAT_SOCKET"], socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
for text in b"step 40", b"stop 41", b"stop 42", b"step 43\n":
    s.sendto(text, to)
print("sent", flush=True)
time.sleep(1000)
`)
	p.says("[rank 1] sent")
	p.beatsBy("beats", 43)
	for _, rank := range []string{"0", "1"} {
		text := "rank " + rank + `: MUSTER_BEAT_SOCKET: "stop 4`
		if p.says(text); strings.Count(p.out.String(), text) != 1 {
			t.Errorf("it does not say once what is no beat:\n%s", p.out.String())
		}
	}
}

// beatsBy waits until the heartbeats of two workers come from there, and have come so far.
func (p *program) beatsBy(from string, step uint64) {
	p.t.Helper()
	for {
		s := p.status()
		if len(s.Workers) == 2 && s.Workers[0].Step >= step && s.Workers[1].Step >= step {
			if got := s.Workers[1].Beats; got != from {
				p.t.Errorf("heartbeats from %q, not %q", got, from)
			}
			return
		}
		select {
		case <-p.done:
			p.t.Fatalf("it ended:\n%s", p.out.String())
		default:
		}
	}
}

func TestProgressRegexIsChecked(t *testing.T) {
	t.Parallel()
	muster(t, t.TempDir(), nil, "run", "--progress-regex", "step (", "--", "true").ends(2, "--progress-regex: error parsing regexp", "step (")
}
