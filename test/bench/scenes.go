package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// never is the time of what did not happen while we looked.
const never = time.Duration(1<<63 - 1)

// patience is how long a scene waits for what a launcher should do at a death.
const patience = 15 * time.Second

// startTime is how long a launcher may take to start its workers.
const startTime = 2 * time.Minute

// A scene is one job, played a few times under each launcher. Each play fills all its rows.
type scene struct {
	name  string
	rows  []row
	job   job
	play  func(*running) []cell
	heavy bool // minutes under torchrun
}

// A row is one line of the table.
type row struct{ what, bar string }

// A cell is what one play has shown: a time, a size, or, if text is not empty, a word.
type cell struct {
	time  time.Duration
	bytes int64
	text  string
}

var wait, end = []string{"wait"}, []string{"end"}

var scenes = []scene{
	{name: "start-1", job: job{nodes: 1, workers: 1, worker: end}, play: lastMain,
		rows: []row{{"start, 1 node: agent → main of 1 worker", "20 ms"}}},
	{name: "start-2", job: job{nodes: 1, workers: 2, worker: end}, play: lastMain,
		rows: []row{{"start, 1 node: agent → main of the last of 2 workers", "20 ms"}}},
	{name: "start-64", job: job{nodes: 1, workers: 64, worker: end}, play: lastMain,
		rows: []row{{"start, 1 node: agent → main of the last of 64 workers", ""}}},
	{name: "agents-2", job: job{nodes: 2, workers: 2, worker: end, host: -1}, play: throughout,
		rows: []row{{"start, 2 agents × 2 workers → last main", "50 ms"}, {"… and, as workers end at once → all agents have exited", ""}}},
	{name: "agents-8", job: job{nodes: 8, workers: 1, worker: end, host: -1}, play: throughout,
		rows: []row{{"start, 8 agents × 1 worker → last main", ""}, {"… and, as workers end at once → all agents have exited", ""}}},
	{name: "agents-32", job: job{nodes: 32, workers: 1, worker: end, host: -1}, play: throughout, heavy: true,
		rows: []row{{"start, 32 agents × 1 worker → last main", "500 ms"}, {"… and, as workers end at once → all agents have exited", ""}}},
	{name: "memory", job: job{nodes: 1, workers: 8, worker: wait}, play: memory,
		rows: []row{{"memory (PSS) of the launcher, 8 workers run", "20 MiB"}, {"the same, RSS of its biggest process", ""}}},
	{name: "kill-host", job: job{nodes: 2, workers: 2, worker: wait}, play: killWorker(0), rows: killRows("kill -9 of a worker on the store's node")},
	{name: "kill-other", job: job{nodes: 2, workers: 2, worker: wait}, play: killWorker(1), rows: killRows("kill -9 of a worker on the other node")},
	{name: "term", job: job{nodes: 2, workers: 2, worker: wait}, play: terminate,
		rows: []row{{"TERM to the agent of the other node: its workers gone", ""}, {"… the store's node's workers gone", ""},
			{"… all agents have exited", ""}, {"… with the codes (store's node, other)", ""}}},
	{name: "tee", job: job{nodes: 1, workers: 4, worker: []string{"25"}, tee: true}, play: teed,
		rows: []row{{"4 workers write 25 MB of lines each, to files and the console → end", ""}, {"… and what has arrived on the console", "100 MB"}}},
}

func killRows(what string) []row {
	return []row{{what + ": its sibling gone", "100 ms"}, {"… the other node's workers gone", "300 ms"},
		{"… all agents have exited", "1 s"}, {"… with the codes (store's node, other)", "137 137"}}
}

func lastMain(r *running) []cell { return []cell{{time: r.last()}} }

// throughout is lastMain, and how long after it the job has ended.
func throughout(r *running) []cell {
	main := r.last()
	var end time.Duration
	for node := range r.agents {
		took, _ := r.exited(node, r.began.Add(main), patience)
		end = max(end, took)
	}
	return []cell{{time: main}, {time: end}}
}

// memory adds up the launcher's processes: the one that was started, and those below it that are not workers.
func memory(r *running) []cell {
	time.Sleep(time.Second) // at rest, not at its start
	workers := map[int]bool{}
	for _, s := range r.stamps {
		workers[s.pid] = true
	}
	pss, rss := sizes(r.agents[0].cmd.Process.Pid, workers)
	return []cell{{bytes: pss}, {bytes: rss}}
}

func sizes(pid int, workers map[int]bool) (sum, biggest int64) {
	dir := fmt.Sprint("/proc/", pid)
	text, _ := os.ReadFile(dir + "/smaps_rollup")
	sum, biggest = field(string(text), "Pss:"), field(string(text), "Rss:")
	lists, _ := filepath.Glob(dir + "/task/*/children")
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, word := range strings.Fields(string(text)) {
			child, _ := strconv.Atoi(word)
			if !workers[child] {
				pss, rss := sizes(child, workers)
				sum, biggest = sum+pss, max(biggest, rss)
			}
		}
	}
	return sum, biggest
}

// field reads a size of a file like smaps_rollup.
func field(text, name string) int64 {
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == name {
			kib, _ := strconv.ParseInt(words[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// killWorker kills the first worker of a node and watches who learns of it.
func killWorker(node int) func(*running) []cell {
	return func(r *running) []cell {
		for _, s := range r.stamps {
			if s.node == node && s.local == 0 {
				from := time.Now()
				unix.PidfdSendSignal(s.fd, unix.SIGKILL, nil, 0)
				return r.aftermath(node, from)
			}
		}
		return nil
	}
}

func terminate(r *running) []cell {
	from := time.Now()
	r.agents[1].cmd.Process.Signal(syscall.SIGTERM)
	return r.aftermath(1, from)
}

// teed waits for the end of a job that writes, and counts the lines that are on its console.
func teed(r *running) []cell {
	first := r.stamps[0].at
	for _, s := range r.stamps {
		if s.at.Before(first) {
			first = s.at
		}
	}
	<-r.agents[0].ended
	took := r.agents[0].at.Round(0).Sub(first.Round(0)) // wall clocks both
	text, _ := os.ReadFile(filepath.Join(r.dir, "agent0"))
	arrived := strings.Count(string(text), strings.Repeat("x", 99)+"\n")
	return []cell{{time: took}, {text: fmt.Sprintf("%d MB", arrived/10000)}}
}

// aftermath watches both nodes of a job, of which one was hit.
func (r *running) aftermath(hit int, from time.Time) []cell {
	theirs := make(chan time.Duration)
	go func() { theirs <- r.gone(1-hit, from, patience) }()
	own := r.gone(hit, from, patience)
	cells := []cell{{time: own}, {time: <-theirs}}
	first, code0 := r.exited(0, from, patience)
	second, code1 := r.exited(1, from, patience)
	return append(cells, cell{time: max(first, second)}, cell{text: code0 + " " + code1})
}
