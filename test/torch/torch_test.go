package torch

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous"
	"github.com/muster-run/muster/rendezvous/tcpstore"
)

// TestTorch runs every part once per build. Importing PyTorch takes most of the time, so a build does it once.
func TestTorch(t *testing.T) {
	for _, b := range builds {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			s := open(t, b)
			t.Run("client of our store", s.clientVerbs)
			t.Run("our client", s.ourClient)
			t.Run("groups over our store", s.groups)
			t.Run("requests", s.requests)
			t.Run("second attempt", s.secondAttempt)
			t.Run("rank 0 hosts", s.rankZeroHosts)
			t.Run("an agent hosts", s.agentHosts)
			t.Run("an agent hosts, 1", s.agentHostsOne)
			t.Run("torchrun", s.torchrun)
			t.Run("states of torchrun", s.states)
			t.Run("a node among torchrun", s.joinTorchrun)
		})
	}
}

// serve serves an empty store until the test ends and returns its port.
func serve(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "[::]:0")
	if err != nil {
		t.Fatal(err)
	}
	server := new(tcpstore.Server)
	var served sync.WaitGroup
	served.Go(func() { server.Serve(ln) })
	t.Cleanup(func() {
		server.Close()
		served.Wait()
	})
	return ln.Addr().(*net.TCPAddr).Port
}

// dial connects our client to the store at port of this machine; it is closed when the test ends.
func dial(t *testing.T, ctx context.Context, port int) *tcpstore.Client {
	t.Helper()
	c, err := tcpstore.Dial(ctx, fmt.Sprintf("127.0.0.1:%d", port), tcpstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// clientVerbs: PyTorch's client uses every verb that it has on our store, by IPv4 and IPv6.
func (s *stage) clientVerbs(t *testing.T) {
	port := strconv.Itoa(serve(t))
	for i, host := range []string{"127.0.0.1", "::1", "localhost"} {
		out := s.must(t, world{Script: "client_verbs.py", Args: []string{host, port, fmt.Sprint("p", i)}, Envs: ranks(1, 0, nil)})
		if i == 0 {
			t.Log(strings.TrimSpace(out))
		}
	}
}

// groups: process groups of four ranks whose store is ours, and every kind of barrier in them.
func (s *stage) groups(t *testing.T) {
	for _, script := range []string{"env_group.py", "new_group.py"} {
		s.must(t, world{Script: script, Args: []string{"4"}, Envs: ranks(4, serve(t), agentHosted(0))})
	}
}

// requests: what a process group of four costs our store is what it costs PyTorch's own.
func (s *stage) requests(t *testing.T) {
	const n = 4
	p := count(t, serve(t), !s.modern)
	s.must(t, world{Script: "env_group.py", Args: []string{"4"}, Envs: ranks(n, p.port(), agentHosted(0))})
	got := p.stop(t)
	want := map[string]int{"connections": n, "VALIDATE": n, "PING": n, "ADD": n, "SET": n, "GET": n * n, "WAIT": 2 * n * n}
	switch s.name {
	case "1.13": // two connections each, and a barrier in the store that polls
		want = map[string]int{"connections": 2 * n, "SET": 2*n + 1, "GET": (n - 1) * (3*n + 2) / 2, "WAIT": (n - 1) * (5*n + 4) / 2}
		if got["ADD"] < 3*n {
			t.Errorf("%d ADD, fewer than 3 for each rank", got["ADD"])
		}
		delete(got, "ADD")
	case "2.6": // its gloo does not read a rank's own key
		want["GET"], want["WAIT"] = n*(n-1), 2*n*(n-1)
	}
	if spell(got) != spell(want) {
		t.Errorf("requests of %d ranks:\n got %s\nwant %s", n, spell(got), spell(want))
	}
}

// secondAttempt: after a failed attempt the next one, on a store of its own, sees nothing of the first.
func (s *stage) secondAttempt(t *testing.T) {
	first := s.run(t, world{Script: "fail_group.py", Args: []string{"2"}, Envs: ranks(2, serve(t), agentHosted(0))})
	if first.ok() || !strings.HasPrefix(first.Ends[1], "exit 3") {
		t.Errorf("the first attempt ended %q\n%s", first.Ends, first.Output)
	}
	port := serve(t)
	s.must(t, world{Script: "fail_group.py", Args: []string{"2"}, Envs: ranks(2, port, agentHosted(1))})
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	keys, err := dial(t, ctx, port).ListKeys(ctx)
	if err != nil {
		t.Fatal(err)
	}
	old := func(key string) bool { return strings.HasPrefix(key, "/worker/attempt_0") }
	if len(keys) == 0 || slices.ContainsFunc(keys, old) {
		t.Errorf("keys of the second attempt: %q", keys)
	}
}

// keepPort binds a port that nobody else then gets, save who sets SO_REUSEADDR and asks for it by number.
func keepPort(t *testing.T) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet6{}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return at.(*unix.SockaddrInet6).Port
}

// ourClient: our client uses every verb on the stores that PyTorch hosts.
func (s *stage) ourClient(t *testing.T) {
	for _, kind := range s.stores() {
		t.Run(kind, func(t *testing.T) { s.useStore(t, kind) })
	}
}

func (s *stage) useStore(t *testing.T, kind string) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	port := freePorts(t, 1)[0]
	var hosted sync.WaitGroup
	hosted.Go(func() {
		s.must(t, world{Script: "host_store.py", Args: []string{strconv.Itoa(port), kind}, Envs: ranks(1, 0, nil)})
	})
	defer hosted.Wait()
	c := dial(t, ctx, port)
	if want := map[bool]string{false: "1.13", true: "2.5+"}[s.modern]; c.Dialect() != want {
		t.Errorf("dialect %s, want %s", c.Dialect(), want)
	}
	s.useVerbs(t, ctx, c, kind)
	s.probe(t, ctx, c, port)
	s.crossing(t, ctx, c, dial(t, ctx, port))
	meet(t, ctx, port)
	check(t, "set done", c.Set(ctx, "done", []byte("yes")))
	check(t, "wait seen", c.Wait(ctx, "seen"))
	check(t, "set bye", c.Set(ctx, "bye", []byte("yes")))
}

// meet makes nodes agree on a world, and a spare take a place in the next one, in a store that PyTorch hosts.
func meet(t *testing.T, ctx context.Context, port int) {
	terms := job.Terms{Nodes: 2, Spares: 1}
	var all [3]*rendezvous.Session
	join := func(i int, o rendezvous.Options) {
		var err error
		all[i], err = rendezvous.Join(ctx, dial(t, ctx, port), job.Spec{ID: "meeting", Terms: terms, Self: job.Node{
			Name: fmt.Sprint("host", i), Index: i, Slots: 8, Incarnation: fmt.Sprint("life", i)}}, o)
		check(t, "join", err)
	}
	var first, spare sync.WaitGroup
	for i := range 2 {
		first.Go(func() { join(i, rendezvous.Options{}) })
	}
	first.Wait()
	if t.Failed() {
		return
	}
	standing := make(chan struct{})
	var once sync.Once
	spare.Go(func() {
		join(2, rendezvous.Options{Progress: func(rendezvous.Status) { once.Do(func() { close(standing) }) }})
	})
	<-standing
	before := all[0].World
	check(t, "end", all[0].End(ctx, rendezvous.Over{Expect: 2}))
	join(1, rendezvous.Options{Seen: before.Generation, Previous: &before})
	spare.Wait()
	if t.Failed() {
		return
	}
	for i, rank := range map[int]int{1: 1, 2: 0} {
		if s := all[i]; s.Rank != rank || s.World.Generation != before.Generation+1 || s.World.Nonce != all[1].World.Nonce {
			t.Errorf("node %d has rank %d in %+v", i, s.Rank, s.World)
		}
		all[i].Close()
	}
}

func check(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// useVerbs leaves in the store what host_store.py checks.
func (s *stage) useVerbs(t *testing.T, ctx context.Context, c *tcpstore.Client, kind string) {
	equal := func(what string, got []byte, err error, want string) {
		t.Helper()
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", what, got, err, want)
		}
	}
	sum := func(what string, got int64, err error, want int64) {
		t.Helper()
		if err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", what, got, err, want)
		}
	}
	v, err := c.Get(ctx, "from the host")
	equal("get from the host", v, err, "hello")
	check(t, "set", c.Set(ctx, "k", []byte("v")))
	check(t, "set empty", c.Set(ctx, "e", nil))
	v, err = c.Get(ctx, "e")
	equal("get empty", v, err, "")
	n, err := c.Add(ctx, "n", 5)
	sum("add", n, err, 5)
	n, err = c.Add(ctx, "n", -7)
	sum("add", n, err, -2)
	v, err = c.CompareSet(ctx, "c", nil, []byte("x"))
	equal("compare_set creates", v, err, "x")
	v, err = c.CompareSet(ctx, "c", []byte("y"), []byte("z"))
	equal("compare_set refuses", v, err, "x")
	v, err = c.CompareSet(ctx, "c", []byte("x"), []byte("z"))
	equal("compare_set swaps", v, err, "z")
	yes, err := c.Check(ctx, "k", "c")
	if !yes || err != nil {
		t.Errorf("check of present keys: %v, %v", yes, err)
	}
	yes, err = c.Check(ctx, "k", "missing")
	if yes || err != nil {
		t.Errorf("check of a missing key: %v, %v", yes, err)
	}
	check(t, "wait", c.Wait(ctx, "k", "c", "n"))
	check(t, "multi_set", c.MultiSet(ctx, []string{"m1", "m2"}, [][]byte{[]byte("A"), []byte("BB")}))
	two, err := c.MultiGet(ctx, "m2", "m1")
	equal("multi_get", bytes.Join(two, []byte(",")), err, "BB,A")
	check(t, "set", c.Set(ctx, "gone", []byte("soon")))
	for _, want := range []bool{true, false} {
		if was, err := c.Delete(ctx, "gone"); was != want || err != nil {
			t.Errorf("delete: %v, %v; want %v", was, err, want)
		}
	}
	n, err = c.NumKeys(ctx)
	sum("num_keys", n, err, 7) // from the host, k, e, n, c, m1, m2
	s.useNewVerbs(t, ctx, c, kind)
}

// useNewVerbs uses the verbs that only some versions have. Where the store lacks one, the client must say so, one way
// or the other, and go on working.
func (s *stage) useNewVerbs(t *testing.T, ctx context.Context, c *tcpstore.Client, kind string) {
	has := func(verb string, there bool, err error) {
		t.Helper()
		if there != (err == nil) {
			t.Errorf("%s: %v; the store has it: %v", verb, err, there)
		}
	}
	list, barrier := s.name == "2.14" || s.name == "2.15", s.name == "2.14" || s.name == "2.15"
	has("append", s.modern, c.Append(ctx, "a", []byte("12")))
	has("append", s.modern, c.Append(ctx, "a", []byte("3")))
	keys, err := c.ListKeys(ctx)
	has("list_keys", list, err)
	if list && !slices.Contains(keys, "from the host") {
		t.Errorf("list_keys: %q", keys)
	}
	has("barrier", barrier, c.Barrier(ctx, "b", 1))
	has("queue_push", kind == "libuv", c.Push(ctx, "q", []byte("A")))
	has("queue_push", kind == "libuv", c.Push(ctx, "q", []byte("B")))
	if kind == "libuv" {
		if v, err := c.Pop(ctx, "q"); err != nil || string(v) != "A" {
			t.Errorf("queue_pop: %q, %v", v, err)
		}
		if n, err := c.QueueLen(ctx, "q"); err != nil || n != 1 {
			t.Errorf("queue_len: %d, %v", n, err)
		}
	}
}

// probe: another client of ours that finds out what the store speaks does not disturb the one that is there. A store of
// 1.13 has one thread, which half a request would stall.
func (s *stage) probe(t *testing.T, ctx context.Context, c *tcpstore.Client, port int) {
	for range 5 {
		begin := time.Now()
		other, err := tcpstore.Dial(ctx, fmt.Sprintf("127.0.0.1:%d", port), tcpstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Add(ctx, "probed", 1)
		check(t, "add beside a probe", err)
		other.Close()
		if took := time.Since(begin); took > 8*time.Second { // a stalled store answers nothing for 10 s
			t.Errorf("a probe and a request beside it took %v", took)
		}
	}
}

// crossing: waits that end at the moment when their key appears leave the connection in step.
func (s *stage) crossing(t *testing.T, ctx context.Context, c, other *tcpstore.Client) {
	released, cancelled := 0, 0
	for i := range 200 {
		key := fmt.Sprint("crossing", i)
		short, cancel := context.WithCancel(ctx)
		var set sync.WaitGroup
		set.Go(func() {
			if i%2 == 0 {
				cancel()
			}
			check(t, "set", other.Set(ctx, key, []byte("there")))
			cancel()
		})
		if c.Wait(short, key) == nil {
			released++
		} else {
			cancelled++
		}
		set.Wait()
		if n, err := c.Add(ctx, "crossings", 1); err != nil || n != int64(i+1) {
			t.Fatalf("after %d waits: add %d, %v", i+1, n, err)
		}
	}
	t.Logf("%d waits released, %d cancelled", released, cancelled)
	for _, key := range []string{"probed", "crossings"} {
		_, err := c.Delete(ctx, key)
		check(t, "delete", err)
	}
}

// TestOnePort: clients of the oldest and the newest PyTorch use one port at once, every verb, and read each other's keys.
func TestOnePort(t *testing.T) {
	t.Parallel()
	var stages []*stage
	var names []string
	for _, b := range []build{builds[0], builds[len(builds)-1]} {
		stages, names = append(stages, open(t, b)), append(names, b.name)
	}
	port := strconv.Itoa(serve(t))
	var all sync.WaitGroup
	for _, s := range stages {
		all.Go(func() {
			args := append([]string{"127.0.0.1", port, s.name}, names...)
			s.must(t, world{Script: "exchange.py", Args: args, Envs: ranks(1, 0, nil)})
			s.must(t, world{Script: "client_verbs.py", Args: []string{"127.0.0.1", port, s.name}, Envs: ranks(1, 0, nil)})
		})
	}
	all.Wait()
}
