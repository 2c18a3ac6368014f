package heartbeat

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	Line  int    `json:"line"` // at which the fault began
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
			v := judged(looks)
			if v.class != s.Class || v.class != "none" && s.Rank >= 0 && v.rank != s.Rank {
				t.Errorf("%s under torch %s: want class %s, rank %d; got class %s, rank %d\n%s", s.Scene, s.Torch, s.Class, s.Rank, v.class, v.rank, v.said)
			}
			if s.Class == "none" {
				return
			}
			early, late := v.early-s.Line, v.late-s.Line
			t.Logf("suspected after %d s, called a hang after %d s", early, late)
			if v.early == 0 || early > 15 || late > 60 {
				t.Errorf("%s under torch %s was suspected after %d s and called a hang after %d s\n%s", s.Scene, s.Torch, early, late, v.said)
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

// A judgement is the worst that is said of a recording: its class and the first culprit, or none.
type judgement struct {
	class       string
	rank        int
	early, late int // looks at which anybody was suspected first, and at which it was called a hang
	said        string
}

func judged(looks [][]job.Beat) judgement {
	j := New(Limits{Busy: 45 * time.Second})
	v := judgement{class: "none", rank: -1}
	for i, beats := range longer(looks) {
		for _, f := range j.Observe(Look{At: time.Duration(i) * time.Second, Beats: beats}) {
			v.said += fmt.Sprintf("%d: %v: %s\n", i, f.Stage, f.Sentence(job.World{}))
			if f.Stage >= Suspect && v.early == 0 {
				v.early = i
			}
			if f.Stage == Resumed {
				v.early = 0
			}
			if f.Stage == Hung && v.class == "none" {
				v.class, v.late = f.Class, i
				if len(f.Culprits) > 0 {
					v.rank = f.Culprits[0].Rank
				}
			}
		}
	}
	return v
}

// longer is a recording that goes on for a while as it did in the last ten seconds, in which nobody advanced: faults of who is at work
// are told later than the recordings end.
func longer(looks [][]job.Beat) [][]job.Beat {
	n := len(looks)
	if n < 11 || advances(looks[n-11], looks[n-1]) {
		return looks
	}
	for i := n; i < n+20; i++ {
		beats := slices.Clone(looks[n-1])
		for k := range beats {
			if now, then := beats[k].Sight, looks[n-11][k].Sight; now != nil && then != nil {
				s := *now
				s.CPU += (now.CPU - then.CPU) / 10 * time.Duration(i-n+1)
				s.Disk += (now.Disk - then.Disk) / 10 * uint64(i-n+1)
				s.Wire += (now.Wire - then.Wire) / 10 * uint64(i-n+1)
				beats[k].Sight = &s
			}
		}
		looks = append(looks, beats)
	}
	return looks
}

// advances reports whether anybody does from one look to another, or whether it cannot be told.
func advances(then, now []job.Beat) bool {
	for i := range now {
		if len(then) != len(now) || then[i].Rank != now[i].Rank || then[i].Count != now[i].Count {
			return true
		}
	}
	return false
}
