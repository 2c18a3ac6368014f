package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/heartbeat"
	jobs "github.com/muster-run/muster/job"
)

// A beating is a world that trains, and then stands still: each agent tells the first one once a second how its workers stand, and that
// one judges once a second by what all told. The leader has a process of its own, and so have all members together.
type beating struct {
	Size, Slots int
	Endpoint    string // "": this process has the leader
}

// Set takes the number of agents, or that of agents and that of workers of each: 10000x8.
func (b *beating) Set(text string) (err error) {
	if strings.HasPrefix(text, "{") {
		return json.Unmarshal([]byte(text), b)
	}
	size, slots, of := strings.Cut(text, "x")
	if b.Slots = 8; of {
		b.Slots, err = strconv.Atoi(slots)
	}
	if err == nil {
		b.Size, err = strconv.Atoi(size)
	}
	return err
}

func (b *beating) String() string {
	text, _ := json.Marshal(b) // cannot fail: it is numbers and an address
	return string(text)
}

const (
	jobID, nonce = "bench", "nonce"

	looks       = 20               // while it trains,
	stillLooks  = 60               // and at most while it stands still
	settled     = 5 * time.Second  // from the last arrival to the first of them: by then all have told something
	beatingTime = 10 * time.Minute // for all to come, on a machine that does other things
	stale       = 4 * time.Second  // a beat counts for so long, as in the launcher
	floor       = 10 * time.Second // no world hangs sooner
)

// pulses are what the beats of a world take of its leader.
type pulses struct {
	Connected     time.Duration // until all members were
	Trains, Still looked
	Named         time.Duration // from the standstill to the culprit's name
	Members       herded
}

// looked is some looks, one a second.
type looked struct {
	CPU        time.Duration   // of the leader each second, the kernel's part included
	Took       []time.Duration // from the begin of each look to the judge's answer
	Ranks      int             // the fewest that were heard of at a look
	Agents     int             // the fewest that had told something since the look before
	RSS        int64           // the most memory that was resident until then
	Suspicions int64           // of members that were silent for seconds, until then
	Load       string
	found      []heartbeat.Finding
}

func (b *beating) play() error {
	if b.Endpoint != "" {
		return b.follow()
	}
	ctx, cancel := context.WithTimeout(context.Background(), beatingTime)
	defer cancel()
	return b.lead(ctx)
}

// of is the world itself.
func (b *beating) of() jobs.World {
	w := jobs.World{ID: jobID, Nonce: nonce, Generation: 1, Terms: jobs.Terms{Nodes: b.Size}, Members: make([]jobs.Member, b.Size)}
	for i := range w.Members {
		w.Members[i] = jobs.Member{Node: b.node(i), First: b.Slots * i}
	}
	return w
}

func (b *beating) node(i int) jobs.Node {
	return jobs.Node{
		Name: fmt.Sprintf("node%04d.cluster", i), Index: i, Slots: b.Slots, Version: "v0.1.0", Incarnation: fmt.Sprintf("%032x", i), Addrs: []jobs.Addr{jobs.Addr(b.Endpoint)},
	}
}

// lead plays the leader, and has the others played.
func (b *beating) lead(ctx context.Context) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if b.Size > 1000 {
		debug.SetGCPercent(15) // as the launcher does
	}
	b.Endpoint = ln.Addr().String()
	l, began := b.leader(ln), time.Now()
	others, err := beginMembers("-beats", b)
	if err != nil {
		return err
	}
	var p pulses
	if err := await(ctx, l.line, fleet.Joined, b.Size-1); err != nil {
		return err
	}
	p.Connected = time.Since(began)
	go l.listen()
	time.Sleep(settled)
	err = l.play(&p, others)
	others.in.Close()
	err = errors.Join(err, json.NewDecoder(others.out).Decode(&p.Members), others.cmd.Wait())
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(p))
}

// A leader judges by what its members told, as the launcher's watch does.
type leader struct {
	*beating
	line       *fleet.Fleet
	judge      *heartbeat.Judge
	roll       *heartbeat.Roll
	began      time.Time
	suspicions atomic.Int64
	lost       atomic.Pointer[fleet.Event]
}

func (b *beating) leader(ln net.Listener) *leader {
	w := b.of()
	o := fleet.Options{Arrival: beatingTime, NodeTimeout: time.Minute} // the machine may do other things: who is silent for seconds is counted
	o.Beat = func() json.RawMessage { return json.RawMessage(`{"memory":1000000000,"limit":2000000000}`) }
	l := &leader{
		beating: b, line: fleet.Lead(w, o), judge: heartbeat.New(heartbeat.Limits{Floor: floor}),
		roll: heartbeat.NewRoll(w, 1, "v0.1.0"), began: time.Now(),
	}
	go func() { // until the process ends
		for {
			if c, err := ln.Accept(); err == nil {
				l.line.Handle(c)
			}
		}
	}()
	return l
}

// listen takes note of members that are late, or lost.
func (l *leader) listen() {
	for e := range l.line.Events() {
		switch e.Change {
		case fleet.Suspect:
			l.suspicions.Add(1)
		case fleet.Lost:
			l.lost.CompareAndSwap(nil, &e)
		}
	}
}

// play looks at a world that trains, and at one that stands still until the culprit is named.
func (l *leader) play(p *pulses, others *members) error {
	never := func(heartbeat.Finding) bool { return false }
	if err := l.look(&p.Trains, looks, never); err != nil {
		return err
	}
	if found := p.Trains.found; len(found) > 0 {
		return fmt.Errorf("the world trains, and this was found: %+v", found)
	}
	if _, err := others.in.Write([]byte("stand still\n")); err != nil {
		return err
	}
	began := time.Now()
	err := l.look(&p.Still, stillLooks, func(f heartbeat.Finding) bool { return f.Stage == heartbeat.Hung })
	p.Named = time.Since(began)
	if err == nil && !l.named(p.Still.found) {
		err = fmt.Errorf("rank %d does not advance, and this was found: %+v", culprit, p.Still.found)
	}
	return err
}

// named reports whether what was found last is who is to blame.
func (l *leader) named(found []heartbeat.Finding) bool {
	if len(found) == 0 {
		return false
	}
	f := found[len(found)-1]
	return f.Stage == heartbeat.Hung && len(f.Culprits) == 1 && f.Culprits[0].Rank == culprit
}

// look looks once a second, so often, or until something is found.
func (l *leader) look(p *looked, times int, enough func(heartbeat.Finding) bool) error {
	began, before := time.Now(), cpu()
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	p.Ranks, p.Agents = l.Size*l.Slots, l.Size
	for last := time.Now(); times > 0 && !slices.ContainsFunc(p.found, enough); times-- {
		now := <-ticks.C
		fresh, seen := l.gather(now, last)
		last = now
		p.found = append(p.found, l.judge.Observe(seen)...)
		l.judge.Clashes()
		p.Took = append(p.Took, time.Since(now))
		p.Agents, p.Ranks = min(p.Agents, fresh), min(p.Ranks, len(seen.Beats)+len(seen.Ended))
		if e := l.lost.Load(); e != nil {
			return fmt.Errorf("node %d is lost: %w", e.Peer, e.Why)
		}
	}
	p.CPU = time.Duration(float64(cpu()-before) / time.Since(began).Seconds()) // a busy machine may be late for a look
	p.Suspicions, p.Load = l.suspicions.Load(), load()
	status, err := os.ReadFile("/proc/self/status")
	p.RSS = field(string(status), "VmHWM:")
	return err
}

// gather is all that was told, and by how many since the last time.
func (l *leader) gather(now, last time.Time) (fresh int, look heartbeat.Look) {
	l.roll.Begin(now.Sub(l.began))
	own := make([]int, l.Slots)
	for i := range own {
		own[i] = i
	}
	l.roll.Own(0, nil, own)
	l.line.Beats(func(rank int, text json.RawMessage, at time.Time) {
		if report, ok := l.roll.Read(text); ok && now.Sub(at) <= stale {
			l.roll.Told(rank, report)
		}
		if at.After(last) {
			fresh++
		}
	})
	return fresh, l.roll.Look()
}

// beaten are the worlds whose beats are played.
var beaten = []beating{{Size: 1000, Slots: 8}, {Size: 4000, Slots: 8}, {Size: 10_000, Slots: 1}, {Size: 10_000, Slots: 8}}

// pulseTable is what the beats of worlds of many agents cost, as a table: while they train, and while they stand still.
func pulseTable() string {
	lines := [][]string{{
		"agents × workers", "all are connected", "", "CPU time of the leader, each second", "a look at all beats, median", "longest", "agents heard each second, at least", "peak RSS of the leader",
		"CPU time of all members, each second", "load average",
	}}
	for _, b := range beaten {
		if !roomFor(b.Size, 1) {
			continue
		}
		name := fmt.Sprintf("%dx%d", b.Size, b.Slots)
		fmt.Fprintf(os.Stderr, "%-10s %-16s\r", "beats", name)
		var p pulses
		if err := playIt(&p, "-beats", name); err != nil {
			fmt.Fprintf(os.Stderr, "no beats of %s agents: %v\n", name, err)
			continue
		}
		trains, stands := p.Trains.row(), p.Still.row()
		lines = append(lines,
			slices.Concat([]string{strings.Replace(name, "x", " × ", 1), cell{time: p.Connected}.String(), "train"}, trains, []string{cell{time: p.Members.CPU}.String(), p.Trains.Load}),
			slices.Concat([]string{"", "", fmt.Sprintf("stand still; named after %.0f s", p.Named.Seconds())}, stands, []string{"", p.Still.Load}),
		)
	}
	return aligned(lines)
}

func (p *looked) row() []string {
	slices.Sort(p.Took)
	median, longest := p.Took[len(p.Took)/2], p.Took[len(p.Took)-1]
	return []string{cell{time: p.CPU}.String(), cell{time: median}.String(), cell{time: longest}.String(), fmt.Sprint(p.Agents), cell{bytes: p.RSS}.String()}
}
