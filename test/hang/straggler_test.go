package hang

import (
	"regexp"
	"testing"

	"github.com/muster-run/muster/test/stage"
)

// TestStraggler trains with a rank that takes ten times as long as the others: who comes last, how often and by how much is said once, and
// shown by muster status and the verdict. That of PyTorch 1.13, which has no recorder, is known from the order alone.
func TestStraggler(t *testing.T) {
	t.Parallel()
	muster := stage.Build(t)
	for torch, more := range map[string]string{debian: "", newest: `; it spends \d+ % of its time in collectives, they \d\d+ %`} {
		t.Run(torch, func(t *testing.T) {
			t.Parallel()
			j := open(t, muster)
			c := scene{name: "slow", rank: 1, args: "--at 5 --steps 2000"}
			for i := range j.nodes {
				c.flags = "--verdict " + j.verdictFile(i)
				j.run(i, nil, c.argv(t, muster, torch)...)
			}
			what := `the others wait for rank 1 \(h0\): it comes last in (9\d|100) % of all cases, and is behind the others [3-9]\d % of the time, [\d.]+ m?s of each step of [\d.]+ m?s` + more
			j.until("a straggler", j.on(0, func(l line) bool { return regexp.MustCompile("^muster: " + what).MatchString(l.Text) }))
			j.soon(0, `\nstraggler: `+what, muster, "status")
			j.nodes[0].Ask(muster, "ctl", "stop")
			j.end()
			for _, l := range j.Lines() {
				if verdict(l) {
					t.Errorf("of a training that goes on it was said: %s", l.Text)
				}
			}
			if s := j.verdicts()[0].Stragglers; len(s) != 1 || s[0].Rank != 1 || s[0].Node != "h0" || s[0].Lost < 0.3 {
				t.Errorf("the verdict tells of %+v", s)
			}
		})
	}
}
