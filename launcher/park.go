package launcher

import (
	"errors"
	"fmt"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/muster-run/muster/discovery"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/report/events"
)

// This file is what follows success where a platform starts again whatever ends: the whole job would run again, for ever. So the agent stays, until
// it is told to end. All that the job had is given back by then: workers, ports, memory, what it kept on disk.

// planPark decides whether this agent stays. The platform starts the container again, so that what is not its main process goes on.
func planPark(c Config, found discovery.Finding, p *Plan) error {
	again := found.Park || c.Standalone && discovery.Detect(c.sized()).Park
	p.Park = c.Park == "yes" || c.Park != "no" && !c.Midway && again
	switch {
	case c.Park == "yes":
		p.set(c, "park", "after success", "--park")
	case again && c.Park == "no":
		p.set(c, "park", "no", "--park")
	case again && c.Midway:
		p.set(c, "park", "no", "not the main process")
	case again: // muster env may be asked from a shell beside it
		p.set(c, "park", "as the main process", found.Rule+" starts again what ends")
	}
	return nil
}

// park is that stay. It answers status and probes as before.
func (c Config) park(p Plan, last part, e report.Ending) {
	said := "parked after success: " + e.Verdict.Sentence
	until := "SIGTERM, or muster ctl stop: the platform would start the job again if this agent ended"
	c.lastWords(said)
	dir := ""
	err := runDir(c, p.Spec.ID, func(name string) {
		dir = name
		c.keepDir(name)
	})
	if err != nil {
		c.Log.Warn(fmt.Sprintf("no control socket while this agent is parked: %v", err))
	}
	defer removeRun(dir)
	desk := openDesk(c, p, dir, e.Began)
	defer desk.close()
	desk.outcome.is(e.Verdict)
	desk.show(standing{phase: report.Parked, since: e.Ended, waits: until, state: parked(e), world: e.World, spent: &e.Spent})
	debug.FreeOSMemory()
	defer c.stays(p, last, e.Verdict, desk)()
	c.note(events.Line{Level: events.Info, Event: events.Parked, Message: said})
	c.aloud().Info(said + "; this agent stays until " + until + " (--park no: it ends)")
	c.unpark(desk)
}

// parked is where a job stood that ended well, as far as this node knows.
func parked(e report.Ending) *state {
	s := &state{Verdict: &e.Verdict, Self: max(e.Node, 0), Ranks: e.Ranks, Ended: true}
	for _, name := range e.Nodes {
		s.Nodes = append(s.Nodes, &node{Name: name, Done: true, Clear: true})
	}
	return s
}

// unpark waits until somebody asks this agent to end.
func (c Config) unpark(d *desk) {
	turns := time.NewTicker(time.Second)
	defer turns.Stop()
	for {
		d.moves(loopTime)
		select {
		case <-turns.C:
		case <-c.First.Lost():
			return
		case o := <-d.orders:
			if o.what == orderStop {
				o.answer <- answer{text: "this agent ends; the job ended well before"}
				return
			}
			o.answer <- answer{err: errors.New("the job is over, and this agent is parked")}
		case got := <-c.First.Signals():
			sig := got.(syscall.Signal) // as all of os/signal's are
			if stops(sig) {
				c.tellAsked(signalled{sig})
				c.aloud().Info(fmt.Sprintf("told to end by %s, after the job", job.SignalName(sig)))
				return
			}
			dumpIfAsked(c, sig)
		}
	}
}
