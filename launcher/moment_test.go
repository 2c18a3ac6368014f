package launcher

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-run/muster/launcher/pid1"
)

// What an agent leaves of a world is as large as what has happened in it, and not as the world; who takes over finds all nodes again.
func TestMoment(t *testing.T) {
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprint("host-", i)
	}
	kept := map[string][]byte{}
	r := &round{c: Config{First: keeper{blobs: kept}}, line: new(line), h: &heritage{Form: wholeForm}}
	r.state, _ = decide(policy{}, state{}, 0, met{Generation: 3, Self: 7, Nodes: names, World: 1000})
	r.save()
	if n := len(kept[keptState]); n > 1500 {
		t.Errorf("of a world in which nothing has happened are kept %d bytes: %s", n, kept[keptState])
	}
	r.state, _ = decide(policy{}, r.state, time.Second, noticed{Node: 999, What: "nothing heard", Quiet: time.Second})
	r.state, _ = decide(policy{}, r.state, time.Second, emptied{})
	r.save()
	if !strings.Contains(string(kept[keptRun]), heritageForm) {
		t.Errorf("a program of the release before is told that it can go on: %s", kept[keptRun])
	}
	m, err := momentOf(&pid1.Legacy{Blobs: kept})
	if err != nil || !reflect.DeepEqual(m.State.Nodes, r.state.Nodes) || m.State.Nodes[999].Mute == 0 || len(m.Apart) != 2 {
		t.Errorf("%v, %d apart: %+v", err, len(m.Apart), m.State.Nodes[999])
	}
	again := &round{c: r.c, line: r.line, h: r.h, state: m.State, nodes: nodesBlob(m.State)}
	again.state, _ = decide(policy{}, again.state, 2*time.Second, met{Generation: 3, Of: "another", Self: 1, Nodes: names[:2], World: 2})
	again.save()
	if m, err := momentOf(&pid1.Legacy{Blobs: kept}); err != nil || len(m.State.Nodes) != 2 || len(kept) != 3 {
		t.Errorf("in the world after it: %v, %d nodes, %d blobs are kept", err, len(m.State.Nodes), len(kept))
	}
}

// What the release before left is read as it is, and what nobody could go on from is refused.
func TestMomentForms(t *testing.T) {
	const state = `{"state":{"self":0,"generation":2,"nodes":%s},"apart":%s}`
	for _, c := range []struct{ name, state, nodes, want string }{
		{"of the release before", fmt.Sprintf(`{"state":{"self":0,"generation":2,"nodes":%s}}`, `[{"name":"a"},{"name":"b","gone":true}]`), "", "a b gone"},
		{"no world", fmt.Sprintf(state, "null", "null"), "", ""},
		{"nothing happened", fmt.Sprintf(state, "null", "{}"), `[{"name":"a"},{"name":"b"}]`, "a b"},
		{"something did", fmt.Sprintf(state, "null", `{"1":{"name":"b","gone":true}}`), `[{"name":"a"},{"name":"b"}]`, "a b gone"},
		{"nodes that are not kept", fmt.Sprintf(state, "null", "{}"), "", "nodes of world 2"},
		{"a node beyond", fmt.Sprintf(state, "null", `{"2":{"name":"c"}}`), `[{"name":"a"},{"name":"b"}]`, "node 2 of 2"},
		{"a node before", fmt.Sprintf(state, "null", `{"-1":{"name":"c"}}`), `[{"name":"a"}]`, "node -1 of 1"},
		{"none", fmt.Sprintf(state, "null", `{"0":null}`), `[{"name":"a"}]`, "node 0 of 1"},
		{"none at first", fmt.Sprintf(state, "null", `{}`), `[{"name":"a"},null]`, "node 1 is none"},
		{"nonsense", `{"state":7}`, "", "cannot unmarshal"},
	} {
		m, err := momentOf(&pid1.Legacy{Blobs: map[string][]byte{keptState: []byte(c.state), keptNodes + "2-": []byte(c.nodes)}})
		var got []string
		for _, n := range m.State.Nodes {
			if got = append(got, n.Name); n.Gone {
				got = append(got, "gone")
			}
		}
		if text := strings.Join(got, " "); err == nil && text != c.want || err != nil && !strings.Contains(err.Error(), c.want) || err != nil && c.want == "" {
			t.Errorf("%s: %q, %v; want %q", c.name, text, err, c.want)
		}
	}
}

// A keeper is a first process that only keeps.
type keeper struct {
	First
	blobs map[string][]byte
}

func (k keeper) Keep(name string, data []byte) error { k.blobs[name] = data; return nil }
func (k keeper) Drop(name string) error              { delete(k.blobs, name); return nil }
func (keeper) Life() int                             { return 0 }

// What a member tells again, as it was, is left a little later, with what else comes; what is of this node, or never told again, is not.
func TestHaste(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := map[string][]byte{}
		r := &round{c: Config{First: keeper{blobs: kept}}, line: new(line), desk: new(desk), h: &heritage{Form: heritageForm}, began: time.Now()}
		r.state, _ = decide(policy{}, state{}, 0, met{Generation: 1, Nodes: []string{"a", "b", "c"}, World: 3})
		r.save()
		is := func(what string, saved bool) {
			t.Helper()
			if r.saveInTime(); r.unsaved == saved {
				t.Errorf("%s: it is to be saved at once: %v", what, saved)
			}
		}
		hears := func(node int, kind string) {
			event := told{node, news{Kind: kind}}
			r.judge(event, r.state.hasteOf(event))
		}
		hears(1, newsEnds)
		is("a worker of a member ended", false)
		hears(2, newsEnds)
		is("another one", false)
		<-r.keeps
		r.save()
		hears(1, newsEnds)
		r.post(reached{How: 1})
		hears(2, newsEnds)
		is("this node has seen something between two", true)
		hears(1, newsFailed)
		is("a worker of a member failed", true)
	})
}
