package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/muster-run/muster/job"
)

// This file is the end of an agent whose place another one took while nodes met, where it hosts the store. If another agent of its machine is there, it
// goes at once, and that one hosts the store. If not, nobody else could: it is in no meeting and no world any more, and serves the store to those who are.

// idleTicks is for how many looks, a second apart, nobody may use a store that is served to others alone. Who lost a connection comes again soon; while
// a world lives, so does its leader. A busy machine may take a while.
const idleTicks = 15

// othersHere reports whether other agents of this machine are connected to the store that this one hosts.
func (m *meeting) othersHere() bool {
	mine, here := interfaceIPs(), 0
	for peer, connections := range m.server.Peers() {
		if peer.IsLoopback() || slices.ContainsFunc(mine, net.IP(peer.AsSlice()).Equal) {
			here += connections
		}
	}
	return here > 1 // one is our own
}

// serveOn serves the store until nobody uses it any more. It fails with the reason for which this node only does that.
func (m *meeting) serveOn(ctx context.Context, why error) error {
	if m.c.First != nil {
		m.c.keep(keptEnd, why.Error()) // lest whoever takes over from us takes the place again
	}
	m.c.Log.Error(why.Error() + "; this node takes no place, and serves the meeting point to the others until they do not need it any more")
	m.desk.meets("without a place; serving the meeting point to the others")
	m.door.shut()
	m.store.Close()
	m.untilUnused(ctx)
	if asked := new(Error); errors.As(context.Cause(ctx), &asked) {
		return fail(job.ExitRefused, "", "%w; %w", why, asked)
	}
	return why
}

// untilUnused waits until those who use the store that this node hosts have gone, or have not met in the time for that.
func (m *meeting) untilUnused(ctx context.Context) {
	_, within := m.tooLate(0)
	late := time.After(within)
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for idle := 0; m.hosting && idle < idleTicks; {
		m.desk.moves(loopTime)
		select {
		case <-ctx.Done():
			return
		case <-late:
			return
		case <-m.decided: // they may need it again
			late = nil
		case <-ticks.C:
			if idle++; m.server.Clients() > 0 {
				idle = 0
			}
		}
	}
}

// inheritedEnd is why the agent before this one only served the store; nil: there was none, or it did more.
func (m *meeting) inheritedEnd() error {
	if m.c.First == nil || m.c.First.Legacy() == nil {
		return nil
	}
	var why string
	if json.Unmarshal(m.c.First.Legacy().Blobs[keptEnd], &why) != nil {
		return nil
	}
	return fail(job.ExitRefused, "", "%s", why)
}
