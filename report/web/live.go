package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	beatEach  = time.Second            // steps, and what else changes all the time, is looked at
	leastGap  = 100 * time.Millisecond // between two looks, however much happens
	gapFactor = 20                     // and so many times as long as the last one took,
	mostGap   = 5 * time.Second        // but no longer: on a machine that has much else to do a look takes its time
	pingEach  = 15 * time.Second       // a word to readers who would hear nothing for so long
	maxBehind = 8                      // changes that a reader may not have taken; more, and it begins anew
)

// A hub sends those who read the same page what changes of it. It looks only while somebody reads.
type hub struct {
	s       *Server
	who     reader
	looking sync.Mutex // one at a time

	mu      sync.Mutex
	readers map[*stream]bool
	shown   []fragment
	number  int // of what is shown
	ended   bool
	stop    context.CancelFunc // nil: nobody reads
}

// A stream is one reader.
type stream struct{ events chan []byte }

func newHub(s *Server, who reader) *hub {
	// A browser that was told something by an agent before this one has not seen what has that number here.
	return &hub{s: s, who: who, readers: map[*stream]bool{}, number: int(time.Now().UnixMicro())}
}

// version numbers the page as it was at the last look. A page that is made after that may only be newer.
func (h *hub) version() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.number
}

// join adds a reader who has seen a version of the page; nil: there are too many, or it is over.
func (h *hub) join(seen int) *stream {
	h.look()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended || len(h.readers) >= maxStreams {
		return nil
	}
	st := &stream{events: make(chan []byte, maxBehind)}
	if seen != h.number {
		st.events <- event(h.number, h.shown)
	}
	h.readers[st] = true
	if h.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		h.stop = stop
		h.s.served.Go(func() { h.run(ctx) })
	}
	return st
}

func (h *hub) leave(st *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(st)
}

// drop is leave for who has the lock.
func (h *hub) drop(st *stream) {
	if h.readers[st] {
		delete(h.readers, st)
		close(st.events)
	}
	if len(h.readers) == 0 && h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

// run looks while somebody reads.
func (h *hub) run(ctx context.Context) {
	for {
		changed := h.s.c.Changed()
		took := h.look()
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(max(leastGap, gapFactor*took), mostGap)):
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-time.After(beatEach - leastGap):
		}
	}
}

// look renders what can be seen now, and tells those who read what is new of it.
func (h *hub) look() (took time.Duration) {
	h.looking.Lock()
	defer h.looking.Unlock()
	began := time.Now()
	now := fragments(h.s.c.View(), options{owner: h.who == owner, machine: h.s.c.Machine != nil})
	h.mu.Lock()
	defer h.mu.Unlock()
	news := differences(h.shown, now)
	if h.shown != nil && len(news) == 0 {
		return time.Since(began)
	}
	h.shown = now
	h.number++
	if len(h.readers) > 0 {
		data := event(h.number, news)
		for st := range h.readers {
			select {
			case st.events <- data:
			default:
				h.drop(st) // its browser comes again, and is told everything
			}
		}
	}
	return time.Since(began)
}

// end tells readers the last that there is to see. They leave when they have heard it.
func (h *hub) end() {
	h.look()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	for st := range h.readers {
		select {
		case st.events <- []byte("event: end\ndata:\n\n"):
		default:
		}
		h.drop(st)
	}
}

// event is fragments of the page in the form of server-sent events: JSON has no line breaks.
func event(number int, parts []fragment) []byte {
	all := map[string]markup{}
	for _, f := range parts {
		all[f.id] = f.markup()
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "id: %d\ndata: ", number)
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(all) // texts, into memory; it ends the line
	b.WriteString("\n")
	return b.Bytes()
}

// events serves one reader.
func (s *Server) events(w http.ResponseWriter, r *http.Request, who reader) {
	seen, _ := strconv.Atoi(r.Header.Get("Last-Event-ID"))
	if seen == 0 {
		seen, _ = strconv.Atoi(r.URL.Query().Get("seen"))
	}
	h := s.hubs[who]
	if r.Method == http.MethodHead {
		return
	}
	st := h.join(seen)
	if st == nil {
		w.Header().Set("Retry-After", "10")
		say(w, http.StatusServiceUnavailable, "too many read this page already; it can be loaded again at any time")
		return
	}
	defer h.leave(st)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep it back
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // it says nothing more, and stays
	write := func(data []byte) bool {
		_ = out.SetWriteDeadline(time.Now().Add(answerTime))
		if _, err := w.Write(data); err != nil {
			return false
		}
		return out.Flush() == nil
	}
	if !write([]byte("retry: 1000\n\n")) {
		return
	}
	ping := time.NewTicker(pingEach)
	defer ping.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-ping.C:
			if !write([]byte(":\n\n")) {
				return
			}
		case data, ok := <-st.events:
			if !ok || !write(data) {
				return
			}
		}
	}
}
