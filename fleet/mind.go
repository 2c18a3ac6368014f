package fleet

import (
	"fmt"
	"time"
)

const (
	look  = 50 * time.Millisecond // between two looks at the peers
	pulse = time.Second           // between two pings, at most
	nap   = time.Second           // a look that comes so late finds us, not the others, to have been away
)

// mind watches over the peers until the fleet stops.
func (f *Fleet) mind() {
	ticks := time.NewTicker(look)
	defer ticks.Stop()
	pulses := time.NewTicker(min(pulse, f.Suspect/3))
	defer pulses.Stop()
	last := time.Now()
	for {
		select {
		case <-ticks.C:
		case <-f.nudge:
		case <-pulses.C:
			f.ping()
		case <-f.ctx.Done():
			return
		}
		now := time.Now()
		for _, p := range f.peers {
			if now.Sub(last) > nap {
				p.forgive(now)
			}
			p.mind(now)
		}
		last = time.Now()
	}
}

// ping sends a sign of life to all.
func (f *Fleet) ping() {
	for _, p := range f.peers {
		p.mu.Lock()
		if p.line != nil {
			p.line.ping = true
			p.line.poke()
		}
		p.mu.Unlock()
	}
}

// forgive starts a peer's times anew after we were stopped ourselves.
func (p *peer) forgive(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = now
	if p.line == nil && p.joined {
		p.broken = now
	}
}

// mind judges one peer and tells of what it finds: that it is suspect, back or lost is told nowhere else.
func (p *peer) mind(now time.Time) {
	p.mu.Lock()
	e, tell := p.judge(now)
	p.mu.Unlock()
	if tell {
		p.fleet.emit(e)
	}
}

func (p *peer) judge(now time.Time) (Event, bool) {
	if p.lost == nil && !p.left {
		p.verdict(now)
	}
	e := Event{Peer: p.rank, Received: now, RTT: p.rtt()}
	switch quiet := p.quiet(now); {
	case p.lost != nil:
		e.Change, e.Why = Lost, p.lost
		tell := !p.told && !p.left && p.allRead()
		p.told = p.told || tell
		return e, tell
	case p.left:
	case !p.suspected && quiet >= p.fleet.Suspect:
		p.suspected = true
		e.Change, e.Why = Suspect, fmt.Errorf("nothing heard for %v", quiet.Round(100*time.Millisecond))
		poke(p.needs)
		return e, true
	case p.suspected && quiet < p.fleet.Suspect && p.line != nil:
		p.suspected = false
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
	case p.line != nil:
		if quiet := p.quiet(now); quiet >= o.NodeTimeout {
			p.lose(fmt.Errorf("silent for %v", quiet.Round(100*time.Millisecond)))
		}
	case !p.joined && gone >= o.Arrival:
		p.lose(fmt.Errorf("it did not join within %v", o.Arrival))
	case p.joined && gone >= o.Redial:
		p.lose(fmt.Errorf("%w, and was not back within %v", ended(p.cause), o.Redial))
	}
}

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
