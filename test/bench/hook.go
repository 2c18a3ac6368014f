package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"time"
)

// This file is what the hook costs a training. Two trainings are never as fast as each other, for other programs use the machine, and for
// the luck of where a process has its memory. So each is compared with several, in short turns; and what the hook does in the training's
// own threads is put in and taken out from one step to the next.

var (
	tiny = size{1, 8, 1} // a step of which the hook's part can be seen
	// real takes some milliseconds. Debian's PyTorch multiplies matrices a tenth as fast.
	real = map[string]size{"debian": {4, 256, 8}, "newest": {4, 256, 64}}
)

const (
	besideTime = 12 * time.Second       // for three trainings in turns
	withinTime = 8 * time.Second        // for one, step by step
	turnTime   = 100 * time.Millisecond // of each of the three
	warm       = 2                      // steps of a turn that find the caches cold
)

// costs are what plays say of one PyTorch, a number each: with the hook against without it, and the same of none against none. Times are
// in nanoseconds, ratios are logarithms.
type costs struct {
	version                    string
	threads                    []float64 // of a CPU
	calls, callsNone           []float64 // each step
	step                       []float64 // of a real training, without the hook
	timeWithin, timeWithinNone []float64
	time, timeNone             []float64
	cpu, cpuNone               []float64
}

// hookTable is what the hook costs, by so many trainings with each PyTorch.
func hookTable(dir string, plays int) (string, error) {
	lines := [][]string{
		{"what", "limit"},
		{"CPU time of the hook's thread", "0.1 %"},
		{"what it does in the training's threads, each step", ""},
		{"… the same without and without", ""},
		{"a step of a DDP training of two ranks, without the hook", ""},
		{"the first two rows, of that", "0.5 %"},
		{"the same step with the hook's work and without, in turns", "0.5 %"},
		{"… without and without", ""},
		{"with the hook, and without, in processes of their own", "0.5 %"},
		{"… without and without", ""},
		{"… CPU time, with and without", "0.5 %"},
		{"… CPU time, without and without", ""},
	}
	for _, which := range []string{"debian", "newest"} {
		g, version, err := openGym(dir, which)
		if err != nil {
			return "", err
		}
		c := costs{version: version}
		for i := range plays {
			fmt.Fprintf(os.Stderr, "%-10s %-16s %d\r", "hook", version, i+1)
			if err := c.play(&g, real[which]); err != nil {
				return "", fmt.Errorf("PyTorch %s: %w", version, err)
			}
		}
		for i, text := range c.column() {
			lines[i] = append(lines[i], text)
		}
	}
	return aligned(lines), nil
}

func (c *costs) column() []string {
	thread, call, step := mean(c.threads), mean(c.calls), mean(c.step)
	micro := func(all []float64) string { return interval(all, 1e-3, "%+.1f", "µs") }
	part := func(all []float64) string { return interval(all, 100, "%+.2f", "%") }
	return []string{
		"PyTorch " + c.version, fmt.Sprintf("%.3f %%", thread*100), micro(c.calls), micro(c.callsNone), fmt.Sprintf("%.2f ms", step/1e6),
		fmt.Sprintf("%.3f %%", (thread+call/step)*100), part(c.timeWithin), part(c.timeWithinNone), part(c.time), part(c.timeNone), part(c.cpu), part(c.cpuNone),
	}
}

// play adds what fresh processes say.
func (c *costs) play(g *gym, z size) error {
	alone := func(all []*training) error {
		return all[0].within(withinTime, &c.calls, &c.callsNone, func(with, without float64) float64 { return with - without })
	}
	if err := g.play(tiny, 1, 1, alone); err != nil {
		return err
	}
	return g.play(z, 2, 3, func(all []*training) error {
		cpu, since := all[0].spent()
		err := c.beside(all)
		if err == nil {
			err = all[0].within(withinTime, &c.timeWithin, &c.timeWithinNone, ratio)
		}
		used, now := all[0].spent()
		c.threads = append(c.threads, float64(used-cpu)/float64(now-since))
		return err
	})
}

// within does steps with and without what the hook does in the training's threads, in turns, and compares each with those beside it:
// what else the machine does lasts longer than three steps. The median of all threes counts.
func (t *training) within(long time.Duration, with, none *[]float64, difference func(with, without float64) float64) error {
	var w, n []float64
	for end := time.Now().Add(long); len(w) == 0 || time.Now().Before(end); {
		letters := order(30)
		s, err := t.steps(letters)
		if err != nil {
			return err
		}
		for i := 3; i < len(letters); i += 3 { // the first find the caches cold
			took := map[byte]float64{}
			for k := i; k < i+3; k++ {
				took[letters[k]] = s.time[k]
			}
			w, n = append(w, difference(took['w'], (took['a']+took['b'])/2)), append(n, difference(took['a'], took['b']))
		}
	}
	*with, *none = append(*with, quantile(w, 0.5)), append(*none, quantile(n, 0.5))
	return nil
}

// order is w, a and b, so often each, in any order in each three.
func order(n int) string {
	var all strings.Builder
	for range n {
		for _, i := range rand.Perm(3) {
			all.WriteByte("wab"[i])
		}
	}
	return all.String()
}

// beside compares a training that has the hook to two that have not: one of them trains at a time, and the others wait.
func (c *costs) beside(all []*training) error {
	first, err := all[1].steps(strings.Repeat("s", 10))
	if err != nil {
		return err
	}
	turn := strings.Repeat("s", warm+max(4, min(100, int(float64(turnTime)/quartile(first.time)))))
	var steps, with, none, withCPU, noneCPU []float64
	for end := time.Now().Add(besideTime); time.Now().Before(end); {
		var took, used [3]float64
		for _, i := range rand.Perm(3) {
			s, err := all[i].steps(turn)
			if err != nil {
				return err
			}
			took[i], used[i] = quartile(s.time[warm:]), mean(s.cpu[warm:])
		}
		steps = append(steps, took[1], took[2])
		with, none = append(with, ratio(took[0], math.Sqrt(took[1]*took[2]))), append(none, ratio(took[1], took[2]))
		withCPU, noneCPU = append(withCPU, ratio(used[0], math.Sqrt(used[1]*used[2]))), append(noneCPU, ratio(used[1], used[2]))
	}
	c.step = append(c.step, quantile(steps, 0.5))
	c.time, c.timeNone = append(c.time, quantile(with, 0.5)), append(c.timeNone, quantile(none, 0.5))
	c.cpu, c.cpuNone = append(c.cpu, quantile(withCPU, 0.5)), append(c.cpuNone, quantile(noneCPU, 0.5))
	return nil
}

func ratio(a, b float64) float64 { return math.Log(a / b) }
