package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-run/muster/topology/fixture"
)

// A port of the second of two machines dies during the job, and comes back: both nodes say so in their logs and verdicts, and training goes on.
func TestPortDiesDuringTheJob(t *testing.T) {
	t.Parallel()
	run, text := dressed(t, "enp3s0"), described(t, "dgx-h100")
	trees := []string{fixture.Tree(t, text), fixture.Tree(t, text)}
	dir := t.TempDir()
	var all []*program
	for host, tree := range trees {
		all = append(all, run(host, tree, "echo trains; until [ -e "+filepath.Join(dir, "done")+" ]; do sleep 0.1; done", "--verdict", filepath.Join(dir, string(rune('a'+host)))))
	}
	set := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(trees[1], "sys/class/infiniband/mlx5_3/ports/1", name), []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range all {
		p.says("trains")
	}
	const died, back = "): hca: mlx5_3: DOWN, Polling: no cable, or nobody at its other end", "): hca: mlx5_3 is active again"
	set("phys_state", "2: Polling")
	set("state", "1: DOWN")
	for _, p := range all {
		p.says("node 1 (" + hostname(t) + died)
	}
	set("state", "4: ACTIVE")
	set("phys_state", "5: LinkUp")
	for _, p := range all {
		p.says("node 1 (" + hostname(t) + back)
	}
	if err := os.WriteFile(filepath.Join(dir, "done"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for host, p := range all {
		p.ends(0)
		var v struct{ Health []string }
		text, err := os.ReadFile(filepath.Join(dir, string(rune('a'+host))))
		if err != nil || json.Unmarshal(text, &v) != nil {
			t.Fatal(err, string(text))
		}
		if told := strings.Join(v.Health, "\n"); !strings.Contains(told, died) || !strings.Contains(told, back) {
			t.Errorf("the verdict of host %d has %q", host, v.Health)
		}
	}
}

func hostname(t *testing.T) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return name
}
