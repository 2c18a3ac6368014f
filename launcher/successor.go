package launcher

import (
	"context"
	"fmt"
	"time"
)

// A successor hosts the store in the place of another agent of its machine, as soon as that is gone. A world goes on without a store, but whoever
// comes late looks for one where that was. The zero value does nothing.
type successor struct {
	stop  context.CancelFunc
	ended chan struct{}
}

// vacancyTime is between two looks whether the port of the store is free.
const vacancyTime = time.Second

// succeed makes this node a successor while its world lives. Where no other world follows, nobody who comes late could take part.
func (m *meeting) succeed() {
	if m.hosting || !m.plan.Serve && !m.plan.MayServe || m.port == "" || !m.again() {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	m.heir = successor{stop, ended}
	go func() {
		defer close(ended)
		if m.plan.Serve || isMe(ctx, hostOf(m.port), m.c.Host.Hostname) {
			m.awaitVacancy(ctx)
		}
	}()
}

// end ends the wait. A store that is hosted by then stays.
func (s *successor) end() {
	if s.stop != nil {
		s.stop()
		<-s.ended
	}
	*s = successor{}
}

// awaitVacancy hosts the store when nobody does any more. It begins with this world, lest those who come late make one of their own.
func (m *meeting) awaitVacancy(ctx context.Context) {
	ticks := time.NewTicker(vacancyTime)
	defer ticks.Stop()
	for {
		if at, err := m.take(ctx); err == nil {
			m.hostFor(at)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// hostFor serves the store to those who come late.
func (m *meeting) hostFor(at stand) {
	kept, err := m.session.Kept()
	if err != nil {
		m.c.Log.Debug(err.Error()) // group rank 0 makes the world known
	}
	m.serveStore(at, kept, func() {})
	m.hosting = true
	m.c.Log.Info(fmt.Sprintf("the agent of this machine that hosted the meeting point at %s is gone; this one hosts it now, for nodes that come late", m.port))
}
