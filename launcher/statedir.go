package launcher

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/muster-run/muster/job"
)

// A ledger keeps the count of a job's rounds in a directory that outlives this agent and its container. Without a directory it keeps
// nothing. Nodes may share one: they write the same.
type ledger struct {
	dir, id string
	node    string // whose temporary file it is
}

func (c Config) ledger(p Plan) ledger { return ledger{c.StateDir, p.Name, p.Spec.Self.Incarnation} }

// path is of a name that no other job has, whatever its id.
func (l ledger) path() string {
	sum := sha256.Sum256([]byte(l.id))
	return filepath.Join(l.dir, fmt.Sprintf("muster-%s-%x.json", safeName(l.id), sum[:4]))
}

const maxLedger = 1 << 10 // bytes

// mostRounds is more than a job can have, one each second for decades: what counts so many was damaged.
const mostRounds = 1 << 30

// read returns what was counted. A directory that is not there yet holds nothing.
func (l ledger) read() (t job.Tally, err error) {
	if l.dir == "" {
		return t, nil
	}
	b, err := readSmall(l.path(), maxLedger)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err == nil && len(b) > maxLedger {
		err = fmt.Errorf("it has more than %d bytes", maxLedger)
	}
	if err == nil {
		err = json.Unmarshal(b, &t)
	}
	if err == nil && (t.Free < 0 || t.Rounds < t.Free || t.Rounds > mostRounds) {
		err = fmt.Errorf("it counts %d rounds, %d of them free", t.Rounds, t.Free)
	}
	if err != nil {
		return job.Tally{}, fmt.Errorf("the count of restarts in %s cannot be read, and begins anew: %w", l.path(), err)
	}
	return t, nil
}

// write replaces what was counted, whole.
func (l ledger) write(t job.Tally) error {
	if l.dir == "" {
		return nil
	}
	b, err := json.Marshal(t)
	temporary := l.path() + "." + l.node
	if err == nil {
		err = os.MkdirAll(l.dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(temporary, b, 0o644)
	}
	if err == nil {
		err = os.Rename(temporary, l.path())
	}
	if err != nil {
		return fmt.Errorf("keep the count of restarts: %w", err)
	}
	return nil
}

// forget is for a job that ended well.
func (l ledger) forget() error {
	if l.dir == "" {
		return nil
	}
	if err := os.Remove(l.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the count of restarts: %w", err)
	}
	return nil
}

// tally counts the round that runs, or ran last, as one that is over.
func (s *state) tally() job.Tally {
	if s.Next != nil {
		return *s.Next
	}
	t := job.Tally{Rounds: s.last() + 1, Free: s.Free}
	if !s.Counted && (s.Verdict == nil || s.Verdict.First == nil) {
		t.Free++
	}
	return t
}

// record keeps the count, as it is when the job has ended, or as it would be were it to end now by itself: on this machine, and where others
// meet who may come when all of this world are lost.
func (r *round) record() {
	if r.session != nil {
		r.session.Count(r.state.tally().Rounds)
	}
	l := r.c.ledger(r.plan)
	err := error(nil)
	if v := r.state.Verdict; v != nil && v.OK() {
		err = l.forget()
	} else {
		err = l.write(r.state.tally())
	}
	if err != nil {
		r.c.Log.Warn(err.Error())
	}
}
