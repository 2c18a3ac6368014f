package launcher

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous"
	"github.com/muster-run/muster/rendezvous/tcpstore"
)

// This file is what an agent that is parked tells nodes of its job that are made again beside it: they come to where all met, and hear there that the job
// has ended well. The node that hosted the meeting does so again. All of it is as well as it goes: who hears nothing gives up, and comes again.

// How often that is said: in a large world each agent says it less often.
const (
	staysEach = 2 * time.Second
	staysNode = 10 * time.Millisecond // more, for each node
)

// A part is what this agent had in the last world of its job.
type part struct {
	session *rendezvous.Session // nil: none
	hosted  bool                // the store where the nodes met
}

// stays tells it until end.
func (c Config) stays(p Plan, last part, v job.Verdict, d *desk) (end func()) {
	if last.session == nil || p.Endpoint == "" || p.Etcd != nil {
		return func() {}
	}
	c.First = nil // it keeps nothing of this: another agent says it anew
	m := &meeting{c: c, desk: d, plan: p, spec: p.Spec, port: p.Endpoint}
	m.door.shut()
	ctx, cancel := context.WithCancel(context.Background())
	m.servers.Go(func() {
		for each := staysEach + time.Duration(len(last.session.World.Members))*staysNode; ctx.Err() == nil; {
			if (p.Serve || last.hosted) && !m.hosting {
				m.hostAgain(ctx)
			}
			m.sayStays(ctx, last.session, v)
			select {
			case <-ctx.Done():
			case <-time.After(each):
			}
		}
	})
	return func() {
		cancel()
		m.servers.Wait()
	}
}

// hostAgain serves a store at the endpoint, until ctx ends, if its port is to be had.
func (m *meeting) hostAgain(ctx context.Context) {
	at, err := m.take(ctx)
	if err != nil {
		m.c.Log.Debug(fmt.Sprintf("nodes that are made again do not hear here that the job is over: %v", err))
		return
	}
	server := &tcpstore.Server{Log: m.c.Log, Magic: fleet.Magic, Foreign: m.door.handle, Name: m.spec.ID, Elsewhere: m.elsewhere}
	m.hosting = true
	if at.claim != nil {
		m.servers.Go(func() { m.adopt(at.claim, server) })
	}
	m.servers.Go(func() {
		ln := at.ln
		if ln == nil {
			ln = m.awaitPort(ctx)
		}
		if ln != nil {
			_ = server.Serve(ln) // until it is closed
			ln.Close()
		}
	})
	context.AfterFunc(ctx, func() {
		stand{claim: at.claim}.close()
		_ = server.Close()
	})
}

// sayStays says it once, in whatever store of this job is at the endpoint.
func (m *meeting) sayStays(ctx context.Context, last *rendezvous.Session, v job.Verdict) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	at := string(m.port)
	if m.hosting {
		at = m.hereabouts()
	}
	o := m.reaching(func(tcpstore.Attempt) { cancel() }) // it is tried again soon enough
	client, err := tcpstore.Dial(ctx, at, o)
	if err == nil {
		err = last.Stay(ctx, client, v)
		client.Close()
	}
	if err != nil {
		m.c.Log.Debug(err.Error())
	}
}
