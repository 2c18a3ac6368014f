package launcher

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/proc"
)

// Inside is what a command needs to run as a worker does. An environment is bytes, which need not be text.
type Inside struct {
	Rank int      `json:"rank"`
	Dir  []byte   `json:"dir"`
	Env  [][]byte `json:"env"`
}

// inside is the surroundings of the worker with a rank, or of the first of this node. What the command runs is no worker:
// it has no tag, by which it would be killed, no file for an exception, which would be told as the worker's, and no page, which would be
// taken for the worker's progress.
func (d *desk) inside(rank *int) (any, error) {
	now := d.now()
	if now.place == nil {
		return nil, errors.New("no worker was started yet, so that nobody knows its rank")
	}
	place := *now.place
	place.ErrorDir = ""
	tasks := d.plan.Tasks(place, d.c)
	i := 0
	if rank != nil {
		i = slices.IndexFunc(tasks, func(t job.Task) bool { return t.Rank == *rank })
	}
	if i < 0 {
		return nil, notHere(place.World, place.Group, *rank)
	}
	if m := now.state.life(tasks[i].Rank); m != nil {
		tasks[i] = d.plan.Tasks(m.in(place, ""), d.c)[i]
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("the workers' directory: %w", err)
	}
	in := Inside{Rank: tasks[i].Rank, Dir: []byte(dir)}
	for _, kv := range tasks[i].Env.Over(d.c.Environ) {
		if !strings.HasPrefix(kv, proc.TagName+"=") && !strings.HasPrefix(kv, "PMI_FD=") { // which is no descriptor of the command's
			in.Env = append(in.Env, []byte(kv))
		}
	}
	return in, nil
}

// notHere says where a rank is.
func notHere(w job.World, group, rank int) error {
	at, ok := w.MemberOf(rank)
	if !ok {
		return fmt.Errorf("rank %d: the world has %s", rank, ranksFrom(0, w.Size()))
	}
	me := w.Members[group]
	return fmt.Errorf("rank %d runs on node %d (%s); this is node %d (%s), with %s", rank, at, w.Members[at].Name, group, me.Name, ranksFrom(me.First, me.Slots))
}

func ranksFrom(first, count int) string {
	if count == 1 {
		return fmt.Sprintf("rank %d alone", first)
	}
	return fmt.Sprintf("ranks %d to %d", first, first+count-1)
}

// debug shows what each worker is given, where that is what the run is for: all of the first one's, and of the others
// what differs.
func (r *round) debug(tasks []job.Task) {
	if r.c.Debug == "" {
		return
	}
	say := func(t job.Task, text string) { r.c.Log.Info(fmt.Sprintf("debug: rank %d: %s", t.Rank, text)) }
	say(tasks[0], fmt.Sprintf("instead of %q: %s", r.plan.Training, r.c.Debug))
	for _, v := range tasks[0].Env {
		say(tasks[0], fmt.Sprintf("%s=%s  # %s", v.Name, v.Value, v.Why))
	}
	for _, t := range tasks[1:] {
		var own []string
		for _, v := range t.Env {
			if first, ok := tasks[0].Env.Lookup(v.Name); !ok || first != v.Value {
				own = append(own, v.Name+"="+v.Value)
			}
		}
		say(t, strings.Join(own, " "))
	}
}
