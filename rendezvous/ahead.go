package rendezvous

import "context"

// ahead is how many tickets are read at once.
const ahead = 128

// readAhead takes the tickets behind the last one that are written already. One by one, a thousand nodes that come together would
// cost the leader a thousand turns of a store that is busy with all of them.
func (l *leader) readAhead(ctx context.Context) error {
	drawn, err := l.meeting.add(ctx, keyTickets, 0)
	if err != nil {
		return err
	}
	l.knows(int(drawn))
	for count := min(int(drawn)-l.reached, ahead); count > 1; count /= 2 {
		keys := l.following(count)
		there, err := l.meeting.Check(ctx, keys...)
		if err != nil {
			return name(err, "look for", keyTicket)
		}
		if there {
			return l.takeAll(ctx, keys)
		}
	}
	return nil
}

// following are the keys of the next tickets.
func (l *leader) following(count int) []string {
	keys := make([]string, count)
	for i := range keys {
		keys[i] = l.meeting.prefix + numbered(keyTicket, l.reached+1+i)
	}
	return keys
}

// takeAll takes tickets that are there.
func (l *leader) takeAll(ctx context.Context, keys []string) error {
	values, err := l.soon(ctx, keyTicket, keys)
	for _, b := range values {
		l.take(b)
	}
	return err
}

// soon reads keys that are there. It gives up after a beat: then the store has lost keys, which we notice by our own presence.
func (l *leader) soon(ctx context.Context, what string, keys []string) ([][]byte, error) {
	slice, cancel := context.WithTimeout(ctx, beat)
	defer cancel()
	values, err := l.meeting.MultiGet(slice, keys...)
	if err != nil && slice.Err() != nil && ctx.Err() == nil {
		return nil, nil
	}
	return values, name(err, "read", what)
}
