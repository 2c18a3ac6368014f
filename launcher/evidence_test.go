package launcher

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/muster-run/muster/evidence"
	"github.com/muster-run/muster/job"
)

// Evidence that is kept twice in one second is in two directories; the essence of a node that writes to the leader's own directory does
// not come in place of all of it.
func TestEvidenceInOneDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watch{
			c: Config{Log: slog.New(slog.DiscardHandler)}, workers: func() []int { return nil }, asking: make(chan struct{}, 1), dirs: t.TempDir(),
			world: job.World{ID: "j", Members: []job.Member{{Node: job.Node{Name: "h"}}}}, ctx: t.Context(),
		}
		first, b, err := w.bundle(t.Context(), "first")
		second, _, again := w.bundle(t.Context(), "second")
		if err != nil || again != nil || first == second {
			t.Fatalf("%s, %v; %s, %v", first, err, second, again)
		}
		b.Pieces = nil
		text, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		w.keepEssence(0, news{Evidence: text})
		w.owned.Wait()
		index, err := os.ReadFile(filepath.Join(first, "index.json"))
		var kept evidence.Bundle
		if err != nil || json.Unmarshal(index, &kept) != nil || len(kept.Pieces) == 0 || kept.Why != "first" {
			t.Errorf("%v: %s", err, index)
		}
		if all, err := filepath.Glob(filepath.Join(w.dirs, "j", "*", "*")); err != nil || len(all) != 2 {
			t.Errorf("%v, %v", all, err)
		}
	})
}

// Of evidence that goes with the run the line says so.
func TestEvidenceThatGoes(t *testing.T) {
	for keep, want := range map[string]bool{"": true, "/keep": false, "/proc/none": true} { // where nothing can be written it goes with the run as well
		synctest.Test(t, func(t *testing.T) {
			var said strings.Builder
			run, dirs := t.TempDir(), ""
			switch keep {
			case "":
				dirs = Config{}.evidenceDir(run)
			case "/keep":
				dirs = t.TempDir()
			default:
				dirs = Config{Evidence: keep}.evidenceDir(run)
			}
			w := &watch{
				c: Config{Log: slog.New(slog.NewTextHandler(&said, nil)), Evidence: keep}, workers: func() []int { return nil }, asking: make(chan struct{}, 1), dirs: dirs, spare: filepath.Join(run, "evidence"),
				world: job.World{ID: "j", Members: []job.Member{{Node: job.Node{Name: "h"}}}}, ctx: t.Context(),
			}
			w.collect(collect{Why: "it hangs"})
			w.owned.Wait()
			at := w.dirs
			if want {
				at = run
			}
			if got := said.String(); !strings.Contains(got, "evidence is in "+at) || strings.Contains(got, "until the job ends; --evidence DIR keeps it") != want {
				t.Errorf("--evidence %q: %s", keep, got)
			}
		})
	}
}
