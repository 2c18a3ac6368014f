package torchrun

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"time"
)

// A Desc names a node, which is one process of torchrun's.
type Desc struct {
	Addr    string // its --local-addr, or its full host name
	Pid     int32
	LocalID int32 // counts the nodes of one process
}

// String names d as torchrun's messages do.
func (d Desc) String() string { return fmt.Sprintf("%s_%d_%d", d.Addr, d.Pid, d.LocalID) }

// compare orders nodes as torchrun does to give them their ranks.
func (d Desc) compare(e Desc) int {
	return cmp.Or(cmp.Compare(d.Addr, e.Addr), cmp.Compare(d.Pid, e.Pid), cmp.Compare(d.LocalID, e.LocalID))
}

// A Layout is what differs between the states of PyTorch's versions. All nodes of a rendezvous need the same.
type Layout struct {
	FQDN       bool // the address is called fqdn, not addr: 1.13
	Naive      bool // times are without a zone: 1.13
	Redundancy bool // there is a redundancy list: 2.3 and later
	Protocol   byte // of the pickle: 4, or 5 under Python 3.14; each reads both
}

// The layouts of the versions that it was seen in.
var (
	Torch113 = Layout{FQDN: true, Naive: true, Protocol: 4} // 1.13
	Torch26  = Layout{Redundancy: true, Protocol: 4}        // 2.6 and later
)

// A State is what the nodes of a rendezvous share under one key, the whole of it rewritten with each change.
type State struct {
	Layout       Layout
	Round        int32
	Complete     bool
	Deadline     time.Time // of the last call; zero: none
	Closed       bool
	Participants map[Desc]int32 // their ranks, once complete
	WaitList     map[Desc]bool  // want to be in the next round
	Redundancy   map[Desc]bool  // spares, when all places are taken
	Heartbeats   map[Desc]time.Time
}

// maxAddr bounds the address of a node, in bytes. A host name has 253 at most.
const maxAddr = 512

// newState returns the state before the first node has come.
func newState(l Layout) *State {
	return &State{
		Layout: l, Participants: map[Desc]int32{}, WaitList: map[Desc]bool{}, Redundancy: map[Desc]bool{},
		Heartbeats: map[Desc]time.Time{},
	}
}

// noState is the value under a rendezvous's key before there is a state. It is not valid as a state.
const noState = "Y2FuaW1hZGFt"

// maxState bounds a state as pickle, in bytes. 1500 nodes take 172 KB.
const maxState = 16 << 20

// Unmarshal reads a state as it is under its key in the store: base64 of a pickle.
func Unmarshal(value []byte) (*State, error) {
	if len(value) > base64.StdEncoding.EncodedLen(maxState) {
		return nil, fmt.Errorf("torchrun: a state of %d bytes is too large", len(value))
	}
	b, err := base64.StdEncoding.DecodeString(string(value))
	if err != nil {
		return nil, fmt.Errorf("torchrun: a state that is not base64: %w", err)
	}
	return Decode(b)
}

// Marshal is the inverse of Unmarshal.
func (s *State) Marshal() []byte {
	return base64.StdEncoding.AppendEncode(nil, s.Encode())
}

// Decode reads a pickled state. It knows the opcodes and classes of a state only, and calls nothing that the pickle
// names: what else it may hold is an error.
func Decode(pickle []byte) (*State, error) {
	if len(pickle) > maxState {
		return nil, fmt.Errorf("torchrun: a state of %d bytes is too large", len(pickle))
	}
	m := &machine{in: pickle}
	v, err := m.run()
	if err != nil {
		return nil, fmt.Errorf("torchrun: read state at byte %d of %d: %w", m.at, len(pickle), err)
	}
	s, err := stateOf(v)
	if err != nil {
		return nil, fmt.Errorf("torchrun: read state: %w", err)
	}
	s.Layout.Protocol = m.protocol
	return s, nil
}

// stateOf takes a state out of what a pickle made.
func stateOf(v any) (*State, error) {
	o, ok := v.(*object)
	if !ok || o.class != stateClass {
		return nil, fmt.Errorf("it is not a rendezvous state but %T", v)
	}
	s, r := newState(Layout{}), &fields{o: o}
	s.Round, s.Complete, s.Closed = r.int("round"), r.bool("complete"), r.bool("closed")
	s.Deadline = r.time("deadline")
	for _, p := range r.dict("participants") {
		s.Participants[r.desc(p.key)] = r.toInt("rank", p.value)
	}
	for _, p := range r.dict("last_heartbeats") {
		s.Heartbeats[r.desc(p.key)] = r.toTime("heartbeat", p.value)
	}
	r.set("wait_list", s.WaitList)
	if _, there := o.attr("redundancy_list"); there {
		s.Layout.Redundancy = true
		r.set("redundancy_list", s.Redundancy)
	}
	r.layout(&s.Layout)
	return s, r.err
}

// fields reads the attributes of an object. The first error stays.
type fields struct {
	o            *object
	err          error
	fqdn, addr   bool // names seen
	naive, aware bool // times seen
}

func (r *fields) fail(what string, v any) {
	if r.err == nil {
		r.err = fmt.Errorf("%s is not what it should be but %T", what, v)
	}
}

func (r *fields) get(name string) any {
	v, ok := r.o.attr(name)
	if !ok && r.err == nil {
		r.err = fmt.Errorf("%s is missing", name)
	}
	return v
}

func (r *fields) int(name string) int32 { return r.toInt(name, r.get(name)) }

func (r *fields) toInt(name string, v any) int32 {
	n, ok := v.(int32)
	if !ok {
		r.fail(name, v)
	}
	return n
}

func (r *fields) bool(name string) bool {
	v := r.get(name)
	b, ok := v.(bool)
	if !ok {
		r.fail(name, v)
	}
	return b
}

// time reads a time that may be None.
func (r *fields) time(name string) time.Time {
	v := r.get(name)
	if v == nil {
		return time.Time{}
	}
	return r.toTime(name, v)
}

func (r *fields) toTime(name string, v any) time.Time {
	t, ok := v.(datetime)
	if !ok {
		r.fail(name, v)
	}
	r.naive, r.aware = r.naive || ok && !t.aware, r.aware || ok && t.aware
	return t.Time
}

func (r *fields) dict(name string) []pair {
	v := r.get(name)
	d, ok := v.(*dict)
	if !ok {
		r.fail(name, v)
		return nil
	}
	return d.pairs
}

func (r *fields) set(name string, into map[Desc]bool) {
	v := r.get(name)
	s, ok := v.(*set)
	if !ok {
		r.fail(name, v)
		return
	}
	for _, item := range s.items {
		into[r.desc(item)] = true
	}
}

func (r *fields) desc(v any) Desc {
	o, ok := v.(*object)
	if !ok || o.class != descClass {
		r.fail("a node", v)
		return Desc{}
	}
	d := &fields{o: o}
	name := "addr"
	if _, old := o.attr("fqdn"); old {
		name = "fqdn"
	}
	r.fqdn, r.addr = r.fqdn || name == "fqdn", r.addr || name == "addr"
	addr, ok := d.get(name).(string)
	if !ok || len(addr) > maxAddr {
		d.fail(name, d.get(name))
	}
	desc := Desc{Addr: addr, Pid: d.int("pid"), LocalID: d.int("local_id")}
	if d.err != nil && r.err == nil {
		r.err = fmt.Errorf("a node's %w", d.err)
	}
	return desc
}

// layout says which layout was read. A state without nodes does not show it: then the one goes with the other.
func (r *fields) layout(l *Layout) {
	if r.err == nil && (r.fqdn && r.addr || r.naive && r.aware) {
		r.err = fmt.Errorf("it mixes layouts of several versions of PyTorch")
	}
	l.FQDN = r.fqdn || !r.addr && !l.Redundancy
	l.Naive = r.naive || !r.aware && l.FQDN
}
