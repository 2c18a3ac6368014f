package peers

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

// A Store is where the nodes leave word for each other; rendezvous/store has one.
type Store interface {
	Set(ctx context.Context, key string, value []byte) error
	Get(ctx context.Context, key string) ([]byte, error)
	Add(ctx context.Context, key string, delta int64) (int64, error)
}

// A Plan is how long to measure, and how often.
type Plan struct {
	Rounds int           // at most: each node is measured with so many others
	Each   time.Duration // for which each direction of a pair is measured

	Seen func(all []Node, round []Pair) // of rank 0: what was measured in a round, when it is over, also of those that were measured again; nil: nobody waits for it
}

const (
	pings      = 100
	dialTime   = 5 * time.Second
	secretSize = 32
	maxNode    = 64 << 10 // bytes of a node's word
	chunk      = 256 << 10
)

// Measure takes one node's part: every node of the job calls it at once. Rank 0 learns of all pairs.
func Measure(ctx context.Context, s Store, self Node, size int, plan Plan) (m Measured, err error) {
	ln, err := net.Listen("tcp", ":0")
	if err != nil {
		return m, err
	}
	secret, err := agreed(ctx, s, self.Rank)
	if err != nil {
		ln.Close()
		return m, err
	}
	server := &server{secret: secret}
	var running sync.WaitGroup
	running.Go(func() { server.serve(ln) })
	defer func() { ln.Close(); server.close(); running.Wait() }()
	port := ln.Addr().(*net.TCPAddr).Port
	for i, a := range self.Addresses {
		self.Addresses[i] = net.JoinHostPort(a, strconv.Itoa(port))
	}
	self.Again = true
	if err := put(ctx, s, "node", self.Rank, self); err != nil {
		return m, err
	}
	for rank := range size {
		n, err := get[Node](ctx, s, "node", rank)
		if err != nil {
			return m, err
		}
		n.Rank = rank
		m.Nodes = append(m.Nodes, n)
	}
	p := part{store: s, self: self.Rank, nodes: m.Nodes, seen: plan.Seen, measure: func(p Pair) Pair { return measure(ctx, secret, m.Nodes[p.B], p, plan.Each) }}
	for _, round := range Rounds(size, plan.Rounds) {
		measured, err := p.round(ctx, round, false)
		if err != nil {
			return m, err
		}
		m.Pairs = append(m.Pairs, measured...)
	}
	if err := p.again(ctx, &m); err != nil {
		return m, err
	}
	return m, together(ctx, s, -1, size)
}

// A part is what a node has to do in rounds.
type part struct {
	store   Store
	self    int
	nodes   []Node
	seen    func(all []Node, round []Pair)
	measure func(Pair) Pair
	rounds  int // so far
}

// round measures pairs, for the first time or again. Rank 0 learns what came of them.
func (p *part) round(ctx context.Context, round [][2]int, again bool) ([]Pair, error) {
	r := p.rounds
	p.rounds++
	for _, two := range round {
		if two[0] == p.self {
			if err := put(ctx, p.store, fmt.Sprint("pair", r), p.self, p.measure(Pair{A: two[0], B: two[1]})); err != nil {
				return nil, err
			}
		}
	}
	if err := together(ctx, p.store, r, len(p.nodes)); err != nil || p.self != 0 {
		return nil, err
	}
	measured, err := measuredIn(ctx, p.store, r, round)
	for i := range measured {
		if again {
			measured[i].Times = 2 // at least
		}
	}
	if err == nil && p.seen != nil {
		p.seen(p.nodes, measured)
	}
	return measured, err
}

// again measures what seems slow once more, as on a busy machine it may be chance: of such pairs the best counts, and of others measured beside them what is usual now.
func (p *part) again(ctx context.Context, m *Measured) error {
	if slices.ContainsFunc(m.Nodes, func(n Node) bool { return !n.Again }) { // who would wait for nobody
		return nil
	}
	var first []claim
	var others []float64
	for turn := range mostTurns {
		var rounds [][][2]int
		var err error
		doubtful := map[[2]int]bool{}
		if p.self == 0 {
			now := judged(*m)
			for _, c := range now.claims {
				for _, on := range c.on {
					doubtful[[2]int{on.A, on.B}] = true
				}
			}
			if turn == 0 {
				first = now.claims
			}
			rounds = m.again()
			err = put(ctx, p.store, "again", turn, rounds)
		} else {
			rounds, err = get[[][][2]int](ctx, p.store, "again", turn)
		}
		if err != nil {
			return err
		}
		if len(rounds) == 0 {
			break
		}
		for _, round := range rounds {
			measured, err := p.round(ctx, round, true)
			if err != nil {
				return err
			}
			for _, again := range measured {
				i := slices.IndexFunc(m.Pairs, func(q Pair) bool { return q.A == again.A && q.B == again.B })
				switch {
				case doubtful[[2]int{again.A, again.B}]:
					m.Pairs[i].better(again)
				case again.Error == "":
					others = append(others, again.Forth, again.Back)
				}
			}
		}
		m.Meanwhile = median(others)
	}
	if p.self == 0 {
		m.Doubts = withdrawn(first, judged(*m).claims)
	}
	return nil
}

// measuredIn is what the pairs of a round left.
func measuredIn(ctx context.Context, s Store, r int, round [][2]int) (pairs []Pair, err error) {
	for _, p := range round {
		m, err := get[Pair](ctx, s, fmt.Sprint("pair", r), p[0])
		if err != nil {
			return nil, err
		}
		m.A, m.B = p[0], p[1]
		pairs = append(pairs, m)
	}
	return pairs, nil
}

func key(of string, n int) string { return fmt.Sprintf("muster/peers/%s/%d", of, n) }

func put(ctx context.Context, s Store, of string, rank int, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.Set(ctx, key(of, rank), text)
}

func get[T any](ctx context.Context, s Store, of string, rank int) (v T, err error) {
	text, err := s.Get(ctx, key(of, rank))
	if err == nil && len(text) > maxNode*16 {
		err = fmt.Errorf("rank %d left %d bytes, which is no word of its", rank, len(text))
	}
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	return v, err
}

// agreed is the secret by which the nodes of this job know each other.
func agreed(ctx context.Context, s Store, rank int) ([]byte, error) {
	const at = "muster/peers/secret"
	if rank == 0 {
		secret := make([]byte, secretSize)
		_, _ = rand.Read(secret) // never fails
		return secret, s.Set(ctx, at, secret)
	}
	secret, err := s.Get(ctx, at)
	if err == nil && len(secret) != secretSize {
		err = errors.New("the store holds no secret of this job")
	}
	return secret, err
}

// together waits until all nodes are done with a round, so that no pair is measured beside another of the same node.
func together(ctx context.Context, s Store, round, size int) error {
	n, err := s.Add(ctx, key("done", round), 1)
	if err == nil && n == int64(size) {
		err = s.Set(ctx, key("go", round), []byte("1"))
	}
	if err == nil {
		_, err = s.Get(ctx, key("go", round))
	}
	return err
}

// What a client asks for, behind the secret.
const (
	askPing = 'p' // each byte comes back, with the server's clock
	askSend = 's' // the client sends, and the server says how much came in the time that the client says
	askTake = 't' // the server sends for that time
)

// A server answers measurements of others.
type server struct {
	secret    []byte
	mu        sync.Mutex
	open      map[net.Conn]bool
	strangers []net.Conn // of these, who have not shown the secret yet, the oldest first
	calls     sync.WaitGroup
	over      bool
}

const (
	maxStrangers = 32
	strangerTime = 2 * time.Second // for the secret
	callTime     = time.Minute     // for all of a measurement
)

func (s *server) serve(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		if !s.keep(c) {
			c.Close()
			continue
		}
		s.calls.Go(func() {
			defer s.drop(c)
			_ = c.SetDeadline(time.Now().Add(strangerTime))
			_ = s.answer(c)
		})
	}
}

func (s *server) keep(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	if s.open == nil {
		s.open = map[net.Conn]bool{}
	}
	s.open[c] = true
	if len(s.strangers) >= maxStrangers { // the newcomer may be one of us
		s.strangers[0].Close()
		s.strangers = s.strangers[1:]
	}
	s.strangers = append(s.strangers, c)
	return true
}

// known notes that a connection is no stranger's.
func (s *server) known(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strangers = slices.DeleteFunc(s.strangers, func(o net.Conn) bool { return o == c })
}

func (s *server) drop(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
	s.strangers = slices.DeleteFunc(s.strangers, func(o net.Conn) bool { return o == c })
	c.Close()
}

func (s *server) close() {
	s.mu.Lock()
	s.over = true
	for c := range s.open {
		c.Close()
	}
	s.mu.Unlock()
	s.calls.Wait()
}

// answer serves one request.
func (s *server) answer(c net.Conn) error {
	head := make([]byte, secretSize+1+8)
	if _, err := io.ReadFull(c, head); err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(head[:secretSize], s.secret) != 1 {
		return errors.New("a stranger")
	}
	s.known(c)
	_ = c.SetDeadline(time.Now().Add(callTime))
	amount := binary.BigEndian.Uint64(head[secretSize+1:])
	span := time.Duration(min(amount, uint64(callTime/2)))
	switch head[secretSize] {
	case askPing:
		b := make([]byte, 1+8)
		for range min(amount, 10*pings) {
			if _, err := io.ReadFull(c, b[:1]); err != nil {
				return err
			}
			binary.BigEndian.PutUint64(b[1:], uint64(time.Now().UnixNano()))
			if _, err := c.Write(b); err != nil {
				return err
			}
		}
		return nil
	case askSend:
		n, took, err := tally(c, span)
		if err != nil {
			return err
		}
		_ = c.SetReadDeadline(time.Now().Add(callTime / 2))
		if err := binary.Write(c, binary.BigEndian, []uint64{uint64(n), uint64(took)}); err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, c) // till it is read: what is still on its way would reset the connection
		return err
	case askTake:
		flood(c, span)
		return nil
	}
	return fmt.Errorf("asked for %q", head[secretSize])
}

// tally counts what comes in a time, which begins with the first byte, or until the end: a slow way is measured in the same time as a fast one.
func tally(c net.Conn, span time.Duration) (n int64, took time.Duration, err error) {
	b := make([]byte, chunk)
	m, err := c.Read(b)
	began := time.Now()
	if err != nil {
		return 0, 0, err
	}
	_ = c.SetReadDeadline(began.Add(span))
	for n = int64(m); err == nil; n += int64(m) {
		m, err = c.Read(b)
	}
	if took = time.Since(began); errors.Is(err, os.ErrDeadlineExceeded) {
		return n, max(span, took), nil
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, took, err
}

// flood sends for a while, or as long as the other side takes it; at least a byte, with which the other side's time begins, however late this is.
func flood(c net.Conn, span time.Duration) {
	b := make([]byte, chunk)
	if _, err := c.Write(b[:1]); err != nil {
		return
	}
	_ = c.SetWriteDeadline(time.Now().Add(span))
	for {
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

// streams is how many connections carry the data of one direction: a single one has a core's pace, not a network's.
const streams = 4

// measure has one node ask another.
func measure(ctx context.Context, secret []byte, to Node, p Pair, each time.Duration) Pair {
	err := with(ctx, secret, to, each, func(c net.Conn, ask asking) error {
		if err := ask(askPing, pings); err != nil {
			return err
		}
		return p.ping(c)
	})
	if err == nil {
		p.Forth, err = abreast(func() (float64, error) { return send(ctx, secret, to, each) })
	}
	if err == nil {
		p.Back, err = abreast(func() (float64, error) { return take(ctx, secret, to, each) })
	}
	if err != nil {
		p.Error = err.Error()
	}
	return p
}

// abreast is the speed of several streams at once.
func abreast(one func() (float64, error)) (sum float64, err error) {
	speeds, errs := make([]float64, streams), make([]error, streams)
	var all sync.WaitGroup
	for i := range streams {
		all.Go(func() { speeds[i], errs[i] = one() })
	}
	all.Wait()
	for i := range streams {
		sum, err = sum+speeds[i], cmp.Or(err, errs[i])
	}
	return sum, err
}

// send is how fast data goes to a node, in Mb/s, as it counts it.
func send(ctx context.Context, secret []byte, to Node, each time.Duration) (speed float64, err error) {
	err = with(ctx, secret, to, each, func(c net.Conn, ask asking) error {
		if err := ask(askSend, uint64(each)); err != nil {
			return err
		}
		flood(c, each+each/4) // a little longer than is counted
		var got [2]uint64
		err := binary.Read(c, binary.BigEndian, &got)
		speed = mbps(int64(got[0]), time.Duration(got[1]))
		return err
	})
	return speed, err
}

// take is how fast data comes from a node.
func take(ctx context.Context, secret []byte, to Node, each time.Duration) (speed float64, err error) {
	err = with(ctx, secret, to, each, func(c net.Conn, ask asking) error {
		if err := ask(askTake, uint64(each)); err != nil {
			return err
		}
		n, took, err := tally(c, each)
		speed = mbps(n, took)
		return err
	})
	return speed, err
}

// asking tells a server what is wanted, and how much of it.
type asking func(what byte, amount uint64) error

// with opens a connection for one step.
func with(ctx context.Context, secret []byte, to Node, each time.Duration, step func(net.Conn, asking) error) error {
	c, err := dial(ctx, to.Addresses)
	if err != nil {
		return err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	_ = c.SetDeadline(time.Now().Add(each + 2*dialTime))
	return step(c, func(what byte, amount uint64) error {
		_, err := c.Write(binary.BigEndian.AppendUint64(append(slices.Clone(secret), what), amount))
		return err
	})
}

// dial tries a node's addresses one after the other: workers that are told one of them have no better way.
func dial(ctx context.Context, addresses []string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	err := errors.New("it named no address")
	for _, a := range addresses {
		var c net.Conn
		if c, err = new(net.Dialer).DialContext(ctx, "tcp", a); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// ping measures the way, and by the quickest one the clock.
func (p *Pair) ping(c net.Conn) error {
	var all []float64
	quickest := time.Hour
	b := make([]byte, 1+8)
	for range pings {
		began := time.Now()
		if _, err := c.Write(b[:1]); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return err
		}
		took := time.Since(began)
		all = append(all, float64(took)/2)
		if took < quickest {
			quickest = took
			p.Skew = time.Unix(0, int64(binary.BigEndian.Uint64(b[1:]))).Sub(began.Add(took / 2).Round(0))
		}
	}
	p.Latency = time.Duration(median(all))
	return nil
}

func mbps(n int64, took time.Duration) float64 {
	if took <= 0 {
		return 0
	}
	return float64(n) * 8 / took.Seconds() / 1e6
}
