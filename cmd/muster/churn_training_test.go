package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"
)

// stepPause lies between two training steps: a machine that has something else to do finds the time in it.
const stepPause = 10 * time.Millisecond

// A training whose agents die, the leader's too, is the training that it would have been: what it learns is the same to the
// last bit as that of another beside it which nobody disturbs, and no line is lost or comes twice. It is short, unless
// `make churn` says how many minutes.
func TestChurnTraining(t *testing.T) {
	t.Parallel()
	minutes := atoi(t, cmp.Or(os.Getenv("CHURN_MINUTES"), "0"))
	length, pause := time.Duration(minutes)*time.Minute, 2500*time.Millisecond // each agent dies every 5 s
	if minutes == 0 {
		length, pause = 12*time.Second, 1100*time.Millisecond // and here as often as one may that is to be followed by another
	}
	disturbed, calm := startTraining(t), startTraining(t)
	disturbed.begins()
	calm.begins()
	deaths := disturbed.disturb(length, pause)
	last := max(disturbed.step(), calm.step()) + 100 // which no rank has taken yet
	disturbed.last(last)
	calm.last(last) // before the other's end is waited for
	a, b := disturbed.ends(last), calm.ends(last)
	if !slices.Equal(a, b) {
		t.Errorf("what the ranks learned while agents died: %q, and undisturbed: %q", a, b)
	}
	t.Logf("%d agents died in %d steps", deaths, last)
}

// A ddp is a training by DistributedDataParallel: two nodes of two ranks that take steps until they are told how many it shall have been.
type ddp struct {
	t     *testing.T
	nodes []*program
	told  string // the file that says so
}

func startTraining(t *testing.T) ddp {
	t.Helper()
	told := filepath.Join(t.TempDir(), "end")
	nodes := startNodes(t, 2, []string{"PYTHON_EXEC=" + python(t, "debian"), "GLOO_SOCKET_IFNAME=lo"},
		abs(t, "../../test/torch/scripts/steps.py"), "4", fmt.Sprint(stepPause.Seconds()), told)
	return ddp{t, nodes, told}
}

func (d ddp) begins() {
	d.t.Helper()
	for rank := range 4 {
		d.nodes[rank/2].says(fmt.Sprintf("[rank %d] line 1\n", rank))
	}
}

// disturb kills the agents in turn for a while, with a pause between two of them, and returns how many.
func (d ddp) disturb(length, pause time.Duration) (deaths int) {
	d.t.Helper()
	next, over := time.NewTicker(pause), time.After(length)
	defer next.Stop()
	for {
		d.nodes[deaths%2].killAgent()
		deaths++
		select {
		case <-next.C:
		case <-over:
			return deaths
		}
	}
}

var aStep = regexp.MustCompile(`\[rank \d\] line (\d+)\n`)

// step is the last one that a rank has told of.
func (d ddp) step() int {
	d.t.Helper()
	all := aStep.FindAllStringSubmatch(d.nodes[0].out.String(), -1)
	return atoi(d.t, all[len(all)-1][1])
}

var (
	learned = regexp.MustCompile(`\[rank \d\] (learned [0-9a-f]{64})\n`)
	longest = regexp.MustCompile(`\[rank \d\] longest .*`)
)

// last lets the training end after so many steps.
func (d ddp) last(last int) {
	d.t.Helper()
	draft := d.told + "~"
	if err := os.WriteFile(draft, []byte(strconv.Itoa(last)), 0o644); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Rename(draft, d.told); err != nil {
		d.t.Fatal(err)
	}
}

// ends waits until it has, and returns what each rank learned.
func (d ddp) ends(last int) (all []string) {
	d.t.Helper()
	for n, p := range d.nodes {
		p.ends(0, fmt.Sprintf("[rank %d] last %d\n", 2*n, last), fmt.Sprintf("[rank %d] last %d\n", 2*n+1, last))
		wholeLines(d.t, p.out.String(), 1, 2*n, 2*n+1)
		for _, found := range learned.FindAllStringSubmatch(p.out.String(), -1) {
			all = append(all, found[1])
		}
		d.t.Logf("%q", longest.FindAllString(p.out.String(), -1))
	}
	if len(slices.Compact(slices.Clone(all))) != 1 || len(all) != 4 {
		d.t.Errorf("the ranks learned %q", all)
	}
	return all
}
