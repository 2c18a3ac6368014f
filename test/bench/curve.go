package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// worlds are the sizes that show how the cost of a world grows with its agents, and how often each is played; one has a job's token, which makes its line
// encrypted.
var worlds = []struct {
	agents, plays int
	with          string
}{{10, 15, ""}, {100, 9, ""}, {1000, 9, ""}, {1000, 9, withToken}, {4000, 3, ""}}

// filesPerAgent are the leader's ends of its connections to the store and to the leader, and one more while that changes hands.
const filesPerAgent = 3

// curve is what worlds of many agents cost, as a table and as pictures. Each world comes to be in processes of its own.
func curve() (string, []panel) {
	lines := [][]string{{"agents", "all have the world", "all are connected", "all have heard the start", "CPU time of the leader and its store", "of all others", "of all, for each agent"}}
	times := panel{title: "a world of agents", x: "agents", y: "ms until", curves: []line{{name: "all met"}, {name: "all started"}}}
	cost := panel{title: "what it takes", x: "agents", y: "ms of CPU time", curves: []line{{name: "leader"}, {name: "others"}}}
	for _, w := range worlds {
		if !roomFor(w.agents, filesPerAgent) {
			continue
		}
		columns := make([][]cell, len(lines[0])-1)
		for i := range w.plays {
			fmt.Fprintf(os.Stderr, "%-10s %-16d %d\r", "world", w.agents, i+1)
			var f figures
			if err := playIt(&f, "-world", strconv.Itoa(w.agents)+w.with); err != nil { // a machine may be too busy for the biggest
				fmt.Fprintf(os.Stderr, "no world of %d agents: %v\n", w.agents, err)
				break
			}
			for i, t := range []time.Duration{f.Met, f.Connected, f.Started, f.Leader, f.Members, (f.Leader + f.Members) / time.Duration(w.agents)} {
				columns[i] = append(columns[i], cell{time: t})
			}
		}
		row := []string{strconv.Itoa(w.agents) + w.with}
		for _, cells := range columns {
			row = append(row, summary(cells))
		}
		lines = append(lines, row)
		if len(columns[0]) == 0 || w.with != "" {
			continue
		}
		at := func(column int) point {
			return point{float64(w.agents), columns[column][len(columns[column])/2].time.Seconds() * 1e3}
		} // summary sorts
		times.curves[0].points, times.curves[1].points = append(times.curves[0].points, at(0)), append(times.curves[1].points, at(2))
		cost.curves[0].points, cost.curves[1].points = append(cost.curves[0].points, at(3)), append(cost.curves[1].points, at(4))
	}
	return aligned(lines), []panel{times, cost}
}

// roomFor reports whether a process may have so many open files for each of some agents.
func roomFor(agents, files int) bool {
	var open unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &open) // cannot fail for oneself
	need := files*agents + 100
	if uint64(need) <= open.Max {
		return true
	}
	fmt.Fprintf(os.Stderr, "no world of %d agents: it needs %d open files, and ulimit -Hn is %d\n", agents, need, open.Max)
	return false
}

// playIt has a process of its own play something, as a flag says, and takes what it says of it.
func playIt(to any, flag, what string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, flag, what)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	return json.Unmarshal(out, to)
}
