package worker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/worker"
)

func mends(o *worker.Options) { o.Mends = true }

// life is a task that says which of its lives this is.
func life(rank int, script string, number int) job.Task {
	return job.Task{Rank: rank, LocalRank: rank, Argv: []string{"sh", "-c", script}, Env: job.Env{{Name: "LIFE", Value: fmt.Sprint(number)}}}
}

// A worker that failed is started again, as often as it is asked for, when all that it left behind is gone. The others run on.
func TestAgain(t *testing.T) {
	dir := t.TempDir()
	script := fmt.Sprintf(`cd %s; echo "life $LIFE"; [ $LIFE = 3 ] && { touch over; exit 0; }
		[ -e child ] && kill -0 $(cat child) && exit 99
		setsid sleep 1000 & echo $! >child; exit $LIFE`, dir)
	other := fmt.Sprintf(`until [ -e %s/over ]; do sleep 0.01; done`, dir)
	r := start(t, []job.Task{life(0, script, 1), life(1, other, 1)}, mends)
	before := r.PIDs()
	for n := 1; n <= 2; n++ {
		e := <-r.Exits()
		if e.Task.Rank != 0 || e.Exit.Code != n {
			t.Fatalf("life %d: %+v", n, e)
		}
		r.Again(0, life(0, script, n+1), n+1, time.Duration(n-1)*50*time.Millisecond)
	}
	for _, e := range r.end() {
		if !e.Exit.OK() || e.Task.Rank == 1 && e.PID != before[1] {
			t.Errorf("%+v", e)
		}
	}
	if got, want := r.out.text(), "[rank 0] life 1\n[rank 0] life 2\n[rank 0] life 3\n"; got != want {
		t.Errorf("stdout %q, want %q", got, want)
	}
}

// Who waits to be started again, or rests before it, is not, once the group is stopped.
func TestStopBeforeAgain(t *testing.T) {
	for _, rests := range []bool{false, true} {
		r := start(t, shell("exit 3", "exec sleep 1000"), mends)
		<-r.Exits()
		if rests {
			r.Again(0, life(0, "exec sleep 1000", 2), 2, time.Hour)
		}
		if err := r.Stop(t.Context(), worker.Stopping{}); err != nil {
			t.Fatal(err)
		}
		if all := r.end(); len(all) != 1 || all[0].Task.Rank != 1 || !all[0].Exit.Sent {
			t.Errorf("rests %v: %+v", rests, all)
		}
	}
}

// An order that comes as the group is stopped is none.
func TestAgainTooLate(t *testing.T) {
	for range 20 {
		r := start(t, shell("exec sleep 1000"), mends)
		r.Again(0, life(0, "exec sleep 1000", 2), 2, 0)
		if err := r.Stop(t.Context(), worker.Stopping{}); err != nil {
			t.Fatal(err)
		}
		if all := r.end(); len(all) != 1 {
			t.Fatalf("it was started again: %+v", all)
		}
	}
}

// A group is stopped whole, also one that is being started at that moment.
func TestStopAtAgain(t *testing.T) {
	for n := range 40 {
		r := start(t, shell("exit 3"), mends)
		<-r.Exits()
		r.Again(0, life(0, "trap '' TERM; sleep 1000 & wait; wait", 2), 2, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n)*500*time.Microsecond)
		if err := r.Stop(ctx, worker.Stopping{}); err != nil {
			t.Fatal(err)
		}
		cancel()
		for _, e := range r.end() {
			if !e.Exit.Sent {
				t.Errorf("%+v", e)
			}
		}
		if pid := r.PIDs()[0]; alive(pid) {
			t.Errorf("after the end pid %d lives", pid)
		}
	}
}

func alive(pid int) bool {
	p, err := proc.Root("/proc").Process(pid)
	return err == nil && !p.Gone()
}

// What cannot be started again is told like an exit.
func TestAgainFails(t *testing.T) {
	program := t.TempDir() + "/program"
	if err := os.WriteFile(program, []byte("#!/bin/sh\nrm $0; exit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	task := job.Task{Argv: []string{program}}
	r := start(t, []job.Task{task}, mends)
	<-r.Exits()
	r.Again(0, task, 2, 0)
	all := r.end()
	var failed *worker.StartError
	if len(all) != 1 || !errors.As(all[0].Err, &failed) || !strings.Contains(failed.Error(), program) {
		t.Errorf("%+v", all)
	}
}
