package pmi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A Server serves the processes of one node. The nodes' servers exchange what was put at each barrier, by keys in a store: each node
// leaves its own, the first one gathers them, and leaves what all have put for the others. So a store sees three requests of each node, and at
// the first barrier one more.
type Server struct {
	World World
	Node  int    // which of the world's this is
	Name  string // of the world's key-value space, which no other round of the job has; a word
	Store Store  // of the round, for all nodes; not needed by one alone

	// Advanced is told how far the process with this local rank has come, before it is answered.
	Advanced func(local int, r Record)

	mu      sync.Mutex
	table   map[string]string
	fresh   []Arg // put here since the last barrier
	bytes   int   // that were put here
	waiting map[int]net.Conn
	epoch   int  // barriers so far
	left    bool // a process has called MPI_Finalize: there will be no other barrier

	begun   bool       // a process has called MPI_Init
	aborted []int      // local ranks
	agents  []net.Conn // that are told of them
}

// A Store is what the nodes' servers have in common: package tcpstore's client is one.
type Store interface {
	Set(ctx context.Context, key string, value []byte) error
	// MultiGet waits until all keys are there.
	MultiGet(ctx context.Context, keys ...string) ([][]byte, error)
}

// The lengths that clients are told. MPICH's own server has the same, and older clients have no room for more.
const (
	maxName  = 256
	maxKey   = 64
	maxValue = 1024

	maxPut = 4 << 20 // bytes that the processes of a node may put, for each of them
)

// Serve serves who connects, as Connect does, until ctx ends or something fails. It closes the listener.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var all sync.WaitGroup
	defer all.Wait()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	for {
		conn, err := ln.Accept()
		if err != nil {
			fail(err)
			return context.Cause(ctx)
		}
		all.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			if err := s.serve(ctx, conn); err != nil {
				fail(err)
			}
		})
	}
}

// serve answers one process. What it does wrong ends its connection, with which its MPI fails; an error is one of all.
func (s *Server) serve(ctx context.Context, conn net.Conn) error {
	in := newReader(conn)
	hello, err := in.next()
	if err == nil && hello.Cmd == greeting && hello.Get("agent") != "" {
		s.tell(conn)
		for {
			m, err := in.next()
			if err != nil {
				return nil // it has ended
			}
			if m.Cmd == await {
				s.await(ctx)
			}
		}
	}
	local, numberErr := strconv.Atoi(hello.Get("local"))
	if err != nil || hello.Cmd != greeting || numberErr != nil || local < 0 || local >= s.World.Procs(s.Node) {
		return nil
	}
	for {
		m, err := in.next()
		if err != nil {
			return nil // it ended, or says what we do not know
		}
		if m.Cmd == "barrier_in" {
			if err := s.arrive(ctx, local, conn); err != nil {
				return err
			}
			continue
		}
		answer, known := s.answer(local, m)
		if !known {
			return nil
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			return nil
		}
		if m.Cmd == "finalize" {
			s.leave(ctx)
		}
	}
}

// leave ends the barrier in which others wait for a process that has called MPI_Finalize, here and on other nodes: else they would wait for ever. MPI's own
// finalizing has a barrier before this, after which nobody waits.
func (s *Server) leave(ctx context.Context) {
	s.mu.Lock()
	again, epoch := s.left, s.epoch
	s.left = true
	s.give(s.waiting)
	s.waiting = nil
	s.mu.Unlock()
	if again || s.World.Nodes() == 1 {
		return
	}
	of := strconv.Itoa(s.Node)
	if s.Node == 0 {
		of = "all"
	}
	_ = s.Store.Set(ctx, s.key(epoch, of), []byte(gone)) // who needs the store will say so
}

// give lets processes that wait go without an answer, with which their MPI fails.
func (s *Server) give(waiting map[int]net.Conn) {
	for _, conn := range waiting {
		conn.Close()
	}
}

// gone stands in the store in place of what a node puts, when one of its processes comes to no barrier any more.
const gone = "gone"

var errGone = errors.New("a process of another node has left")

// handlers answer a request of the process with this local rank.
var handlers = map[string]func(s *Server, local int, m Message) string{
	"init":           (*Server).init,
	"finalize":       func(s *Server, local int, _ Message) string { return s.advance(local, Finished, "finalize_ack") },
	"abort":          (*Server).abort,
	"get_maxes":      constant("maxes kvsname_max=%d keylen_max=%d vallen_max=%d", maxName, maxKey, maxValue),
	"get_appnum":     constant("appnum appnum=0"),
	"get_my_kvsname": func(s *Server, _ int, _ Message) string { return "cmd=my_kvsname kvsname=" + s.Name + "\n" },
	"get_universe_size": func(s *Server, _ int, _ Message) string {
		return fmt.Sprintf("cmd=universe_size size=%d\n", s.World.Size())
	},
	"put":            (*Server).put,
	"get":            (*Server).get,
	"publish_name":   constant("publish_result rc=-1 msg=muster_publishes_no_names"),
	"unpublish_name": constant("unpublish_result rc=-1 msg=muster_publishes_no_names"),
	"lookup_name":    constant("lookup_result rc=-1 msg=muster_publishes_no_names"),
	"spawn":          (*Server).spawn,
}

func constant(format string, args ...any) func(*Server, int, Message) string {
	line := "cmd=" + fmt.Sprintf(format, args...) + "\n"
	return func(*Server, int, Message) string { return line }
}

// answer is the line for a request, and whether there is such a request.
func (s *Server) answer(local int, m Message) (line string, known bool) {
	handle, known := handlers[m.Cmd]
	if !known {
		return "", false
	}
	return handle(s, local, m), true
}

// init begins a conversation. Of another version the client is told ours.
func (s *Server) init(local int, m Message) string {
	if m.Get("pmi_version") != "1" {
		return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n"
	}
	answer := s.advance(local, Began, "response_to_init pmi_version=1 pmi_subversion=1 rc=0")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
	return answer
}

// begin tells the agents that there is a world. The caller holds the lock.
func (s *Server) begin() {
	if s.begun {
		return
	}
	s.begun = true
	s.telling(Message{began, nil})
}

// await waits for another node whose processes are all in the first barrier. None of this node's will be: nobody but us needs the store.
func (s *Server) await(ctx context.Context) {
	if s.World.Nodes() == 1 {
		return
	}
	if _, err := s.Store.MultiGet(ctx, s.key(0, began)); err != nil {
		return // who needs the store will say so
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
}

func (s *Server) advance(local int, to Stage, answer string) string {
	s.Advanced(local, Record{Stage: to})
	return "cmd=" + answer + "\n"
}

// abort has the process killed: it waits for that, or goes on as if nothing were.
func (s *Server) abort(local int, m Message) string {
	code, _ := strconv.Atoi(m.Get("exitcode"))
	s.Advanced(local, Record{Aborted, byte(code)})
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.aborted, local) {
		return ""
	}
	s.aborted = append(s.aborted, local)
	s.telling(abortOf(local))
	return ""
}

// telling tells the agents.
func (s *Server) telling(m Message) {
	for _, agent := range s.agents {
		_, _ = io.WriteString(agent, m.String()) // one that is gone has another after it
	}
}

// tell tells an agent what was, and what will be: few lines, for which the connection has room.
func (s *Server) tell(agent net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.agents = append(s.agents, agent)
	if s.begun {
		_, _ = io.WriteString(agent, Message{began, nil}.String())
	}
	for _, local := range s.aborted {
		_, _ = io.WriteString(agent, abortOf(local).String())
	}
}

func abortOf(local int) Message { return Message{aborted, []Arg{{"local", strconv.Itoa(local)}}} }

func (s *Server) put(_ int, m Message) string {
	key, value := m.Get("key"), m.Get("value")
	s.mu.Lock()
	defer s.mu.Unlock()
	switch size := len(key) + len(value); {
	case m.Get("kvsname") != s.Name:
		return refused("put_result", "another_kvsname")
	case key == "" || len(key) > maxKey || len(value) > maxValue:
		return refused("put_result", "key_or_value_too_long")
	case strings.HasPrefix(key, "PMI_"):
		return refused("put_result", "reserved_key")
	case s.bytes+size > maxPut*s.World.Procs(s.Node):
		return refused("put_result", "too_many_keys")
	default:
		s.bytes += size
	}
	s.fresh = append(s.fresh, Arg{key, value})
	s.keep(Arg{key, value})
	return "cmd=put_result rc=0 msg=success\n"
}

func (s *Server) keep(a Arg) {
	if s.table == nil {
		s.table = map[string]string{}
	}
	s.table[a.Key] = a.Value
}

// mapping is the key by which processes know who shares a machine with them; where it does not fit a value, they ask each other.
const mapping = "PMI_process_mapping"

func (s *Server) get(_ int, m Message) string {
	key := m.Get("key")
	s.mu.Lock()
	value, ok := s.table[key]
	s.mu.Unlock()
	if key == mapping {
		value = s.World.String()
		ok = len(value) < maxValue
	}
	if !ok || m.Get("kvsname") != s.Name {
		return "cmd=get_result rc=-1 msg=key_not_found value=unknown\n"
	}
	return "cmd=get_result rc=0 msg=success value=" + value + "\n"
}

// spawn refuses, once for a request of several parts.
func (s *Server) spawn(_ int, m Message) string {
	if m.Get("totspawns") != m.Get("spawnssofar") {
		return ""
	}
	return "cmd=spawn_result rc=-1 msg=muster_starts_no_further_processes\n"
}

func refused(answer, why string) string { return "cmd=" + answer + " rc=-1 msg=" + why + "\n" }

// arrive lets a process wait in the barrier; the last one of this node takes what was put here to the other nodes.
func (s *Server) arrive(ctx context.Context, local int, conn net.Conn) error {
	s.mu.Lock()
	if s.waiting == nil {
		s.waiting = map[int]net.Conn{}
	}
	s.waiting[local] = conn
	if s.left {
		s.give(s.waiting)
		s.waiting = nil
	}
	if len(s.waiting) < s.World.Procs(s.Node) {
		s.mu.Unlock()
		return nil
	}
	// All processes of this node wait for an answer: none puts or gets.
	waiting, fresh, epoch := s.waiting, s.fresh, s.epoch
	s.waiting, s.fresh, s.epoch = nil, nil, s.epoch+1
	s.mu.Unlock()
	all, err := s.exchange(ctx, epoch, fresh)
	if errors.Is(err, errGone) {
		s.give(waiting)
		return nil
	}
	if err != nil {
		return fmt.Errorf("pmi: barrier %d: %w", epoch, err)
	}
	s.mu.Lock()
	for _, a := range all {
		s.keep(a)
	}
	s.mu.Unlock()
	for _, conn := range waiting {
		_, _ = io.WriteString(conn, "cmd=barrier_out\n") // who has ended does not need it
	}
	return nil
}

// exchange leaves what was put on this node, and returns what was put on all.
func (s *Server) exchange(ctx context.Context, epoch int, own []Arg) ([]Arg, error) {
	nodes := s.World.Nodes()
	if nodes == 1 {
		return nil, nil
	}
	key := func(of string) string { return s.key(epoch, of) }
	if epoch == 0 {
		if err := s.Store.Set(ctx, key(began), []byte{1}); err != nil {
			return nil, err
		}
	}
	if s.Node != 0 {
		if err := s.Store.Set(ctx, key(strconv.Itoa(s.Node)), pack(own)); err != nil {
			return nil, err
		}
		values, err := s.Store.MultiGet(ctx, key("all"))
		if err != nil {
			return nil, err
		}
		return unpack(values)
	}
	var keys []string
	for n := 1; n < nodes; n++ {
		keys = append(keys, key(strconv.Itoa(n)))
	}
	values, err := s.Store.MultiGet(ctx, keys...)
	if err != nil {
		return nil, err
	}
	others, err := unpack(values)
	if errors.Is(err, errGone) {
		return nil, errors.Join(err, s.Store.Set(ctx, key("all"), []byte(gone)))
	}
	if err != nil {
		return nil, err
	}
	all := append(own, others...)
	return all, s.Store.Set(ctx, key("all"), pack(all))
}

// key names what a barrier has in the store.
func (s *Server) key(epoch int, of string) string {
	return fmt.Sprintf("pmi/%s/%d/%s", s.Name, epoch, of)
}

// pack writes what was put as lines: neither has one in it, nor a key "=".
func pack(put []Arg) []byte {
	var b strings.Builder
	for _, a := range put {
		b.WriteString(a.Key + "=" + a.Value + "\n")
	}
	return []byte(b.String())
}

var errPacked = errors.New("what another node left is of another form: does it run another muster?")

// unpack reads what pack wrote.
func unpack(values [][]byte) (put []Arg, err error) {
	for _, v := range values {
		if string(v) == gone {
			return nil, errGone
		}
		for line := range strings.Lines(string(v)) {
			key, value, ok := strings.Cut(line, "=")
			value, whole := strings.CutSuffix(value, "\n")
			if !ok || !whole || key == "" || len(key) > maxKey || len(value) > maxValue {
				return nil, errPacked
			}
			put = append(put, Arg{key, value})
		}
	}
	return put, nil
}
