package matrix

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	machines "github.com/muster-run/muster/test/stage"
)

// patience is how long a case waits for anything that is to happen; the machine may be busy with much else.
const patience = 4 * time.Minute

// A stage is a network with hosts on it, and the job that they have in common.
type stage struct {
	*machines.Stage
	t      *testing.T
	kit    *kit
	torch  string // the Python that has it
	hosts  []*host
	aside  *host // the machine of an etcd in which the job meets; nil: it does not
	book   *book
	last   deed
	worlds []world // that came of deeds
}

// openStage makes a network without hosts.
func openStage(t *testing.T, k *kit, torch string) *stage {
	s := &stage{Stage: machines.Open(t, 1), t: t, kit: k, torch: torch}
	s.must(os.Mkdir(filepath.Join(s.Dir, "alive"), 0o755))
	var err error
	s.book, err = openBook(s.Dir, s.Ring)
	s.must(err)
	t.Cleanup(s.close)
	return s
}

// close ends everything: with the last worker the book ends.
func (s *stage) close() {
	s.Close()
	if s.t.Failed() {
		s.t.Logf("the workers' last words:\n%s", s.book.last(40))
	}
	s.book.close()
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// gaveUp ends the play of a launcher of which nothing is demanded.
type gaveUp struct{}

// until waits for something that the workers' book or a program shows.
func (s *stage) until(what string, here func() bool) {
	s.t.Helper()
	if s.Await(patience, here) {
		return
	}
	if !s.kit.ends {
		panic(gaveUp{})
	}
	s.t.Fatalf("in vain waited for %s", what)
}
