// Package web serves how a job stands as a page that stays true while one looks at it: read-only, and whole without anything from elsewhere.
//
// The page is rendered here. A browser that runs its few lines of JavaScript is sent what changes (server-sent events), and puts it in its place;
// one that does not loads the page again. Two kinds of readers see two pages: who is the agent's own user, or has the token, sees what workers
// printed last, and where they stood; everybody else sees states, names and sentences.
package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report"
)

// A View is what the page shows.
type View struct {
	report.Status
	Verdict  *job.Verdict  // how the job ended; nil: that is not known yet
	Past     []job.Round   // how the rounds before this one ended, as far as this node was told
	Failures []job.Failure // of this round, so far
	Hang     *job.Hang     // the standstill that lasts; nil: there is none
	Stage    string        // how sure that is: suspect, slow, hung
	Stood    time.Time     // since when it lasts
}

// A Config is what a Server is made of. All functions are called from many goroutines.
type Config struct {
	View    func() View
	Changed func() <-chan struct{}                              // is closed when View has something new, beside what changes all the time
	Live    func() error                                        // nil: the agent lives
	Ready   func() error                                        // nil: it listens where other nodes look for it
	Machine func(ctx context.Context, node int) ([]byte, error) // a drawing of a node's machine as SVG, of -1 this one's; nil: there are none
	Metrics http.Handler                                        // nil: there are none
	Tokens  []string                                            // each of them lets its owner see everything; none: only who comes by the unix socket does
	Host    string                                              // this node's name
	Log     *slog.Logger
}

// Bounds on what readers may take.
const (
	maxConns   = 128     // over TCP at once; the others wait in the kernel
	maxFrom    = 96      // of them from one address: who holds many open, and says nothing, does not keep probes out
	maxStreams = 48      // readers of changes, of each kind
	maxHeader  = 8 << 10 // bytes
	headerTime = 5 * time.Second
	answerTime = 20 * time.Second
	idleTime   = time.Minute
	lastTime   = 300 * time.Millisecond // for readers to hear of the end
)

// A Server serves the page, until Close.
type Server struct {
	c      Config
	http   http.Server
	hubs   [2]*hub // by who reads: everybody, the owner
	served sync.WaitGroup

	making sync.Mutex // of one page at a time: who asks for many of them gets one processor's time
}

// New returns a server that serves nobody yet.
func New(c Config) *Server {
	s := &Server{c: c}
	s.hubs = [2]*hub{newHub(s, public), newHub(s, owner)}
	s.http = http.Server{
		Handler: http.HandlerFunc(s.serve), MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headerTime, ReadTimeout: headerTime, WriteTimeout: answerTime, IdleTimeout: idleTime,
		ErrorLog: log.New(io.Discard, "", 0), // it is readers who fail there
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, localKey{}, c.LocalAddr().Network() == "unix")
		},
	}
	return s
}

type localKey struct{}

// Serve answers at a listener, until Close. Who comes by a unix socket is taken for the agent's own user.
func (s *Server) Serve(ln net.Listener) {
	if ln.Addr().Network() != "unix" {
		ln = &limited{Listener: ln, room: make(chan struct{}, maxConns), closed: make(chan struct{}), from: map[string]int{}}
	}
	s.served.Go(func() {
		if err := s.http.Serve(ln); err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.c.Log.Warn("the status page is served no more: " + err.Error())
		}
	})
}

// Close tells readers how the job stands now, and that this was the last word. A nil server is closed.
func (s *Server) Close() {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastTime)
	defer cancel()
	for _, h := range s.hubs {
		h.end()
	}
	if s.http.Shutdown(ctx) != nil {
		s.http.Close()
	}
	s.served.Wait()
}

// serve answers one request.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		say(w, http.StatusMethodNotAllowed, "this page only shows; muster ctl acts")
		return
	}
	switch r.URL.Path { // who asks these has no token, and learns nothing
	case "/healthz":
		probe(w, s.c.Live, "the agent answers")
		return
	case "/readyz":
		probe(w, s.c.Ready, "the agent listens")
		return
	}
	who, ok := s.admit(w, r)
	if !ok {
		return
	}
	switch r.URL.Path {
	case "/":
		s.page(w, who)
	case "/events":
		s.events(w, r, who)
	case "/status.json":
		h.Set("Content-Type", "application/json")
		w.Write(s.json())
	case "/machine.svg":
		s.drawing(w, r)
	case "/metrics":
		if s.c.Metrics == nil {
			say(w, http.StatusNotFound, "there are metrics where muster run was told --http: docs/metrics.md")
			return
		}
		s.c.Metrics.ServeHTTP(w, r)
	default:
		say(w, http.StatusNotFound, "there is /, /events, /status.json, /machine.svg, /metrics, /healthz and /readyz")
	}
}

// say answers in a line of text.
func say(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	io.WriteString(w, text+"\n")
}

func probe(w http.ResponseWriter, ask func() error, well string) {
	if err := ask(); err != nil {
		say(w, http.StatusServiceUnavailable, report.Line(err.Error(), 200))
		return
	}
	say(w, http.StatusOK, well)
}

// page is the whole of it.
func (s *Server) page(w http.ResponseWriter, who reader) {
	nonce := newNonce()
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'nonce-"+nonce+"'; script-src 'nonce-"+nonce+"'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	io.WriteString(w, s.document(who, nonce))
}

// Page is the page as a file, as its owner sees it, with a drawing of this node's machine as SVG; none: without.
func Page(v View, drawing []byte) string {
	return document(v, options{owner: true, times: true, drawing: drawing}, 0, newNonce())
}

// document is the page in which a browser begins to listen.
func (s *Server) document(who reader, nonce string) string {
	s.making.Lock()
	defer s.making.Unlock()
	seen := s.hubs[who].version() // before the page
	return document(s.c.View(), options{owner: who == owner, times: true, live: true, machine: s.c.Machine != nil}, seen, nonce)
}

func (s *Server) json() []byte {
	s.making.Lock()
	defer s.making.Unlock()
	return s.c.View().Status.JSON()
}

// drawing is a node's machine. It is a picture of its own, and perhaps from another node: what it may do is said here, not by the page.
func (s *Server) drawing(w http.ResponseWriter, r *http.Request) {
	if s.c.Machine == nil {
		say(w, http.StatusNotFound, "there is no drawing of this machine")
		return
	}
	node := -1
	if given := r.URL.Query().Get("node"); given != "" {
		n, err := strconv.Atoi(given)
		if err != nil || n < 0 {
			say(w, http.StatusBadRequest, fmt.Sprintf("node=%.20q is no number of a node", given))
			return
		}
		node = n
	}
	picture, err := s.c.Machine(r.Context(), node)
	w.Header().Set("Content-Type", "image/svg+xml")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox")
	if err != nil { // where a picture is expected, words are one
		w.WriteHeader(http.StatusServiceUnavailable)
		picture = []byte(words("There is no drawing of this machine: " + report.Line(err.Error(), 200)))
	}
	w.Write(picture)
}

// words is a text as a picture.
func words(said string) string {
	return `<svg xmlns="http://www.w3.org/2000/svg" width="900" height="40"><text x="10" y="25" font-family="sans-serif" font-size="13">` + string(text(said)) + "</text></svg>\n"
}
