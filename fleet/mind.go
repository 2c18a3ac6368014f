package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

const (
	look  = 50 * time.Millisecond  // between two looks at the peers, while anything is amiss with one,
	calm  = 250 * time.Millisecond // and else, at most
	pulse = time.Second            // between two pings, at most
	timed = 10 * pulse             // between two times that a leader measures the round trip to a peer
	nap   = time.Second            // a look that comes so late finds us, not the others, to have been away

	firstRemind = 2 * time.Second  // until those who have not called are named,
	lastRemind  = 30 * time.Second // and at most between two times
	maxNamed    = 8                // of them
)

// mind watches over the peers until the fleet stops.
func (f *Fleet) mind() {
	ticks := time.NewTimer(look)
	defer ticks.Stop()
	pulses := time.NewTicker(f.pulse())
	defer pulses.Stop()
	sums := time.NewTicker(gripePause)
	defer sums.Stop()
	last := time.Now()
	for {
		select {
		case <-ticks.C:
		case <-f.nudge:
		case <-pulses.C:
			f.ping(time.Now())
			f.await(time.Now())
		case <-sums.C:
			f.sumUp()
		case <-f.ctx.Done():
			return
		}
		now := time.Now()
		if gap := now.Sub(last); gap > nap {
			f.forgive(now, gap)
		}
		next := min(calm, f.Redial, f.Suspect/6)
		for _, p := range f.peers {
			if p.mind(now) {
				next = min(next, look)
			}
		}
		ticks.Reset(next)
		last = time.Now()
	}
}

// pulse is the time between two signs of life.
func (f *Fleet) pulse() time.Duration { return min(pulse, f.Suspect/3) }

// await names the members that have not called, now and then: the world waits for them.
func (f *Fleet) await(now time.Time) {
	if now.Before(f.remind) {
		return
	}
	var late []string
	for rank := 1; rank < len(f.members); rank++ {
		if p := f.peers[rank]; p != nil && p.awaited() {
			late = append(late, p.String())
		}
	}
	waited := now.Sub(f.started)
	f.remind = now.Add(min(waited, lastRemind))
	if len(late) == 0 {
		return
	}
	text := strings.Join(late[:min(len(late), maxNamed)], ", ")
	if more := len(late) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	f.Log.Warn(fmt.Sprintf("fleet: waiting for members to call, %d s: %s", int(waited.Seconds()), text))
}

// awaited reports whether the peer has still to call for the first time.
func (p *peer) awaited() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.joined && p.lost == nil
}

// ping sends a sign of life to all.
func (f *Fleet) ping(now time.Time) {
	var beat json.RawMessage
	if f.Beat != nil {
		beat = f.Beat()
	}
	for _, p := range f.peers {
		p.mu.Lock()
		if p.line != nil {
			p.ping(now, beat)
		}
		p.mu.Unlock()
	}
}

// ping sends a sign of life to a peer that is connected. A leader's goes with the answer to the member's own, unless that is late: it
// hears thousands each second, and need not call each of them besides.
func (p *peer) ping(now time.Time, beat json.RawMessage) {
	pulse := p.fleet.pulse()
	late := now.Sub(p.heard) >= pulse+pulse/4
	p.line.beat = beat
	if p.rank == 0 || late || now.Sub(p.trip) >= timed {
		p.line.ping = true
	}
	if p.rank == 0 || late {
		p.speak()
	}
}

// grace is what peers have at least when we stood still ourselves, for what they told waits to be read; and at most, for who is cut off
// may go on for the node time-out and not much longer.
const grace = 2 * time.Second

// forgive leaves it out of everybody's account that we stood still ourselves.
func (f *Fleet) forgive(now time.Time, gap time.Duration) {
	f.woke, f.away = now, gap
	least := now.Add(min(0, grace-f.NodeTimeout))
	for _, p := range f.peers {
		p.mu.Lock()
		p.heard = later(p.heard, least)
		if p.joined {
			p.broken = later(p.broken, least)
			p.hoped = now.Sub(p.broken)
		} else {
			p.broken = p.broken.Add(gap)
		}
		p.mu.Unlock()
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// mindful adds to the reason for a loss that we stood still ourselves just before: the others may have thought the
// same of us.
func (f *Fleet) mindful(why error, now time.Time) error {
	if f.away == 0 || now.Sub(f.woke) > f.NodeTimeout {
		return why
	}
	return fmt.Errorf("%w; but this agent itself stood still for %v before that: look at this node first", why, f.away.Round(time.Second))
}

// mind judges one peer and tells of what it finds: that it is suspect, back or lost is told nowhere else. It reports whether
// anything is amiss with it.
func (p *peer) mind(now time.Time) bool {
	p.mu.Lock()
	e, tell := p.judge(now)
	amiss := !p.left && !p.told && (p.line == nil || p.suspected || p.lost != nil)
	p.mu.Unlock()
	if tell {
		p.fleet.inbox.note(e)
	}
	return amiss
}

func (p *peer) judge(now time.Time) (Event, bool) {
	if p.lost == nil && !p.left {
		p.verdict(now)
	}
	e := Event{Peer: p.rank, Received: now, Last: p.heard}
	switch quiet := p.quiet(now); {
	case p.lost != nil:
		e.Change, e.Why, e.Beat, e.Certain, e.GaveUp = Lost, p.fleet.mindful(p.lost, now), bytes.Clone(p.beat), p.certain, p.gaveUp
		tell := !p.told && !p.left && p.allRead()
		p.told = p.told || tell
		return e, tell
	case p.left:
	case !p.suspected && quiet >= p.fleet.Suspect && now.Sub(p.fleet.woke) >= min(grace, p.fleet.Suspect):
		p.suspected = true
		e.Change, e.Why = Suspect, fmt.Errorf("nothing heard for %v", quiet.Round(100*time.Millisecond))
		poke(p.needs)
		return e, true
	case !p.suspected && p.line == nil && p.came() && now.Sub(p.heard) >= p.fleet.Suspect: // somebody holds its port, and does not answer
		p.suspected = true
		e.Change, e.Why = Suspect, fmt.Errorf("nothing heard for %v: %w", now.Sub(p.heard).Round(100*time.Millisecond), ended(p.cause))
		return e, true
	case !p.kept && p.joined && now.Sub(p.heard) >= p.fleet.NodeTimeout && p.fleet.together(now):
		p.suspected, p.kept = true, true
		e.Change, e.Why = Suspect, fmt.Errorf("nothing heard for %v, but its workers still take part in collectives: it is waited for", now.Sub(p.heard).Round(100*time.Millisecond))
		return e, true
	case p.suspected && quiet < p.fleet.Suspect && p.line != nil:
		p.suspected, p.kept = false, false
		e.Change = Back
		return e, true
	}
	return e, false
}

// quiet is how long a connected peer has not been heard, while we listened.
func (p *peer) quiet(now time.Time) time.Duration {
	if p.line == nil || p.busy {
		return 0
	}
	return now.Sub(p.heard)
}

// verdict decides whether a peer is lost.
func (p *peer) verdict(now time.Time) {
	o := p.fleet.Options
	gone := now.Sub(p.broken)
	switch {
	case p.line != nil && p.quiet(now) < o.NodeTimeout:
	case p.joined && (p.line != nil || !p.closed) && p.fleet.together(now):
	case p.line != nil:
		p.lose(fmt.Errorf("silent for %v (stopped, or cut off?)", p.quiet(now).Round(100*time.Millisecond)))
	case !p.came() && gone >= o.Arrival && p.cause != nil:
		p.lose(fmt.Errorf("it was not reached within %v: %w", o.Arrival, ended(p.cause)))
	case !p.came() && gone >= o.Arrival:
		p.lose(fmt.Errorf("it did not join within %v", o.Arrival))
	case p.came() && (p.knocking == 0 && gone-p.hoped >= o.Redial || gone >= o.NodeTimeout):
		p.certain = p.closed
		p.lose(fmt.Errorf("%w, and was not back within %v", ended(p.cause), o.Redial))
	}
}

// together reports whether all nodes took part in the world's work so short a time ago that none is given up.
func (f *Fleet) together(now time.Time) bool {
	return f.Together != nil && now.Sub(f.Together()) < f.NodeTimeout
}

// came reports whether the peer has been there. A member that hung up before it said a word has not: on a busy machine the opening took it
// too long, and it calls again.
func (p *peer) came() bool { return p.joined && (p.spoke || p.rank == 0) }

// allRead reports whether everything that came before the loss was handed on.
func (p *peer) allRead() bool {
	if p.ended == nil {
		return true
	}
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}
