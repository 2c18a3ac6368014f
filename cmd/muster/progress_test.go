package main

import (
	"testing"
)

// A program that says how far it is, in its own words, has heartbeats; what it wrote comes through as it is.
func TestProgressOfOutput(t *testing.T) {
	t.Parallel()
	p := muster(t, t.TempDir(), nil, "run", "--standalone", "--nproc-per-node", "2", "--progress-regex", `iter +(\d+)/`, "--", "sh", "-c",
		`i=6; while i=$((i+1)); do echo "iter  $i/100 loss 3" >&2; [ $i -gt 9000 ] && exit; sleep 0.05; done`)
	p.says("[rank 1] iter  9/100 loss 3\n")
	for {
		s := p.status()
		if len(s.Workers) == 2 && s.Workers[0].Step > 6 && s.Workers[1].Step > 6 {
			if got := s.Workers[1].Beats; got != "output" {
				t.Errorf("heartbeats: %q", got)
			}
			break
		}
		select {
		case <-p.done:
			t.Fatalf("it ended:\n%s", p.out.String())
		default:
		}
	}
}

func TestProgressRegexIsChecked(t *testing.T) {
	t.Parallel()
	muster(t, t.TempDir(), nil, "run", "--progress-regex", "step (", "--", "true").ends(2, "--progress-regex: error parsing regexp", "step (")
}
