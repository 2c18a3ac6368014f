package hang

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/test/stage"
)

// startLimit is --hang-start's default, for a beginning that is only slow.
const startLimit = 20 * time.Minute

// TestNeverComes lets a rank end well before training began, and the others wait for it. That it will not come is told as soon as twice the
// floor is over, not when a slow beginning would be a hang.
func TestNeverComes(t *testing.T) {
	t.Parallel()
	muster := stage.Build(t)
	for _, c := range []struct{ before, torch, in string }{{"init", "newest", "init_process_group"}, {"group", "debian", "new_group"}} {
		t.Run(c.before+", "+c.torch, func(t *testing.T) {
			t.Parallel()
			j := open(t, muster)
			line := append([]string{muster, "run"}, strings.Fields("--nnodes 2 --nproc-per-node 2 --rdzv-id job --rdzv-endpoint h0:29400 --node-timeout 5m --on-hang restart --max-restarts 0")...)
			line = append(line, "--hang-floor", floor.String(), "--", stage.Python(t, c.torch), "-u", stage.File(t, "scripts/leave.py"), c.before, "--rank", "2")
			for i := range j.nodes {
				j.run(i, nil, line...)
			}
			said := j.until("a hang", j.on(0, verdict))
			want := regexp.MustCompile(fmt.Sprintf(`^muster: hang: rank 2 \(h1, local 0\) has not entered %s for (\d+) s; 3 others wait in it; it has ended with code 0$`, c.in))
			if found := want.FindStringSubmatch(said.Text); found == nil {
				t.Errorf("%s; want %v", said.Text, want)
			} else if s, _ := strconv.Atoi(found[1]); time.Duration(s)*time.Second > startLimit/4 { // a busy machine looks late
				t.Errorf("%s: with a floor of %v that is late", said.Text, *floor)
			}
			if codes := j.end(); codes != [2]int{75, 75} {
				t.Errorf("exit codes %v", codes)
			}
		})
	}
}
