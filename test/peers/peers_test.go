package peers

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/test/stage"
)

func TestMain(m *testing.M) { stage.Main(m, 2) }

// noTorch is the environment of who has no PyTorch.
var noTorch = []string{"PYTHON_EXEC=/bin/false"}

// usualRate is what machines send that are not to be slow: less than a busy machine carries for all of them, whose pace would be chance.
const usualRate = "300mbit"

// checked starts muster check --peers on n machines, of which the last ones send no faster than limit, and returns what the first one says.
func checked(t *testing.T, n, slow, code int, limit string, env []string, more ...func(s *stage.Stage)) string {
	t.Helper()
	exe := stage.Build(t)
	s := stage.Open(t, 1)
	var all []*stage.Program
	for i := range n {
		name := fmt.Sprintf("node%d", i)
		m, rate, burst := s.Add(name, name), usualRate, "1mb"
		if i >= n-slow {
			rate, burst = limit, "64kb"
		}
		if out := m.Ask("tc", "qdisc", "add", "dev", "e0", "root", "tbf", "rate", rate, "burst", burst, "latency", "50ms"); out != "" {
			t.Fatal("tc: ", out)
		}
	}
	for _, edit := range more {
		edit(s)
	}
	for _, m := range s.Machines() {
		all = append(all, m.Run(env, exe, "check", "--peers", "--json", "--nnodes", fmt.Sprint(n), "--rdzv-endpoint", "node0:29400", "--worker-port", "29500"))
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
	said := checked(t, 4, 1, job.ExitRefused, "50mbit", noTorch)
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
	got := report(t, checked(t, 2, 0, 0, "", noTorch))
	if !strings.HasPrefix(got.AllReduces.Skipped, "no all-reduce was made: node0 (node 0) has no PyTorch") {
		t.Errorf("%+v", got.AllReduces)
	}
	if len(got.Nodes) != 2 || len(got.Pairs) != 1 || len(got.Faults) != 0 || got.Pairs[0].Forth <= 0 || got.Pairs[0].Back <= 0 || got.Pairs[0].Latency <= 0 {
		t.Errorf("%+v", got)
	}
}

// A network that is slow everywhere is measured, too.
func TestSlowNetwork(t *testing.T) {
	got := report(t, checked(t, 2, 2, 0, "10mbit", noTorch))
	if len(got.Pairs) != 1 || len(got.Faults) != 0 || got.Pairs[0].Forth <= 0 || got.Pairs[0].Forth > 100 {
		t.Errorf("%+v", got)
	}
}

// apart leaves a machine the ways to where nodes meet, and to nothing else.
const apart = `
table inet apart {
	chain in { type filter hook input priority 0; iifname != "lo" tcp flags & (syn | ack) == syn reject with tcp reset; }
	chain out { type filter hook output priority 0; oifname != "lo" tcp flags & (syn | ack) == syn tcp dport != { 29400, 29500 } reject with tcp reset; }
}
`

// PyTorch's own all-reduces find a slow node, and one that reaches no other, though they were together in the first round.
func TestAllReduce(t *testing.T) {
	said := checked(t, 4, 1, job.ExitRefused, "50mbit", []string{"PYTHON_EXEC=" + stage.Python(t, "any")}, func(s *stage.Stage) { s.Machines()[2].Network("nft", apart) })
	got := report(t, said)
	if rounds := got.AllReduces.Rounds; len(rounds) != 4 || len(rounds[0]) != 2 || len(rounds[1]) != 2 || rounds[0][0].Outcomes[0].Mbps <= 0 {
		t.Errorf("%+v", got.AllReduces)
	}
	for _, want := range []string{"node2 (node 2) reaches none of the 3 nodes it was to: ", "node2 (node 2) fails in an all-reduce with whomever: ", "node3 (node 3) makes all-reduces slow with whomever: "} {
		if !slices.ContainsFunc(got.Faults, func(f string) bool { return strings.HasPrefix(f, want) }) {
			t.Errorf("nothing says %q: %q", want, got.Faults)
		}
	}
	for _, f := range got.Faults {
		if strings.HasPrefix(f, "node0") || strings.HasPrefix(f, "node1") {
			t.Errorf("found %q", f)
		}
	}
}

type found struct {
	Nodes []struct{ Name string }
	Pairs []struct {
		Forth   float64 `json:"forth_mbps"`
		Back    float64 `json:"back_mbps"`
		Latency int64   `json:"latency_ns"`
	}
	AllReduces struct {
		Rounds [][]struct {
			Nodes    []int
			Outcomes []struct{ Mbps float64 }
		}
		Skipped string
	} `json:"all_reduces"`
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
