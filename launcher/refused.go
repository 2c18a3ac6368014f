package launcher

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"

	"github.com/muster-run/muster/evidence"
	"github.com/muster-run/muster/framework"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/worker"
)

// This file is about launchers that workers call and that are refused there. What lies around one, a pipe or a script, may end well all the
// same, and nothing was trained.

// refusedFile lies beside a worker's error file, is as that, and says why a launcher was refused in that worker.
const refusedFile = "refused.json"

// Refuse leaves in a worker, for the agent, why a launcher that was called in it is none there. Where the worker has no error file it leaves nothing.
func Refuse(getenv func(string) string, why error) {
	file := getenv(errorFileName)
	if file == "" {
		return
	}
	text, _ := json.Marshal(map[string]string{"message": why.Error()}) // of a text: cannot fail
	_ = os.WriteFile(filepath.Join(filepath.Dir(file), refusedFile), text, 0o644)
}

// refusal is why a launcher was refused in a worker; "": none was.
func (r *round) refusal(rank, local int) string {
	file := filepath.Join(r.roundDir(r.state.lifeOf(rank)), strconv.Itoa(local), refusedFile)
	text, _ := reachFor(r.scene.files, func() string { return framework.Recorded(file) })
	return text
}

// untrained is the end of a worker in which a launcher was refused. One that made steps all the same has found another way.
func (r *round) untrained(e worker.Exit) job.Exit {
	if !e.Exit.OK() && e.Exit.Code == 0 || e.Exit.Sent || r.refusal(e.Task.Rank, e.Task.LocalRank) == "" || r.watch.step(e.Task.LocalRank) > 0 {
		return e.Exit
	}
	return job.Exit{Code: job.ExitUsage}
}

// exception is what a worker failed of, as far as it said so, in a file, on its page or by its last lines; told: not by those alone.
func (r *round) exception(e worker.Exit, ended string, life int) (text string, told bool) {
	if why := r.refusal(e.Task.Rank, e.Task.LocalRank); why != "" {
		return why, true
	}
	tail, known := evidence.Own(ended, e.Tail)
	if ended != "" && !known { // its lines are elsewhere, and these of something else
		tail = nil
	}
	how, dir := r.plan.Framework, r.roundDir(life)
	recorded, _ := reachFor(r.scene.files, func() string { return how.Exception(dir, e.Task.LocalRank, nil) })
	text = cmp.Or(recorded, how.Exception("", e.Task.LocalRank, tail), ended)
	return text, recorded != "" || ended != ""
}
