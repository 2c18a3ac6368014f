package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"github.com/muster-run/muster/control"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher"
)

// soaking is the worker of the churn: a round ends when one of them leaves a process behind and fails. In two of the rounds
// they all wait, so that a look at the job finds it at rest.
const soaking = `round=$TORCHELASTIC_RESTART_COUNT
case $LOOKS in *" $round "*) echo "$RANK waits in round $round"; exec sleep 1000 ;; esac
[ $RANK = $((round % 4)) ] || exec sleep 1000
(setsid sleep 1000 >/dev/null 2>&1 &)
exit 1`

// Rounds come and go, and nothing of them stays: no process, descriptor, goroutine or file, and no memory. There are few
// rounds, unless `make churn` says how many.
func TestChurn(t *testing.T) {
	t.Parallel()
	rounds := atoi(t, cmp.Or(os.Getenv("CHURN_ROUNDS"), "20"))
	mark := "MARK=" + t.TempDir()
	looks := [2]int{rounds / 10, rounds}
	all := startNodes(t, 2, []string{mark, fmt.Sprintf("LOOKS= %d %d ", looks[0], looks[1])},
		"--rdzv-timeout", "0", "--restart-backoff", "0", "--max-restarts", strconv.Itoa(rounds), "--worker-store", "agent", "--", "sh", "-c", soaking)
	var found [2][]held
	var processes [2][]string
	for i, round := range looks {
		found[i] = look(t, all, round)
		processes[i] = alive(t, mark)
		if i == 0 {
			all[1].asks("ctl", "restart").ends(0)
		}
	}
	if len(processes[1]) != len(processes[0]) {
		t.Errorf("processes: %q in round %d, %q in round %d", processes[0], looks[0], processes[1], looks[1])
	}
	for i, early := range found[0] {
		late := found[1][i]
		t.Logf("%+v in round %d, %+v in round %d", early, looks[0], late, looks[1])
		if late.exceeds(early) || rounds >= 500 && late.memory > early.memory+breathing { // a young heap grows to Go's least, 4 MiB
			t.Errorf("%s has grown", late.who)
		}
	}
	abort(t, all, mark)
}

// abort ends the job by the abort of a first process: no other door shows its goroutines. Nothing may be left.
func abort(t *testing.T, all []*program, mark string) {
	t.Helper()
	all[1].cmd.Process.Signal(syscall.SIGABRT)
	all[1].ends(2, "SIGABRT: abort")
	if n := running(all[1].out.String()); n > 40 {
		t.Errorf("the first process has %d goroutines", n)
	}
	all[0].ends(job.ExitRetry)
	if left := alive(t, mark); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if left, err := os.ReadDir(all[0].tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind in TMPDIR: %v, %v", left, err)
	}
}

const (
	passing   = 8       // descriptors and goroutines that a look may find on their way out
	breathing = 3 << 20 // the ring of the journal, 1 MiB, fills, and Go lets a heap double before it collects
)

// held is what a process of muster holds.
type held struct {
	who                          string
	files, goroutines, temporary int
	memory                       int // in bytes
}

func (h held) exceeds(early held) bool {
	return h.files > early.files+passing || h.goroutines > early.goroutines+passing || h.temporary > early.temporary
}

// look waits for a round in which all workers wait, and tells what each node's two processes hold. No temporary file or
// goroutine is told of a first process.
func look(t *testing.T, all []*program, round int) (found []held) {
	t.Helper()
	for rank := range 4 {
		all[rank/2].says(fmt.Sprintf("[rank %d] %d waits in round %d\n", rank, rank, round))
	}
	for n, p := range all {
		agent := holds(t, fmt.Sprintf("agent %d", n), p.status().PID) // before it has to write a report
		var r launcher.BugReport
		if err := control.Find(p.tmp)[0].Ask(t.Context(), control.Request{Do: "bugreport"}, &r); err != nil {
			t.Fatal(err)
		}
		for _, part := range r.Parts {
			if part.Name == "goroutines.txt" {
				agent.goroutines = running(string(part.Data))
			}
		}
		if err := filepath.WalkDir(p.tmp, func(string, os.DirEntry, error) error { agent.temporary++; return nil }); err != nil {
			t.Fatal(err)
		}
		if agent.goroutines == 0 || agent.temporary < 2 {
			t.Fatalf("a blind look: %+v", agent)
		}
		found = append(found, holds(t, fmt.Sprintf("first process %d", n), p.cmd.Process.Pid), agent)
	}
	return found
}

var proportional = regexp.MustCompile(`(?m)^Pss: +(\d+) kB$`)

func holds(t *testing.T, who string, pid int) held {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d", pid)
	files, err := os.ReadDir(dir + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	memory := proportional.FindStringSubmatch(read(t, dir+"/smaps_rollup"))
	return held{who: who, files: len(files), memory: atoi(t, memory[1]) << 10}
}

// running counts the goroutines in a dump.
func running(dump string) int {
	return len(regexp.MustCompile(`(?m)^goroutine \d+`).FindAllString(dump, -1))
}
