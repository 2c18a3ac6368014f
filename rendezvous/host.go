package rendezvous

import (
	"encoding/json"
	"strconv"

	"github.com/muster-run/muster/rendezvous/store"
)

// A host sees what the meeting of a job comes to in a store that this node hosts. Of a meeting that goes on nothing is worth
// keeping: its nodes notice that the store is another one, and meet anew.
type host struct {
	root  shelf
	table *store.Table
	watch store.Watcher
	keep  func([]byte)
	decision
}

// A decision is the outcome of a meeting, and what its nodes find it by.
type decision struct {
	Incarnation []byte `json:"incarnation"`
	Generation  int    `json:"generation"`
	Outcome     []byte `json:"outcome,omitempty"`
}

// Host returns a store for the meeting of a job, whose keys have a prefix there. Before anybody can know what it came to, keep is called with it, and with nothing
// when the nodes meet anew. Should the store be lost with this process, another one begins with what was kept last. keep
// must not call the store.
func Host(prefix, id string, kept []byte, keep func([]byte)) *store.Memory {
	m := &store.Memory{}
	m.Do(func(t *store.Table) {
		h := &host{root: shelf{prefix: prefix + jobPath(id)}, table: t, keep: keep}
		h.watch.Tell = h.tell
		h.see(h.root.prefix + keyIncarnation)
		h.recall(kept)
	})
	return m
}

// see makes tell hear of a key. A store without room for that has none for the key either.
func (h *host) see(key string) { _ = h.table.Watch(&h.watch, []byte(key)) }

// recall puts what was kept into the store.
func (h *host) recall(kept []byte) {
	var d decision
	if json.Unmarshal(kept, &d) != nil || d.Outcome == nil {
		return // nothing was, or by another version
	}
	life := h.root.life(d.Incarnation)
	_ = h.table.Set([]byte(h.root.prefix+keyIncarnation), d.Incarnation)
	_ = h.table.Set([]byte(life.prefix+keyGeneration), []byte(strconv.Itoa(d.Generation)))
	_ = h.table.Set([]byte(life.meeting(d.Generation).prefix+keyOutcome), d.Outcome)
}

// tell hears of a change before whoever made it, or waits for it, does.
func (h *host) tell(_ store.Change, key string, _, now []byte) {
	life := h.root.life(h.Incarnation)
	switch key {
	case h.root.prefix + keyIncarnation:
		h.decision = decision{Incarnation: now}
		h.see(h.root.life(now).prefix + keyGeneration)
	case life.prefix + keyGeneration:
		if h.Outcome != nil {
			h.keep(nil)
		}
		h.Outcome = nil
		if g, err := number(keyGeneration, now); err == nil {
			h.Generation = g
			h.see(life.meeting(g).prefix + keyOutcome)
		}
	case life.meeting(h.Generation).prefix + keyOutcome:
		h.Outcome = now
		if b, err := json.Marshal(h.decision); err == nil {
			h.keep(b)
		}
	}
}
