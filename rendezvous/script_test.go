package rendezvous

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/test/golden"
)

// A telling is a scene that a script plays. Lines of it:
//
//	job 2:3 spares=1        the job's --nnodes and --spares; agents wait 30 s for more of them
//	come a b=1              agents come, one after the other; b under index 1
//	die a; leave a          an agent is killed; it is told to stop
//	over a expect=1 lost=b  a says how its world ended: how many of its nodes go on, and which do not; or verdict=WORD
//	back b led              a member of a world meets again; led: it has heard from that world's leader
//	empty                   the store comes back without its keys
//	pass 5s                 time passes
//
// Below each line stands, indented, what those agents see now for whom that has changed, and how their part in the meeting ended.
type telling struct {
	*scene
	terms job.Terms
	specs map[string]job.Spec
	now   map[string]*arrival
	heard map[string]string // what was told last of each
	ended map[string]bool
	known sync.Map // incarnation to *mortal
}

// The meetings in testdata say what is written there.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatal(scripts, err)
	}
	for _, path := range scripts {
		t.Run(filepath.Base(path), func(t *testing.T) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			play(t, func(s *scene) { got = tell(s, string(b)) })
			switch {
			case got == string(b):
			case golden.Update():
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			default:
				t.Errorf("it says\n%s\nwant\n%s", got, b)
			}
		})
	}
}

// tell plays a script and returns it with what is said.
func tell(s *scene, script string) string {
	t := &telling{scene: s, specs: map[string]job.Spec{}, now: map[string]*arrival{}, heard: map[string]string{}, ended: map[string]bool{}}
	var out strings.Builder
	for line := range strings.Lines(script) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "  ") { // what was said last time
			continue
		}
		fmt.Fprintln(&out, line)
		if words := strings.Fields(line); len(words) > 0 && !strings.HasPrefix(line, "#") {
			t.do(words[0], words[1:])
			t.hear(&out)
		}
	}
	return out.String()
}

func (t *telling) do(verb string, words []string) {
	switch verb {
	case "job":
		t.job(words)
	case "come":
		for _, word := range words {
			name, index, numbered := strings.Cut(word, "=")
			spec := agent(name, t.terms.Nodes)
			if numbered {
				spec.Self.Index = t.number(index)
			}
			t.specs[name] = spec
			t.enters(name, Options{LastCall: lastCall.LastCall})
		}
	case "die":
		t.dies(t.now[words[0]])
		t.ended[words[0]] = true // and says nothing of it
	case "leave":
		t.now[words[0]].cancel()
		t.passes(0)
	case "over":
		t.ends(t.now[words[0]], t.how(t.now[words[0]], words[1:]))
	case "back":
		a := t.now[words[0]]
		a.session.Close()
		o := again(a)
		o.Led = slices.Contains(words, "led")
		t.enters(words[0], o)
	case "empty":
		t.store.empty()
	case "pass":
		d, err := time.ParseDuration(words[0])
		if err != nil {
			t.Fatal(err)
		}
		t.passes(d)
	default:
		t.Fatalf("a script says %q", verb)
	}
}

func (t *telling) job(words []string) {
	fewest, most, both := strings.Cut(words[0], ":")
	if !both {
		most = fewest
	}
	t.terms = job.Terms{Nodes: t.number(most)}
	if both {
		t.terms.Least = t.number(fewest)
	}
	for _, w := range words[1:] {
		t.terms.Spares = t.number(strings.TrimPrefix(w, "spares="))
	}
}

func (t *telling) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (t *telling) enters(name string, o Options) {
	spec := t.specs[name]
	spec.Terms = t.terms
	if spec.Self.Index >= 0 {
		o.Lives = func(_ context.Context, n job.Node) bool {
			way, _ := t.known.Load(n.Incarnation)
			return !way.(*mortal).dead.Load()
		}
	}
	t.now[name], t.ended[name], t.heard[name] = t.comes(spec, o), false, ""
	t.known.Store(spec.Self.Incarnation, t.ways[spec.Self.Incarnation])
	t.passes(apart)
}

// apart is between two agents that come, so that none of what they do falls on the same moment, when either might be first.
const apart = 7 * time.Millisecond

// how is the end of a world, as a member says it.
func (t *telling) how(a *arrival, words []string) (over Over) {
	for _, w := range words {
		what, value, _ := strings.Cut(w, "=")
		switch what {
		case "expect":
			over.Expect = t.number(value)
		case "lost":
			for _, name := range strings.Split(value, ",") {
				over.Lost = append(over.Lost, slices.IndexFunc(a.session.World.Members, func(m job.Member) bool { return m.Name == name }))
			}
		case "verdict":
			over.Verdict = &job.Verdict{Sentence: value}
		}
	}
	return over
}

// hear writes what is new.
func (t *telling) hear(out *strings.Builder) {
	for _, name := range slices.Sorted(maps.Keys(t.now)) {
		a := t.now[name]
		ended := false
		select {
		case <-a.done:
			ended = true
		default:
		}
		a.mu.Lock()
		said := a.said
		a.said = nil
		a.mu.Unlock()
		if len(said) > 0 && !ended {
			text := strings.ReplaceAll(said[len(said)-1].Timeless().String(), " for 1ns", "")
			if text != t.heard[name] {
				fmt.Fprintf(out, "  %s: %s\n", name, text)
			}
			t.heard[name] = text
		}
		if ended && !t.ended[name] {
			t.ended[name] = true
			fmt.Fprintf(out, "  %s %s\n", name, a.ending(t.T))
		}
		if session := a.in(); session != nil && session.Rank == 0 {
			select {
			case n := <-session.Newcomers():
				fmt.Fprintf(out, "  %s hears that %d wait to join\n", name, n)
			default:
			}
		}
	}
}

func (a *arrival) ending(t *testing.T) string {
	if a.err != nil {
		return "ends: " + a.err.Error()
	}
	return fmt.Sprintf("is in the world of generation %d: %s", a.session.World.Generation, strings.Join(a.world(t), ", "))
}
