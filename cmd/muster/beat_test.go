package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-run/muster/heartbeat/page"
)

// A program beats by a command.
func TestBeat(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "page")
	p, err := page.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, c := range []struct {
		args []string
		want page.Snapshot
		left bool // of the phase
	}{
		{[]string{"--step", "7"}, page.Snapshot{Beats: 1, Steps: 7}, false},
		{[]string{"--phase", "checkpoint", "--for", "10m"}, page.Snapshot{Beats: 2, Steps: 7, Phase: "checkpoint"}, true},
		{[]string{"--step=8", "--phase-end"}, page.Snapshot{Beats: 4, Steps: 8}, false},
	} {
		muster(t, dir, []string{"MUSTER_PAGE=" + path}, append([]string{"beat"}, c.args...)...).ends(0)
		got, err := p.Read()
		if err != nil || got.Steps != c.want.Steps || got.Beats != c.want.Beats || got.Phase != c.want.Phase || got.Until > 0 != c.left {
			t.Errorf("%q: %+v, %v", c.args, got, err)
		}
	}
}

// What cannot be a beat is told with what to do.
func TestBeatRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	foreign := filepath.Join(dir, "foreign")
	if err := os.WriteFile(foreign, make([]byte, page.Size), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		vars string
		args []string
		code int
		says string
	}{
		{"MUSTER_PAGE=" + dir + "/none", []string{"--step", "7"}, 2, "no such file or directory; MUSTER_PAGE should be as muster gave it"},
		{"MUSTER_PAGE=" + foreign, []string{"--step", "7"}, 2, "it is no page of muster's"},
		{"X=", []string{"--step", "7"}, 2, "MUSTER_PAGE is not set, so this is no worker that muster started"},
		{"MUSTER_PAGE=x", nil, 2, "nothing to say; give --step, --phase or --phase-end"},
		{"MUSTER_PAGE=x", []string{"--phase", "a", "--phase-end"}, 2, "a phase begins or ends"},
		{"MUSTER_PAGE=x", []string{"--step", "1", "--for", "1s"}, 2, "give --phase, too"},
		{"MUSTER_PAGE=x", []string{"--step", "-3"}, 2, `"-3" is no whole number`},
		{"MUSTER_PAGE=x", []string{"--step", "3", "4"}, 2, `"4" is no flag`},
	} {
		muster(t, dir, []string{c.vars}, append([]string{"beat"}, c.args...)...).ends(c.code, c.says)
	}
}
