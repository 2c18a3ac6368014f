package fleet

import "sync"

// What may wait for a launcher that does not read. Beyond it the connections are read no further, so in the end it is
// the tellers' queues that fill; the signs of life go on all the same.
const (
	maxUnread      = 1024     // messages of one peer
	maxUnreadBytes = 64 << 20 // of messages of all
	maxReady       = 256      // events that lie ready for it: it may look whether there are more
)

// An inbox keeps events until the launcher takes them, so that who watches over the peers never waits for it.
type inbox struct {
	mu     sync.Mutex
	change sync.Cond
	events []Event
	unread map[int]int // messages, by peer
	bytes  int         // of messages
	closed bool
}

func newInbox() *inbox {
	b := &inbox{unread: map[int]int{}}
	b.change.L = &b.mu
	return b
}

// put adds what a peer's reader has, and waits while there is too much of it.
func (b *inbox) put(e Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.closed && (b.unread[e.Peer] >= maxUnread || b.bytes >= maxUnreadBytes) {
		b.change.Wait()
	}
	b.count(e, 1)
	b.add(e)
}

// note adds what was noticed of a peer, without waiting. Of suspicions that came and went nobody needs to hear, so
// there are never more than a few for each peer.
func (b *inbox) note(e Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, old := range b.events {
		if old.Peer == e.Peer && (old.Change == Suspect && e.Change == Back || old.Change == Back && e.Change == Suspect) {
			b.events = append(b.events[:i], b.events[i+1:]...)
			return
		}
	}
	b.add(e)
}

func (b *inbox) add(e Event) {
	b.events = append(b.events, e)
	b.change.Broadcast()
}

func (b *inbox) count(e Event, by int) {
	if e.Change != Heard {
		return
	}
	b.bytes += by * (len(e.Message.Kind) + len(e.Message.Body))
	if b.unread[e.Peer] += by; b.unread[e.Peer] == 0 {
		delete(b.unread, e.Peer)
	}
}

// take removes the oldest event; false: there will be none.
func (b *inbox) take() (Event, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.events) == 0 && !b.closed {
		b.change.Wait()
	}
	if b.closed {
		return Event{}, false
	}
	e := b.events[0]
	b.events[0] = Event{}
	b.events = b.events[1:]
	b.count(e, -1)
	b.change.Broadcast()
	return e, true
}

func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.change.Broadcast()
}

// deliver hands events to the launcher, at its pace.
func (f *Fleet) deliver() {
	for {
		e, ok := f.inbox.take()
		if !ok {
			return
		}
		select {
		case f.events <- e:
		case <-f.closing:
			return
		}
	}
}
