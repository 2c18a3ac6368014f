package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A machine that one job lost is a spare of the next, and for want of another one it takes part.
func TestSuspects(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "suspects")
	flags := "--nnodes 2 --spares 1 --suspects " + dir
	c := newCrowd(t, flags)
	c.joins("a", "b")
	c.works(0, "a", "b")
	c.joins("c")
	c.nodes["c"].says("generation 1 of this job has been running")
	c.dies("b")
	c.nodes["a"].says("machine-b is suspect from now on, for 168h0m0s")
	c.works(1, "a", "c")
	c.end("a", "c")

	c = newCrowd(t, flags)
	c.joins("a")
	c.nodes["a"].says("1 of 2 nodes here (")
	c.joins("b")
	c.nodes["a"].says("2 of 2 nodes here (") // and a spare may come
	c.joins("c")
	c.works(0, "a", "c")
	c.nodes["a"].asks("status").ends(0, "mind: ", "is left as a spare: machine-b is suspect since") // it came first, and leads
	c.end("a", "b", "c")
	if out := c.said(); strings.Count(out, "is left as a spare: machine-b is suspect since") != 1 || !strings.Contains(out, "was lost: ") {
		t.Errorf("nobody says who was left:\n%s", out)
	}

	c = newCrowd(t, "--nnodes 2 --suspects "+dir)
	c.joins("a", "b")
	c.works(0, "a", "b")
	c.end("a", "b")
	if out := c.said(); strings.Count(out, "takes part, although machine-b is suspect since") != 1 {
		t.Errorf("nobody says who takes part:\n%s", out)
	}
}

// When the leader is lost, whoever leads next keeps that, once: also where the one who came after it was lost with it, or the leader is a newcomer.
func TestSuspectLeader(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "suspects")
	c := newCrowd(t, "--nnodes 3 --max-restarts 1 --suspects "+dir)
	c.joins("a", "b", "c")
	c.works(0, "a", "b", "c")
	c.dies("a")
	c.nodes["b"].says("was lost")
	c.nodes["c"].says("was lost")
	c.dies("b")
	c.joins("a", "b")
	c.works(1, "a", "b", "c")
	c.end("a", "b", "c")
	if out := c.said(); strings.Count(out, "machine-a is suspect from now on") != 1 {
		t.Errorf("the loss of the leader is kept by none, or by many:\n%s", out)
	}
}

// A directory that can be neither read nor written is no reason to fail.
func TestSuspectsWithoutADirectory(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c := newCrowd(t, "--nnodes 1:2 --last-call 1 --suspects "+file)
	c.joins("a", "b")
	c.nodes["a"].says("round 0")
	c.nodes["b"].says("rank 2 of 4")
	c.dies("b")
	c.nodes["a"].says("keep a finding about machine-b: ")
	c.nodes["a"].says("rank 0 of 2")
	c.end("a")
	if out := c.said(); !strings.Contains(out, "--suspects "+file+": ") {
		t.Errorf("nobody says that it cannot be read:\n%s", out)
	}
}

// said is what all nodes wrote.
func (c *crowd) said() (all string) {
	for _, p := range c.nodes {
		all += p.out.String()
	}
	return all
}
