package peers

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/test/stage"
)

func TestMain(m *testing.M) { stage.Main(m, 2) }

// checked starts muster check --peers on n machines, of which the last ones send no faster than limit, and returns what the first one says.
func checked(t *testing.T, n, slow, code int, limit string) string {
	t.Helper()
	exe := stage.Build(t)
	s := stage.Open(t, 1)
	var all []*stage.Program
	for i := range n {
		name := fmt.Sprintf("node%d", i)
		if m := s.Add(name, name); i < n-slow {
			continue
		} else if out := m.Ask("tc", "qdisc", "add", "dev", "e0", "root", "tbf", "rate", limit, "burst", "64kb", "latency", "50ms"); out != "" {
			t.Fatal("tc: ", out)
		}
	}
	for _, m := range s.Machines() {
		all = append(all, m.Run(nil, exe, "check", "--peers", "--json", "--nnodes", fmt.Sprint(n), "--rdzv-endpoint", "node0:29400"))
	}
	for _, p := range all {
		p.Wait()
		if p.Code() != code {
			t.Errorf("it ends with %d, not with %d:\n%s", p.Code(), code, p.Said())
		}
	}
	return all[0].Said()
}

// One slow node among several is found, and no other.
func TestThrottledNode(t *testing.T) {
	said := checked(t, 4, 1, job.ExitRefused, "50mbit")
	got := report(t, said)
	if len(got.Faults) != 1 || !strings.HasPrefix(got.Faults[0], "node3 (node 3) sends at ") {
		t.Errorf("found %q", got.Faults)
	}
	if !strings.Contains(said, "exited with code 67: node3 (node 3) sends at ") {
		t.Errorf("the last words do not say which node:\n%s", said)
	}
}

// Nodes that can do the same are told so.
func TestEqualNodes(t *testing.T) {
	got := report(t, checked(t, 2, 0, 0, ""))
	if len(got.Nodes) != 2 || len(got.Pairs) != 1 || len(got.Faults) != 0 || got.Pairs[0].Forth <= 0 || got.Pairs[0].Back <= 0 || got.Pairs[0].Latency <= 0 {
		t.Errorf("%+v", got)
	}
}

// A network that is slow everywhere is measured, too.
func TestSlowNetwork(t *testing.T) {
	got := report(t, checked(t, 2, 2, 0, "10mbit"))
	if len(got.Pairs) != 1 || len(got.Faults) != 0 || got.Pairs[0].Forth <= 0 || got.Pairs[0].Forth > 100 {
		t.Errorf("%+v", got)
	}
}

type found struct {
	Nodes []struct{ Name string }
	Pairs []struct {
		Forth   float64 `json:"forth_mbps"`
		Back    float64 `json:"back_mbps"`
		Latency int64   `json:"latency_ns"`
	}
	Faults []string
}

// report is the JSON among what was said.
func report(t *testing.T, said string) (got found) {
	t.Helper()
	for line := range strings.Lines(said) {
		if strings.HasPrefix(line, "{") {
			if err := json.Unmarshal([]byte(line), &got); err != nil {
				t.Fatal(err, line)
			}
			return got
		}
	}
	t.Fatalf("no report:\n%s", said)
	return got
}
