package launcher

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/evidence"
	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/framework"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/rendezvous"
	"github.com/muster-run/muster/rendezvous/tcpstore"
	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/worker"
)

// This file is how the work of an agent that died is taken over by another. The first process has the workers and their
// output; what else the next agent must know lies with it under these names, each as JSON, and is written before
// anything is done that follows from it. Other agents hear no more of it than that this one is new to them: then each
// side tells the other again how it stands.
const (
	keptRun     = "run"     // heritage: what was settled when the run began, and what all agreed on
	keptState   = "state"   // moment: where the run loop stands
	keptHeard   = "heard"   // clock, when the peer that has been silent for longest was heard
	keptNodes   = "nodes/"  // a world's nodes as they were at first, by its generation and mark
	keptWay     = "way"     // the number of the agent that made way on purpose
	keptJournal = "journal" // journalHead: the state before the first event that is kept
	keptEnd     = "end"     // why this node is in no world any more, and only serves the store
	keptStood   = "stood"   // rendezvous.Standing: beside which world this node stood by
	keptWorld   = "world"   // what the nodes agreed on in the store that this node hosts, as rendezvous.Host wants it
	keptEvent   = "event/"  // journalEntry, each by its number
	heldStore   = "store"   // the listener at which this node hosts the store, and other agents find this one
	heldClaim   = "claim"   // its claim on the port of that, which other jobs may share
	heldDoor    = "door"    // the listener at which they do where another node hosts it
	heldPeers   = "peer/"   // connections to other agents; for them this agent lives as long as those
)

// heritageForm names the form of what is kept. A newer program that cannot read it leaves the job to the older one.
const heritageForm = "muster.heritage/3"

// wholeForm is the form before it, in which a state has all its nodes.
const wholeForm = "muster.heritage/2"

// heritage is what does not change in the life of a job, once it is known.
type heritage struct {
	Form   string `json:"form"`
	Began  int64  `json:"began"`           // clock
	Dir    string `json:"dir"`             // the run's private directory
	Pages  string `json:"pages,omitempty"` // the directory of its workers' pages; "": Dir
	LogDir string `json:"log_dir,omitempty"`

	RAS    string   `json:"ras,omitempty"`     // where NCCL's own watch over the workers answers; "": there is none
	RASVar *job.Var `json:"ras_var,omitempty"` // which tells NCCL so; nil: the user did

	Plan Plan `json:"plan"`

	Tuned job.Env `json:"tuned,omitempty"` // what workers are told of networks

	World  *job.World `json:"world,omitempty"` // nil: the nodes have not met yet
	Rank   int        `json:"rank"`
	Loop   int64      `json:"loop"` // clock when the run loop began
	Policy policy     `json:"policy"`

	own   ownLookup
	held  []int    // sockets that keep the ports of this node's workers
	owner *os.File // says that Pages are this run's; nil: nothing does, or what an agent before this one opened

	hook func() (string, error) // waits until what fills pages is written down, and says where
}

// moment is where the run loop stands.
type moment struct {
	State  state          `json:"state"`
	Apart  map[int]*node  `json:"apart"` // of its nodes those that are not as they were at first: it has none itself then
	Phase  string         `json:"phase"`
	Since  time.Duration  `json:"since"` // that phase began, since the loop did
	Timers timers         `json:"timers"`
	Before evidence.Usage `json:"before"`              // of memory, when the round began
	Host   string         `json:"host"`                // rank 0's node, as this node reaches it
	Events int            `json:"events"`              // that led here,
	Told   int            `json:"told,omitempty"`      // and the lines of the event log that they came to
	Store  int            `json:"store"`               // PID of the workers' store; 0: there is none, or it is a worker's
	PMI    int            `json:"pmi,omitempty"`       // PID of the process that serves PMI; 0: there is none
	Served int            `json:"pmi_round,omitempty"` // the round of its workers
}

// timers are when the run loop is to act, since it began; 0: it is not.
type timers struct {
	Settle  time.Duration `json:"settle,omitempty"`
	Expire  time.Duration `json:"expire,omitempty"`
	Kill    time.Duration `json:"kill,omitempty"` // workers were told to stop
	Preempt bool          `json:"preempt,omitempty"`
	Wake    time.Duration `json:"wake,omitempty"`
}

// clock is CLOCK_MONOTONIC in nanoseconds, which all processes of a machine share.
func clock() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail with this clock
	return t.Nano()
}

// timeOf is a time of clock as this process sees it.
func timeOf(at int64) time.Time { return time.Now().Add(time.Duration(at - clock())) }

// inherit returns what an agent before this one left: nil if there was nothing. If it had not met the others yet, they meet this one
// in its place.
func inherit(c *Config, e *report.Ending) (*heritage, error) {
	old := c.First.Legacy()
	if old == nil || old.Blobs[keptRun] == nil {
		return nil, nil
	}
	var h heritage
	if err := json.Unmarshal(old.Blobs[keptRun], &h); err != nil || h.Form != heritageForm && h.Form != wholeForm {
		c.Log.Error(fmt.Sprintf("cannot take over: what the agent before this one left is of form %q, not %q (%v)", h.Form, heritageForm, err))
		os.Exit(job.ExitInternal) // without a goodbye: perhaps the first process has a program that can
	}
	var err error
	if h.Plan.Framework, err = framework.Lookup(h.Plan.Framework.Name); err != nil {
		return nil, err
	}
	if err := os.Mkdir(h.Dir, 0o700); h.World == nil && err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, nil // it died as it looked for a better place
	}
	if _, err := c.petOutput(&c.Output); err != nil {
		return nil, err
	}
	c.Output.Dir = h.LogDir
	h.Plan.machine, _ = c.machine() // a root that is none was refused then
	if h.World != nil {
		c.StartTimeout, c.past = 0, &h // in time or not was up to the first
	}
	e.Job, e.Before, e.Began = h.Plan.Spec.ID, h.Plan.Preflight, timeOf(h.Began)
	return &h, nil
}

// ended returns where the job stood when an agent before this one had nothing left to do but to say so; nil: it had.
func (c Config) ended() *state {
	if !c.takesOver() {
		return nil
	}
	if m, err := momentOf(c.First.Legacy()); err == nil && m.State.Ended {
		return &m.State
	}
	return nil
}

// takesOver reports whether an agent before this one had met the others.
func (c Config) takesOver() bool { return c.past != nil }

// goesOn reports whether it had begun the run loop, too: there may be workers.
func (c Config) goesOn() bool { return c.takesOver() && c.First.Legacy().Blobs[keptState] != nil }

// meets reports whether it was between two worlds.
func (c Config) meets() bool {
	if !c.goesOn() {
		return false
	}
	m, err := momentOf(c.First.Legacy())
	return err == nil && m.State.Meeting && !m.State.Ended
}

// prepare is what a run begins with: who this node is, where its things go.
func prepare(c *Config, e *report.Ending) (*heritage, error) {
	plan, err := planned(*c)
	if err != nil {
		return nil, err
	}
	e.Job, e.Before = plan.Spec.ID, plan.Preflight
	c.tellStart(e.Began, plan)
	c.lastWords("starting: " + plan.Spec.ID)
	for _, note := range plan.Notes {
		c.Log.Warn(note)
	}
	h := &heritage{Form: heritageForm, Began: clock() - int64(time.Since(e.Began)), Plan: plan}
	if err := h.furnish(c); err != nil {
		return h, err
	}
	err = h.Plan.bars(runDir(*c, plan.Spec.ID, func(dir string) {
		h.Dir, h.Pages = dir, pageDir(dir)
		c.keep(keptRun, h)
		c.keepDir(dir)
		_ = c.First.Keep(pid1.KeptPages, []byte(h.Pages))
	}))
	if h.Plan.Unfit != plan.Unfit { // whoever takes over is to know
		c.keep(keptRun, h)
	}
	return h, cmp.Or(err, h.Plan.alone())
}

// furnish gets what workers need of this node beside the machine. Where that is not to be had, none can run on it.
func (h *heritage) furnish(c *Config) (err error) {
	p := &h.Plan
	for _, get := range []func() error{
		func() error { c.Output, err = openLogs(*c, *p); h.LogDir = c.Output.Dir; return err },
		func() error { return c.room(p.Spec.Self.Slots) },
		h.reserve,
	} {
		if p.Unfit != "" {
			return nil
		}
		if err := p.bars(get()); err != nil {
			return err
		}
	}
	return nil
}

// keepDir has the first process remove a run's private directory, should nobody else.
func (c Config) keepDir(dir string) { _ = c.First.Keep(pid1.KeptDir, []byte(dir)) } // else it is left behind

// keep leaves v for an agent that takes over from this one. Without, the job goes on as long as this one lives.
func (c Config) keep(name string, v any) {
	b, err := json.Marshal(v)
	if err == nil {
		err = c.First.Keep(name, b)
	}
	if err != nil {
		c.Log.Debug(fmt.Sprintf("no other agent could take over from this one: %v", err))
	}
}

// met adds what the nodes agreed on.
func (h *heritage) met(c Config, s *rendezvous.Session) {
	c.warnBeyond(s.World.Size())
	if h.World == nil {
		h.Loop, h.Policy = clock(), h.Plan.policy(c)
	}
	h.World, h.Rank, h.Form = &s.World, s.Rank, heritageForm
	c.keep(keptRun, h)
}

// place says in an ending where this node stood in the world.
func (h *heritage) place(e *report.Ending) {
	e.Node, e.World = h.Rank, h.World.Size()
	for _, m := range h.World.Members {
		e.Nodes = append(e.Nodes, m.Name)
	}
}

// resume opens the meeting of an agent that died again: for those who come late, and, on the leader, for the members. The store
// that another node hosts may be gone; then the job goes on without.
func (m *meeting) resume() error {
	if members := m.c.past.Plan.Etcd; members != nil {
		return m.resumeEtcd(members)
	}
	if m.c.past.Rank != 0 || m.store != nil {
		return nil
	}
	m.store = tcpstore.New(string(m.port), m.reaching(m.missed))
	return m.listenForPeers(hostOf(m.port))
}

// resumeSession goes on with the world of an agent that died. A member looks for the store of the next meeting when it needs it; how this world
// ended it says in the one where the nodes met, if that is still there.
func (m *meeting) resumeSession() {
	met := m.store
	if met == nil {
		client := tcpstore.New(string(m.port), m.reaching(m.missed))
		m.closers = append(m.closers, func() { client.Close() })
		met = client
	}
	m.session = rendezvous.Resume(met, *m.c.past.World, m.c.past.Rank)
	m.succeed()
}

// inherited returns a listener that an agent before this one left; nil: there is none.
func (m *meeting) inherited(name string) (net.Listener, error) {
	if m.c.First == nil || m.c.First.Legacy() == nil || m.c.First.Legacy().Files[name] == nil {
		return nil, nil
	}
	files := m.c.First.Legacy().Files
	defer delete(files, name)
	defer files[name].Close()
	ln, err := net.FileListener(files[name])
	if err != nil {
		return nil, fmt.Errorf("take over the listener of an agent that died: %w", err)
	}
	return ln, nil
}

// hold keeps a listener open beyond this agent's death, until free.
func (m *meeting) hold(name string, ln net.Listener) (free func()) {
	raw, ok := ln.(syscall.Conn)
	if m.c.First == nil || !ok {
		return func() {}
	}
	if err := m.c.First.Hold(name, raw); err != nil {
		m.c.Log.Debug(fmt.Sprintf("no other agent could take over from this one: %v", err))
	}
	return func() { _ = m.c.First.Drop(name) }
}

// How long a member and the leader may take to find each other when the agent of one is a new one. A leader leaves its members time to call.
// A member goes on as if it were not new, for others reckon with when it last heard its leader, but for a moment to reach it.
const (
	againTime  = 10 * time.Second
	leastAgain = 3 * time.Second
)

// again is how long, in a world with this node time-out. Others wait for a second longer, and more, before they go on without this node.
func (c Config) again(timeout time.Duration, leads bool) time.Duration {
	var heard int64
	if old := c.First.Legacy(); old == nil || json.Unmarshal(old.Blobs[keptHeard], &heard) != nil {
		return max(againTime, timeout)
	}
	left := min(timeout-time.Duration(clock()-heard), timeout)
	if leads {
		return max(againTime, left)
	}
	return max(left, min(leastAgain, left+time.Second), time.Millisecond)
}

// letGo ends the connections of the agent that died: its peers have this one now, or see that they must call again.
func (c Config) letGo() {
	if c.First == nil || c.First.Life() == 0 {
		return
	}
	_ = c.First.DropOld(heldPeers)
	for name, file := range c.First.Legacy().Files {
		if strings.HasPrefix(name, heldPeers) {
			file.Close()
		}
	}
}

// fleetOptions make the line to the others one that another agent can take over.
func (c Config) fleetOptions(token string, l *line) fleet.Options {
	o := fleet.Options{Log: c.Log, Beat: l.pulse.tell, Together: l.does.surely, Token: token, Dial: c.sim.dial}
	if c.First != nil { // no test of a line alone
		o.Life, o.Hold = c.First.Life(), c.holder()
	}
	return o
}

// stand leaves beside which world this node stands by: when that is over, and the job with it, another agent of it is to know that it was there.
func (m *meeting) stand(beside rendezvous.Standing) {
	m.stood = beside
	if m.c.First != nil {
		m.c.keep(keptStood, beside)
	}
}

// inheritStood learns what an agent before this one left by stand.
func (m *meeting) inheritStood() {
	if m.c.First == nil || m.c.First.Legacy() == nil {
		return
	}
	if b := m.c.First.Legacy().Blobs[keptStood]; b != nil && json.Unmarshal(b, &m.stood) != nil {
		m.stood = rendezvous.Standing{} // of another version: it finds out what it can
	}
}

// remember leaves what the meeting came to in the store that this node hosts: others may know it before this one does.
func (m *meeting) remember(b []byte) {
	m.awaited.Store(b == nil)
	if b != nil {
		select {
		case m.decided <- struct{}{}:
		default:
		}
	}
	if m.c.First == nil {
		return
	}
	if err := m.c.First.Keep(keptWorld, b); err != nil {
		m.c.Log.Debug(fmt.Sprintf("no other agent could take over from this one: %v", err))
	}
}

// holder keeps connections open beyond this agent's death.
func (c Config) holder() func(net.Conn) func() {
	var n atomic.Int64
	return func(conn net.Conn) func() {
		raw, ok := conn.(syscall.Conn)
		name := fmt.Sprintf("%s%d/%d", heldPeers, c.First.Life(), n.Add(1))
		if !ok || c.First.Hold(name, raw) != nil {
			return func() {} // the peer sees that it breaks, and calls again
		}
		return func() { _ = c.First.Drop(name) }
	}
}

// keepNodes leaves the nodes of a world that has begun. How they stand is left apart, for most stand as they did for most of the time.
func (r *round) keepNodes() {
	if is := nodesBlob(r.state); r.state.fresh != nil && r.nodes != is {
		if r.h.Form != heritageForm { // the release before left it
			r.h.Form = heritageForm
			r.c.keep(keptRun, r.h)
		}
		r.c.keep(is, r.state.fresh)
		r.nodes, r.passed = is, r.nodes
	}
}

// dropNodes takes back those of the world before, when nothing that is left is of it any more.
func (r *round) dropNodes() {
	if r.passed != "" {
		_ = r.c.First.Drop(r.passed) // else they stay, and are not looked at
		r.passed = ""
	}
}

// nodesBlob is where those of a state's world are. In a store that came back empty another world may be of the same generation.
func nodesBlob(s state) string { return fmt.Sprint(keptNodes, s.Generation, "-", s.Marks.Of) }

// momentOf reads where the run loop of the agent stood that left this.
func momentOf(old *pid1.Legacy) (m moment, err error) {
	if err := json.Unmarshal(old.Blobs[keptState], &m); err != nil || m.State.Nodes != nil {
		return m, err
	}
	if m.Apart == nil { // it was in no world
		return m, nil
	}
	if err := json.Unmarshal(old.Blobs[nodesBlob(m.State)], &m.State.fresh); err != nil {
		return m, fmt.Errorf("nodes of world %d: %w", m.State.Generation, err)
	}
	if i := slices.Index(m.State.fresh, nil); i >= 0 {
		return m, fmt.Errorf("nodes of world %d: node %d is none", m.State.Generation, i)
	}
	m.State.Nodes = slices.Clone(m.State.fresh)
	for i, n := range m.Apart {
		if n == nil || i < 0 || i >= len(m.State.Nodes) {
			return m, fmt.Errorf("node %d of %d", i, len(m.State.Nodes))
		}
		m.State.Nodes[i] = n
	}
	return m, nil
}

// haste is how soon must be left what an event led to, where nothing is done that follows from it.
type haste int

const (
	atOnce    haste = iota // it is of this node
	whenQuiet              // a member told it: when no more is waiting to be heard
	inTime                 // and tells it again, as it was, to an agent that takes over
)

// hasteOf is that of what a member tells.
func (s *state) hasteOf(event any) haste {
	switch e := event.(type) {
	case told:
		switch e.News.Kind {
		case newsDone, newsClear, newsEnds, newsHere:
			return inTime
		}
	case departed:
		if s.Verdict != nil || s.Next != nil { // which it waits for no longer than for one that is lost
			return inTime
		}
	}
	return whenQuiet
}

// saveInTime saves what came in last. In a large world that is much each time, and all members tell something at about the same time: that is left as one.
func (r *round) saveInTime() {
	switch {
	case !r.unsaved:
	case r.haste == atOnce, r.haste == whenQuiet && len(r.peers) == 0:
		r.save()
	case r.keeps == nil:
		r.keeps = time.After(10*time.Millisecond + time.Duration(len(r.state.Nodes))*20*time.Microsecond)
	}
}

// save leaves where the run loop stands, before anything is done that follows from it.
func (r *round) save() {
	r.unsaved, r.keeps = false, nil
	r.keepNodes()
	s, apart := r.state.apart()
	m := moment{State: s, Apart: apart, Phase: r.phase, Since: r.since, Timers: r.timers, Before: r.scene.before, Host: r.line.host, Events: r.journal.next(), Told: r.journal.told}
	if r.store != nil && r.store.child != nil {
		m.Store = r.store.child.PID
	}
	if r.pmi != nil && r.pmi.child != nil {
		m.PMI, m.Served = r.pmi.child.PID, r.pmi.round
	}
	r.c.keep(keptState, m)
	r.dropNodes()
	r.keepHead()
}

// keepEvent leaves the last event.
func (r *round) keepEvent() {
	j := &r.journal
	r.c.keep(keptEvent+strconv.Itoa(j.next()-1), j.entries[len(j.entries)-1])
}

// keepHead takes back events that had to go for later ones, and leaves what they led to.
func (r *round) keepHead() {
	head := r.journal.head
	if r.first == head.First {
		return
	}
	r.c.keep(keptJournal, head)
	for ; r.first < head.First; r.first++ {
		_ = r.c.First.Drop(keptEvent + strconv.Itoa(r.first)) // else it stays, and is not looked at
	}
}

// resume goes on with the journal of an agent that died, or begins one where that agent stood.
func (j *journal) resume(old *pid1.Legacy, m moment) {
	if !j.inherit(old, m.Events) {
		j.head.State, j.head.First, j.head.Told = m.State, m.Events, m.Told
	}
	j.told = m.Told
}

// inherit reads the journal of an agent that died, up to the event with this number, and reports whether that was possible.
func (j *journal) inherit(old *pid1.Legacy, until int) bool {
	again := journal{head: j.head, most: j.most}
	if head := old.Blobs[keptJournal]; head != nil && json.Unmarshal(head, &again.head) != nil || until == 0 { // 0: its version kept none
		return false
	}
	for again.next() < until {
		var e journalEntry
		if json.Unmarshal(old.Blobs[keptEvent+strconv.Itoa(again.next())], &e) != nil {
			return false
		}
		if _, err := e.value(); err != nil { // of another version
			return false
		}
		again.entries, again.bytes = append(again.entries, e), again.bytes+len(e.Event)
	}
	*j = again
	return true
}

// note remembers when a deed is to have consequences.
func (t *timers) note(now time.Duration, deed any) {
	switch d := deed.(type) {
	case begin, meet:
		t.Kill, t.Preempt = 0, false
	case stop:
		if end := now + d.Within; t.Kill == 0 || end < t.Kill {
			t.Kill, t.Preempt = end, d.Preempt
		}
	case kill:
		t.Kill = now
	case settle:
		t.Settle = now + d.Within
	case wake:
		t.Wake = now + d.Within
	case expire:
		t.Expire = 0
		if d.Within > 0 {
			t.Expire = now + d.Within
		}
	}
}

// resume goes on where the run loop of an agent that died stood.
func (r *round) resume(old *pid1.Legacy) error {
	m, err := momentOf(old)
	if err != nil {
		return fmt.Errorf("take over from an agent that died: where it stood: %w", err)
	}
	r.state, r.phase, r.since, r.timers, r.line.host = m.State, m.Phase, m.Since, m.Timers, m.Host
	if r.state.fresh != nil {
		r.nodes = nodesBlob(r.state)
	}
	for name := range old.Blobs {
		if strings.HasPrefix(name, keptNodes) && name != r.nodes {
			_ = r.c.First.Drop(name) // of a world that it had left, or was about to enter
		}
	}
	r.journal.resume(old, m)
	r.first = r.journal.head.First
	r.scene = openScene(r.c)
	r.scene.before = m.Before
	r.dir = r.roundDir(r.state.Round)
	r.store = inheritStore(m, old)
	r.inheritPMI(m, old)
	if m.State.Start != nil {
		r.arrivals = r.awaited(*m.State.Start)
	}
	r.endStrays(old)
	inherited := 0
	switch {
	case r.state.Started:
		inherited = r.inheritWorkers(old)
	case r.state.mayBegin(): // what it came to start is taken up then
	default:
		r.abandon(old)
	}
	r.restart()
	r.tellRest()
	r.c.aloud().Warn(fmt.Sprintf("took over from %s: round %d, %s of this node", r.c.predecessor(), r.state.Round, counted(inherited, "worker")))
	r.post(resumed{})
	return nil
}

// restart sets the clocks again.
func (r *round) restart() {
	at := func(t time.Duration) <-chan time.Time {
		if t == 0 {
			return nil
		}
		return time.After(time.Until(r.began.Add(t)))
	}
	r.settle, r.expire, r.wake = at(r.timers.Settle), at(r.timers.Expire), at(r.timers.Wake)
	if r.timers.Kill != 0 && r.group != nil {
		r.stop(stop{Within: max(time.Until(r.began.Add(r.timers.Kill)), 0), Preempt: r.timers.Preempt})
	}
}

// inheritWorkers makes the group of this round's workers again, and returns how many they are. Those whose end the judgement
// knows are among them: something that they started may live.
func (r *round) inheritWorkers(old *pid1.Legacy) int {
	r.place = r.placeOf(*r.state.Start)
	tasks := r.plan.Tasks(*r.place, r.c)
	r.openPages(tasks, r.state.Round)
	for i := range tasks {
		if m := r.state.life(tasks[i].Rank); m != nil {
			tasks[i] = r.task(*m)
		}
	}
	r.group = worker.Resume(tasks, r.c.PreemptSignal, r.surroundings(r.heirs(tasks, old)))
	r.exits, r.slow = r.group.Exits(), nil
	r.mendAgain(tasks, old)
	r.watch = r.newWatch()
	r.record()
	r.renew()
	return len(tasks)
}

// mendAgain starts those again that the agent which died had not come to.
func (r *round) mendAgain(tasks []job.Task, old *pid1.Legacy) {
	for _, t := range tasks {
		if _, life := r.childOf(t, old); life < r.state.lifeOf(t.Rank) && !r.state.Stopping {
			r.mend(*r.state.life(t.Rank))
		}
	}
}

// heirs are the tasks' processes that an agent before this one started.
func (r *round) heirs(tasks []job.Task, old *pid1.Legacy) (heirs []worker.Heir) {
	if old == nil {
		return nil
	}
	for _, t := range tasks {
		c, life := r.childOf(t, old)
		heard := r.heard(t) || life < r.state.lifeOf(t.Rank)
		heirs = append(heirs, worker.Heir{Child: c.Child, Tag: c.Tag, Asked: c.Asked, Killed: c.Killed, Heard: heard})
	}
	return heirs
}

// childOf returns the process of a task of this round in its latest life, and which that is; one without a child if there is none.
func (r *round) childOf(t job.Task, old *pid1.Legacy) (found pid1.Inherited, life int) {
	life = r.state.Round
	for _, c := range old.Children {
		text, ours := strings.CutPrefix(c.Tag, fmt.Sprintf("%s/%d/", r.plan.Spec.ID, t.Rank))
		number, _, _ := strings.Cut(text, "/")
		if n, err := strconv.Atoi(number); ours && err == nil && n >= life {
			found, life = c, n
		}
	}
	return found, life
}

// heard reports whether the judgement knows of a worker's end.
func (r *round) heard(t job.Task) bool {
	return slices.ContainsFunc(r.state.Ranks, func(e job.Ended) bool { return e.Rank == t.Rank })
}

// abandon ends workers that an agent started and had not come to watch over.
func (r *round) abandon(old *pid1.Legacy) {
	var pids []int
	for _, c := range old.Children {
		if c.Tag != "" {
			pids = append(pids, c.PID)
		}
	}
	if len(pids) == 0 {
		return
	}
	if err := r.c.First.KillTree(context.Background(), pids...); err != nil {
		r.c.Log.Error(err.Error())
	}
	r.c.First.Forget(pids...)
}

// inheritStore is the workers' store of this round that an agent left which died; nil: there is none. That of the round before
// may be gone, or about to be.
func inheritStore(m moment, old *pid1.Legacy) *workerStore {
	if m.Store == 0 || m.State.Start == nil {
		return nil
	}
	return &workerStore{start: *m.State.Start, held: -1, child: childWith(old, m.Store)}
}

// inheritPMI takes over the process that serves PMI to workers that an agent before this one started.
func (r *round) inheritPMI(m moment, old *pid1.Legacy) {
	if m.PMI != 0 {
		r.pmi = newPMI(r.run, m.Served)
		r.pmi.child = childWith(old, m.PMI)
		if err := r.pmi.watch(); err != nil { // it is gone, as will be told
			r.c.Log.Debug(err.Error())
		}
		r.pmi.inherit(m.State.Ranks)
	}
}

// childWith is the process with this number that an agent before this one started; it may be gone.
func childWith(old *pid1.Legacy, pid int) *proc.Child {
	for _, c := range old.Children {
		if c.PID == pid {
			return c.Child
		}
	}
	return proc.Unseen()
}

// endStrays ends what is no worker and was not taken over: a store that was started and not yet noted, or is not needed any more,
// a program that was tried.
func (r *round) endStrays(old *pid1.Legacy) {
	if old == nil {
		return
	}
	for _, c := range old.Children {
		if c.Tag == "" && (r.store == nil || r.store.child != c.Child) && (r.pmi == nil || r.pmi.child != c.Child) {
			r.c.end(c.Child)
		}
	}
}
