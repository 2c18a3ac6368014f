package heartbeat

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
)

// A scene is a real training that was recorded once a second, and what the judge is to say of it.
type scene struct {
	Scene string `json:"scene"`
	Torch string `json:"torch"`
	Fault string `json:"fault"`
	Rank  int    `json:"rank"`
	Class string `json:"class"`
}

// TestRealTrainings plays what real trainings did, healthy and faulty ones.
func TestRealTrainings(t *testing.T) {
	files, err := filepath.Glob("testdata/real/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatal("no recordings in testdata/real")
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			s, looks := readScene(t, file)
			class, rank, said := judged(looks)
			if class != s.Class || class != "none" && s.Rank >= 0 && rank != s.Rank {
				t.Errorf("%s under torch %s: want class %s, rank %d; got class %s, rank %d\n%s", s.Scene, s.Torch, s.Class, s.Rank, class, rank, said)
			}
		})
	}
}

func readScene(t *testing.T, file string) (s scene, looks [][]job.Beat) {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if s.Scene == "" {
			if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
				t.Fatal(err)
			}
			continue
		}
		var beats []job.Beat
		if err := json.Unmarshal(lines.Bytes(), &beats); err != nil {
			t.Fatal(err)
		}
		looks = append(looks, beats)
	}
	return s, looks
}

// judged is the worst that is said of a recording: its class and the first culprit, or none.
func judged(looks [][]job.Beat) (class string, rank int, said string) {
	j := New(Limits{Busy: 35 * time.Second})
	class, rank = "none", -1
	for i, beats := range looks {
		for _, f := range j.Observe(Look{At: time.Duration(i) * time.Second, Beats: beats}) {
			said += f.Stage.String() + ": " + f.Sentence(job.World{}) + "\n"
			if f.Stage == Hung {
				class = f.Class
				if len(f.Culprits) > 0 {
					rank = f.Culprits[0].Rank
				}
			}
		}
	}
	return class, rank, said
}
