package torchrun

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Encode pickles the state in its layout, as a node of torchrun reads it. Times lose what is below a microsecond. The same
// state gives the same bytes.
func (s *State) Encode() []byte {
	w := &writer{layout: s.Layout}
	w.op(opProto, max(4, min(s.Layout.Protocol, 5)))
	w.object(stateClass, func() {
		w.attr("round", func() { w.int(s.Round) })
		w.attr("complete", func() { w.bool(s.Complete) })
		w.attr("deadline", func() { w.time(s.Deadline) })
		w.attr("closed", func() { w.bool(s.Closed) })
		w.attr("participants", func() { each(w, s.Participants, w.int) })
		w.attr("wait_list", func() { w.set(s.WaitList) })
		if s.Layout.Redundancy {
			w.attr("redundancy_list", func() { w.set(s.Redundancy) })
		}
		w.attr("last_heartbeats", func() { each(w, s.Heartbeats, w.time) })
	})
	w.op(opStop)
	return w.out
}

// A writer writes a pickle without memo and frames, which no reader needs.
type writer struct {
	layout Layout
	out    []byte
}

func (w *writer) op(bytes ...byte) { w.out = append(w.out, bytes...) }

func (w *writer) int(n int32) {
	switch {
	case 0 <= n && n <= math.MaxUint8:
		w.op(opInt1, byte(n))
	case 0 <= n && n <= math.MaxUint16:
		w.out = binary.LittleEndian.AppendUint16(append(w.out, opInt2), uint16(n))
	default:
		w.out = binary.LittleEndian.AppendUint32(append(w.out, opInt4), uint32(n))
	}
}

func (w *writer) bool(b bool) {
	if b {
		w.op(opTrue)
	} else {
		w.op(opFalse)
	}
}

func (w *writer) string(s string) {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= math.MaxUint8 {
		w.op(opShortStr, byte(len(s)))
	} else {
		w.out = binary.LittleEndian.AppendUint32(append(w.out, opStr), uint32(len(s)))
	}
	w.out = append(w.out, s...)
}

func (w *writer) global(g global) {
	w.string(g.module)
	w.string(g.name)
	w.op(opGlobal)
}

func (w *writer) attr(name string, value func()) {
	w.string(name)
	value()
}

// object writes one whose attributes write themselves.
func (w *writer) object(class global, attrs func()) {
	w.global(class)
	w.op(opEmptyTuple, opNewObject, opEmptyDict, opMark)
	attrs()
	w.op(opSetItems, opBuild)
}

func (w *writer) desc(d Desc) {
	name := "addr"
	if w.layout.FQDN {
		name = "fqdn"
	}
	w.object(descClass, func() {
		w.attr(name, func() { w.string(d.Addr) })
		w.attr("pid", func() { w.int(d.Pid) })
		w.attr("local_id", func() { w.int(d.LocalID) })
	})
}

// each writes a dictionary by node.
func each[V any](w *writer, m map[Desc]V, value func(V)) {
	w.op(opEmptyDict, opMark)
	for _, d := range sorted(m) {
		w.desc(d)
		value(m[d])
	}
	w.op(opSetItems)
}

func (w *writer) set(m map[Desc]bool) {
	w.op(opEmptySet, opMark)
	for _, d := range sorted(m) {
		w.desc(d)
	}
	w.op(opAddItems)
}

func sorted[V any](m map[Desc]V) []Desc {
	return slices.SortedFunc(maps.Keys(m), Desc.compare)
}

// time writes a time, None if it is zero, without a zone or with UTC.
func (w *writer) time(t time.Time) {
	if t.IsZero() {
		w.op(opNone)
		return
	}
	w.global(datetimeOf)
	b := datetime{Time: t}.payload()
	w.op(append([]byte{opShortBytes, byte(len(b))}, b...)...)
	if w.layout.Naive {
		w.op(opTuple1, opReduce)
		return
	}
	w.global(timezoneOf)
	w.global(deltaOf)
	w.op(opInt1, 0, opInt1, 0, opInt1, 0, opTuple3, opReduce, opTuple1, opReduce, opTuple2, opReduce)
}
