// Package horovod serves the rendezvous of Horovod's gloo controller, by which processes that horovodrun did not start become a world: they
// leave the addresses at which each listens for each other one, and read those of the others.
//
// It is HTTP, one request a connection (horovod/common/gloo/http_store.cc and gloo_context.cc, horovod/runner/http/http_server.py):
//
//	PUT /SCOPE/KEY      200; the body is bytes
//	GET /SCOPE/KEY      200 and the bytes, or 404: the client asks again after 10 ms
//	DELETE /SCOPE/RANK  200: this rank needs the scope no more
//
// Another status makes the client ask twice more, and then end. The scopes are "global", "local_HOST" and "cross_N", in which the ranks are
// those of the world, of a node, and of local rank N, and the same three with "_process_set_hash_HEX" for some of them. Keys are ranks in the
// scope, and "rank_N" for the name of the host of each, which is read without waiting. What its own elastic workers leave at
// "worker_addresses" is for a driver that pickles Python: there is none here.
package horovod

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-run/muster/lazy"
)

// A World is how many workers each node has, in the order of ranks.
type World []int

// Host is the word by which the ranks of a node know that they share it, in HOROVOD_HOSTNAME.
func Host(node int) string { return "node-" + strconv.Itoa(node) }

// Cross are the numbers of a worker among those of all nodes that have its local rank, as Horovod counts.
func (w World) Cross(node, local int) (rank, size int) {
	for n, slots := range w {
		if slots <= local {
			continue
		}
		if n < node {
			rank++
		}
		size++
	}
	return rank, size
}

// size is how many ranks there are.
func (w World) size() (n int) {
	for _, slots := range w {
		n += slots
	}
	return n
}

// A Server serves the workers of one round, on all nodes.
type Server struct {
	World World
	Log   func(text string) // of what is refused
	Came  func()            // is called when the first of the world's ranks comes; nil: nobody asks

	mu      sync.Mutex
	scopes  map[string]*scope
	held    int // bytes in them
	asked   map[place]*asked
	came    bool
	refused int
}

// A place is where a value is.
type place struct{ scope, key string }

// A scope is a rendezvous.
type scope struct {
	values map[string][]byte
	done   map[string]bool // ranks that need it no more
}

// asked is a value for which somebody waits.
type asked struct {
	by   int
	came chan struct{} // closed when it is there
}

// Serve serves on a listener until ctx ends or the listener fails.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	server := &http.Server{
		Handler: s, MaxHeaderBytes: maxHeader, ReadTimeout: patience, WriteTimeout: patience + hold, IdleTimeout: patience,
		ErrorLog: log.New(io.Discard, "", 0), // a client that goes is no news
	}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(limit(ln, connsOfRank*max(s.World.size(), 1))); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// A limited listener accepts no more connections than it has places: others wait in the kernel until one is closed.
type limited struct {
	net.Listener
	places chan struct{}
	once   sync.Once
	closed chan struct{}
}

func limit(ln net.Listener, n int) *limited {
	return &limited{Listener: ln, places: make(chan struct{}, n), closed: make(chan struct{})}
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &placed{Conn: conn, leave: sync.OnceFunc(func() { <-l.places })}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// A placed connection leaves its place when it is closed.
type placed struct {
	net.Conn
	leave func()
}

func (c *placed) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

const (
	// connsOfRank are the connections that are served at once, for each rank. One asks for one thing after the other, and may have several scopes.
	connsOfRank = 8

	maxHeader = 4 << 10
	patience  = 30 * time.Second // with a client that sends, or takes, nothing

	// hold is how long a request waits for a value that is not there: a client that is told so asks again 100 times a second, and looks at its own
	// limit between two requests.
	hold = time.Second

	// A value has an address for each other rank, of 136 bytes in gloo's tcp transport (gloo/transport/tcp/address.h).
	maxAddress, maxRest = 512, 4 << 10
	maxElastic          = 64 << 10
	overhead            = 256 // bytes that a value takes beside its own
	maxTold             = 10  // refused requests of which the log is told
)

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status, value, err := s.answer(w, r)
	if err != nil {
		s.refuse(r, err)
		value = []byte(err.Error() + "\n")
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(value))) // the client knows the end by this one word
	w.WriteHeader(status)
	_, _ = w.Write(value) // who is gone does not need it
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) (status int, value []byte, err error) {
	if r.Method == http.MethodGet && r.URL.Path == cameAt {
		s.mu.Lock()
		defer s.mu.Unlock()
		return http.StatusOK, strconv.AppendBool(nil, s.came), nil
	}
	at, ranks, err := s.parse(r)
	if err != nil {
		return http.StatusBadRequest, nil, err
	}
	switch r.Method {
	case http.MethodPut:
		most := maxAddress*ranks + maxRest
		if at.scope == elastic {
			most = maxElastic
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(most)))
		if tooLong := new(http.MaxBytesError); errors.As(err, &tooLong) {
			return http.StatusRequestEntityTooLarge, nil, fmt.Errorf("a value has at most %d bytes there", most)
		}
		if err == nil && at.scope != elastic {
			err = s.put(at, body)
		}
		if err != nil {
			return http.StatusInsufficientStorage, nil, err
		}
	case http.MethodGet:
		value, ok := s.get(r.Context(), at)
		if !ok {
			return http.StatusNotFound, nil, nil
		}
		return http.StatusOK, value, nil
	case http.MethodDelete:
		if strings.HasPrefix(at.key, named) { // it would count for a rank, and take the scope away from the others
			return http.StatusBadRequest, nil, errors.New("a rank leaves by its number")
		}
		s.leave(at, ranks)
	default:
		return http.StatusMethodNotAllowed, nil, errors.New("there are PUT, GET and DELETE")
	}
	return http.StatusOK, nil, nil
}

// elastic is where workers leave what a driver of Horovod's would read.
const elastic = "worker_addresses"

// scoped is the name of a scope.
var scoped = lazy.Regexp(`^(global|local_node-|cross_)([0-9]{0,8})(_process_set_hash_[0-9a-f]{1,16})?$`)

// named begins the key of the name of a rank's host.
const named = "rank_"

// keyed is a key in a scope.
var keyed = lazy.Regexp(`^(rank_)?(0|[1-9][0-9]{0,8})$`)

// parse returns what a request is about, and how many ranks there are in that scope. None but those of this world are served.
func (s *Server) parse(r *http.Request) (at place, ranks int, err error) {
	var ok bool
	at.scope, at.key, ok = strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if !ok {
		return at, 0, errors.New("the path has the form /SCOPE/KEY")
	}
	if at.scope == elastic {
		return at, s.World.size(), nil
	}
	name := scoped().FindStringSubmatch(at.scope)
	if name == nil || (name[1] == "global") != (name[2] == "") {
		return at, 0, errors.New("there is no such scope: is HOROVOD_HOSTNAME another than muster gave?")
	}
	if ranks = s.ranks(name[1], name[2]); ranks == 0 {
		return at, 0, errors.New("this world has no such scope")
	}
	key := keyed().FindStringSubmatch(at.key)
	if key == nil {
		return at, 0, errors.New("a key is the number of a rank")
	}
	if n, _ := strconv.Atoi(key[2]); n >= ranks {
		return at, 0, fmt.Errorf("there are %d ranks in that scope: is it another job's?", ranks)
	}
	return at, ranks, nil
}

// ranks is how many a scope has in this world.
func (s *Server) ranks(kind, number string) int {
	n, _ := strconv.Atoi(number)
	switch {
	case kind == "global":
		return s.World.size()
	case kind == "cross_":
		_, size := s.World.Cross(0, n)
		return size
	case n < len(s.World):
		return s.World[n]
	}
	return 0
}

func (s *Server) put(at place, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.scopes[at.scope]
	if in == nil {
		in = &scope{map[string][]byte{}, map[string]bool{}}
	}
	old, had := in.values[at.key]
	more := len(value) - len(old)
	if !had {
		more += overhead + len(at.scope) + len(at.key)
	}
	if n := s.World.size(); s.held+more > 4*n*(maxAddress*n+maxRest) { // as much as all scopes of the world, and as much again for sets of processes
		return fmt.Errorf("the store has %d bytes already", s.held)
	}
	if s.scopes == nil {
		s.scopes = map[string]*scope{}
	}
	s.scopes[at.scope], in.values[at.key] = in, value
	s.held += more
	if who := s.asked[at]; who != nil {
		close(who.came)
		delete(s.asked, at)
	}
	if at.scope == "global" && !s.came {
		s.came = true
		if s.Came != nil {
			s.Came()
		}
	}
	return nil
}

// cameAt is where muster itself asks whether anybody has come.
const cameAt = "/muster/came"

// HasCome asks the server at an address whether any worker has come.
func HasCome(ctx context.Context, addr string) (came bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+cameAt, nil)
	if err != nil {
		return false, err
	}
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r) // by no proxy
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxRest))
	if answer.StatusCode != http.StatusOK {
		return false, fmt.Errorf("%s: %s: %.80q", addr, answer.Status, text)
	}
	came, wrong := strconv.ParseBool(string(text))
	return came, errors.Join(err, wrong)
}

// Empty names the file that is there until somebody has come to the rendezvous at a port.
func Empty(port string) string { return "horovod-empty-" + port }

// get waits a while for the address of a rank, and for nothing else: the client asks for names of hosts in passing.
func (s *Server) get(ctx context.Context, at place) (value []byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if value, ok = s.value(at); ok || at.scope == elastic || strings.HasPrefix(at.key, named) {
		return value, ok
	}
	if s.asked == nil {
		s.asked = map[place]*asked{}
	}
	who := s.asked[at]
	if who == nil {
		who = &asked{came: make(chan struct{})}
		s.asked[at] = who
	}
	who.by++
	s.mu.Unlock()
	late := time.NewTimer(hold)
	defer late.Stop()
	select {
	case <-who.came:
	case <-late.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	if who.by--; who.by == 0 && s.asked[at] == who {
		delete(s.asked, at)
	}
	return s.value(at)
}

func (s *Server) value(at place) (value []byte, ok bool) {
	if in := s.scopes[at.scope]; in != nil {
		value, ok = in.values[at.key]
	}
	return value, ok
}

// leave lets a rank leave a scope. One of the world's is empty when all have left it, and may then be used again, for hvd.init after hvd.shutdown; in
// a set of processes, whose number nobody tells, each takes away its own.
func (s *Server) leave(at place, ranks int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.scopes[at.scope]
	if in == nil {
		return
	}
	gone := []string{at.key, named + at.key}
	if !strings.Contains(at.scope, "_process_set_hash_") {
		in.done[at.key], gone = true, nil
		if len(in.done) == ranks {
			for key := range in.values {
				gone = append(gone, key)
			}
		}
	}
	for _, key := range gone {
		if value, ok := in.values[key]; ok {
			s.held -= len(value) + overhead + len(at.scope) + len(key)
			delete(in.values, key)
		}
	}
	if len(in.values) == 0 {
		delete(s.scopes, at.scope)
	}
}

// refuse tells of a request that is not served.
func (s *Server) refuse(r *http.Request, err error) {
	s.mu.Lock()
	s.refused++
	n := s.refused
	s.mu.Unlock()
	if n <= maxTold && s.Log != nil {
		s.Log(fmt.Sprintf("refused %.10q of %.120q by %s: %v", r.Method, r.URL.Path, r.RemoteAddr, err))
	}
}
