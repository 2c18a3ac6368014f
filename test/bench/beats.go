package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/heartbeat"
	jobs "github.com/muster-run/muster/job"
)

// A beating is a world that trains: each agent tells the first one once a second how its workers stand, and that one judges once a second
// by what all told. The agents are as in a crowd, but that they know of their world from the start, and need no store.
type beating struct{ world }

const (
	perNode     = 8                // workers of an agent
	looks       = 20               // that are measured
	settled     = 5 * time.Second  // from the last arrival to the first of them: by then all have told something
	beatingTime = 10 * time.Minute // for all of it, on a machine that does other things
	stale       = 4 * time.Second  // a beat counts for so long, as in the launcher
	greeters    = 16               // agents of a process that call at once
)

// pulses are what the beats of a world take of its leader.
type pulses struct {
	CPU       time.Duration   // of each second, the kernel's part included
	Look      []time.Duration // from the begin of each look to the judge's answer
	Oldest    []time.Duration // from the oldest beat that it was given to then
	Heard     int             // the fewest ranks at a look
	Fresh     []int           // agents that had told something since the look before
	RSS       int64           // the most memory that was resident
	Connected time.Duration   // until all were
}

func (b *beating) play() error {
	ctx, cancel := context.WithTimeout(context.Background(), beatingTime)
	defer cancel()
	if b.Endpoint != "" {
		return b.follow(ctx)
	}
	return b.lead(ctx)
}

// of is the world itself.
func (b *beating) of() jobs.World {
	w := jobs.World{ID: "bench", Nonce: "nonce", Generation: 1, Terms: jobs.Terms{Nodes: b.Size}, Members: make([]jobs.Member, b.Size)}
	for i := range w.Members {
		w.Members[i] = jobs.Member{Node: b.node(i), First: perNode * i}
	}
	return w
}

func (b *beating) node(i int) jobs.Node {
	return jobs.Node{
		Name: fmt.Sprintf("node%04d.cluster", i), Index: i, Slots: perNode, Version: "v0.1.0", Incarnation: fmt.Sprintf("%032x", i), Addrs: []jobs.Addr{jobs.Addr(b.Endpoint)},
	}
}

// follow plays some members, until the leader has seen enough.
func (b *beating) follow(ctx context.Context) error {
	fmt.Println("ready")
	ends, turns := make(chan error, b.To-b.From), make(chan struct{}, greeters)
	for i := b.From; i < b.To; i++ {
		go func() {
			turns <- struct{}{}
			ends <- b.member(ctx, i)
			<-turns
		}()
	}
	for range b.To - b.From {
		if err := <-ends; err != nil {
			return err
		}
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// member connects one, which goes on until the process ends.
func (b *beating) member(ctx context.Context, i int) error {
	o, began := calling(), time.Now()
	o.Beat = func() json.RawMessage { return report(i, time.Since(began)) }
	seat := jobs.Seat{Job: "bench", Nonce: "nonce", Generation: 1, Rank: i, Incarnation: b.node(i).Incarnation, Leader: b.node(0)}
	line, err := fleet.Follow(ctx, seat, o)
	if err != nil {
		return err
	}
	return await(ctx, line, fleet.Joined, 1)
}

// calling is patient until all have called, who do not meet first.
func calling() fleet.Options {
	o := patient
	o.Arrival = beatingTime
	return o
}

// report is what a node says of workers that do ten steps a second.
func report(node int, since time.Duration) json.RawMessage {
	steps := uint64(since / (100 * time.Millisecond))
	beats := make([]jobs.Beat, perNode)
	for local := range beats {
		beats[local] = jobs.Beat{
			Rank: node*perNode + local, PID: 1_000_000 + node + local, Local: local, Sources: jobs.FromRecorder | jobs.FromHooks, Life: 1,
			Count: 201 * steps, Steps: steps, Limit: 10 * time.Minute, Lanes: []jobs.Lane{{
				Group: 0x9e3779b97f4a7c15, Name: "0", Entered: 100 * steps, Completed: 100*steps - min(1, steps), Op: "all_reduce", Bytes: 25 << 20, Members: 80_000,
			}},
		}
	}
	text, _ := json.Marshal(heartbeat.Report{Generation: 1, Round: 1, Ranks: heartbeat.Pack(beats)})
	return text
}

// lead plays the leader, and has the others played.
func (b *beating) lead(ctx context.Context) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	debug.SetGCPercent(50) // as the launcher does where it leads many
	b.Endpoint = ln.Addr().String()
	w, began := b.of(), time.Now()
	line := fleet.Lead(w, calling())
	go func() { // until the process ends
		for {
			if c, err := ln.Accept(); err == nil {
				line.Handle(c)
			}
		}
	}()
	var others []*members
	for from := 1; from < b.Size; from += mostHere {
		m, err := beginMembers("-beats", world{Size: b.Size, Endpoint: b.Endpoint, From: from, To: min(from+mostHere, b.Size)})
		if err != nil {
			return err
		}
		others = append(others, m)
	}
	if err := await(ctx, line, fleet.Joined, b.Size-1); err != nil {
		return err
	}
	p := pulses{Connected: time.Since(began), Heard: b.Size * perNode}
	time.Sleep(settled)
	err = p.judge(line, w)
	for _, m := range others {
		m.in.Close()
		err = errors.Join(err, m.cmd.Wait())
	}
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(p))
}

// judge looks once a second, as the launcher's watch does.
func (p *pulses) judge(line *fleet.Fleet, w jobs.World) error {
	judge, roll := heartbeat.New(heartbeat.Limits{}), heartbeat.NewRoll(w, 1, "v0.1.0")
	began, before := time.Now(), cpu()
	ticks := time.NewTicker(time.Second)
	last := time.Now()
	for range looks {
		now, fresh := <-ticks.C, 0
		roll.Begin(now.Sub(began))
		roll.Own(0, nil, []int{0, 1, 2, 3, 4, 5, 6, 7})
		oldest := now
		line.Beats(func(rank int, text json.RawMessage, at time.Time) {
			var r heartbeat.Report
			if now.Sub(at) <= stale && json.Unmarshal(text, &r) == nil {
				roll.Told(rank, r)
			}
			if at.After(last) {
				fresh++
			}
			if at.Before(oldest) {
				oldest = at
			}
		})
		last = now
		look := roll.Look()
		if found := judge.Observe(look); len(found) > 0 {
			return fmt.Errorf("a world that trains: %+v", found)
		}
		p.Look, p.Oldest = append(p.Look, time.Since(now)), append(p.Oldest, time.Since(oldest))
		p.Fresh = append(p.Fresh, fresh)
		p.Heard = min(p.Heard, len(look.Beats)+len(look.Ended))
	}
	p.CPU = time.Duration(float64(cpu()-before) / time.Since(began).Seconds()) // a busy machine may be late for a look
	status, err := os.ReadFile("/proc/self/status")
	p.RSS = field(string(status), "VmHWM:")
	return err
}

// pulseTable is what the beats of worlds of many agents cost, as a table.
func pulseTable() string {
	lines := [][]string{{"agents", "CPU time of the leader, each second", "a look at all beats, median", "longest", "oldest beat when it is judged, median", "longest", "ranks heard, at least", "peak RSS of the leader"}}
	for _, agents := range []int{1000, 4000, 10000} {
		if !roomFor(agents, 1) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%-10s %-16d\r", "beats", agents)
		var p pulses
		if err := playIt(&p, "-beats", agents); err != nil {
			fmt.Fprintf(os.Stderr, "no beats of %d agents: %v\n", agents, err)
			continue
		}
		slices.Sort(p.Look)
		slices.Sort(p.Oldest)
		line := []string{fmt.Sprint(agents), cell{time: p.CPU}.String()}
		for _, all := range [][]time.Duration{p.Look, p.Oldest} {
			line = append(line, cell{time: all[len(all)/2]}.String(), cell{time: all[len(all)-1]}.String())
		}
		lines = append(lines, append(line, fmt.Sprint(p.Heard), cell{bytes: p.RSS}.String()))
	}
	return aligned(lines)
}
