package horovod

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// ask sends one request to a server.
func ask(s *Server, method, path, body string) (status int, answer string) {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Code, w.Body.String()
}

// want asks, and compares.
func want(t *testing.T, s *Server, method, path, body string, status int, answer string) {
	t.Helper()
	if code, got := ask(s, method, path, body); code != status || got != answer {
		t.Errorf("%s %s: %d %q, want %d %q", method, path, code, got, status, answer)
	}
}

// A client of Horovod's, as its C++ one is: each request has a connection of its own, which it closes when it has read as many bytes as
// Content-Length tells, a word that it knows in that form alone.
type client struct {
	t    *testing.T
	addr string
}

func (c client) ask(method, path, body string) (status, answer string) {
	conn, err := net.Dial("tcp", c.addr)
	if err != nil {
		c.t.Error(err)
		return "", ""
	}
	defer conn.Close()
	host, _, _ := net.SplitHostPort(c.addr)
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", method, path, host, len(body), body)
	in := bufio.NewReader(conn)
	length := -1
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			c.t.Errorf("%s %s: %v", method, path, err)
			return "", ""
		}
		if line == "\r\n" {
			break
		}
		if status == "" {
			status = strings.Fields(line)[1]
		}
		if name, value, _ := strings.Cut(line, ":"); name == "Content-Length" {
			fmt.Sscan(value, &length)
		}
	}
	if length < 0 {
		c.t.Errorf("%s %s: no Content-Length", method, path)
		return status, ""
	}
	b := make([]byte, length)
	if _, err := io.ReadFull(in, b); err != nil {
		c.t.Errorf("%s %s: %v", method, path, err)
	}
	return status, string(b)
}

// join is what a rank does in a scope: gloo::rendezvous::Context::connectFullMesh, and the end of Horovod's Rendezvous (gloo_context.cc).
func (c client) join(scope string, rank, size int, connected *sync.WaitGroup) (addrs []string) {
	key := func(of any) string { return fmt.Sprintf("/%s/%v", scope, of) }
	c.ask("PUT", key(fmt.Sprint("rank_", rank)), "host")
	for i := range rank {
		c.ask("GET", key(fmt.Sprint("rank_", i)), "")
	}
	c.ask("PUT", key(rank), fmt.Sprintf("%s addresses of %d\x00", scope, rank))
	for i := range size {
		if i == rank {
			continue
		}
		for status := ""; status != "200"; {
			var value string
			if status, value = c.ask("GET", key(i), ""); status == "200" {
				addrs = append(addrs, value)
			} else if status != "404" {
				c.t.Errorf("GET %s: %s", key(i), status)
				return addrs
			}
		}
	}
	connected.Done() // gloo::barrier
	connected.Wait()
	if status, _ := c.ask("DELETE", key(rank), ""); status != "200" {
		c.t.Errorf("DELETE %s: %s", key(rank), status)
	}
	return addrs
}

// Two nodes with two and one workers find each other in all scopes, twice, as after hvd.shutdown: what is left of the first time is in nobody's way.
func TestWorld(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	s := &Server{World: World{2, 1}, Log: func(text string) { t.Error(text) }}
	served := make(chan error)
	go func() { served <- s.Serve(ctx, ln) }()
	c := client{t, ln.Addr().String()}
	for range 2 {
		var scopes = []struct {
			name string
			size int
		}{{"global", 3}, {"local_node-0", 2}, {"local_node-1", 1}, {"cross_0", 2}, {"cross_1", 1}, {"global_process_set_hash_9ae16a3b2f90404f", 2}}
		for _, scope := range scopes {
			var all, connected sync.WaitGroup
			connected.Add(scope.size)
			for rank := range scope.size {
				all.Go(func() {
					got := c.join(scope.name, rank, scope.size, &connected)
					if len(got) != scope.size-1 {
						t.Errorf("%s: rank %d read %d values", scope.name, rank, len(got))
					}
				})
			}
			all.Wait()
		}
		s.mu.Lock()
		if len(s.scopes) > 0 || s.held != 0 || len(s.asked) > 0 {
			t.Errorf("left are %v, of %d bytes, %v", s.scopes, s.held, s.asked)
		}
		s.mu.Unlock()
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// A request for the address of a rank waits for it; one for the name of its host does not, for the client goes on without.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{World: World{2}}
		began := time.Now()
		want(t, s, "GET", "/global/rank_1", "", http.StatusNotFound, "")
		if since := time.Since(began); since != 0 {
			t.Errorf("the name of a host took %v", since)
		}
		want(t, s, "GET", "/global/1", "", http.StatusNotFound, "")
		if since := time.Since(began); since != hold {
			t.Errorf("404 after %v", since)
		}
		got := make(chan string)
		for range 2 {
			go func() {
				_, value := ask(s, "GET", "/global/1", "")
				got <- value
			}()
		}
		synctest.Wait()
		want(t, s, "PUT", "/global/1", "there", http.StatusOK, "")
		if a, b := <-got, <-got; a != "there" || b != "there" || time.Since(began) != hold {
			t.Errorf("%q and %q after %v", a, b, time.Since(began))
		}
		if len(s.asked) > 0 {
			t.Errorf("left are %v", s.asked)
		}
	})
}

// A scope of the world stays until its last rank has left: others may still read.
func TestLeave(t *testing.T) {
	s := &Server{World: World{2}}
	want(t, s, "PUT", "/global/0", "a", http.StatusOK, "")
	want(t, s, "DELETE", "/global/0", "", http.StatusOK, "")
	want(t, s, "DELETE", "/global/0", "", http.StatusOK, "")
	want(t, s, "GET", "/global/0", "", http.StatusOK, "a")
	want(t, s, "DELETE", "/global/1", "", http.StatusOK, "")
	want(t, s, "GET", "/global/rank_0", "", http.StatusNotFound, "")
	want(t, s, "DELETE", "/cross_0/0", "", http.StatusOK, "")
	if len(s.scopes) > 0 || s.held != 0 {
		t.Errorf("left are %v, of %d bytes", s.scopes, s.held)
	}
}

// None but the ranks of this world are served, and no more than they need.
func TestRefused(t *testing.T) {
	var told []string
	s := &Server{World: World{2, 1}, Log: func(text string) { told = append(told, text) }}
	for _, c := range []struct {
		method, path string
		size         int
		status       int
		why          string
	}{
		{"PUT", "/global", 1, 400, "the path has the form /SCOPE/KEY"},
		{"PUT", "/global/3", 1, 400, "there are 3 ranks in that scope: is it another job's?"},
		{"PUT", "/global/-1", 1, 400, "a key is the number of a rank"},
		{"PUT", "/global/00", 1, 400, "a key is the number of a rank"},
		{"PUT", "/global/1/2", 1, 400, "a key is the number of a rank"},
		{"PUT", "/global1/1", 1, 400, "is HOROVOD_HOSTNAME another than muster gave?"},
		{"GET", "/local_gpu-7.cluster/0", 0, 400, "is HOROVOD_HOSTNAME another than muster gave?"},
		{"GET", "/local_node-2/0", 0, 400, "this world has no such scope"},
		{"GET", "/cross_2/0", 0, 400, "this world has no such scope"},
		{"GET", "/cross_1/1", 0, 400, "there are 1 ranks in that scope"},
		{"GET", "/rank_and_size/node-0:0", 0, 400, "there is no such scope"},
		{"PUT", "/global/0", 3*maxAddress + maxRest + 1, 413, "a value has at most 5632 bytes there"},
		{"PUT", "/worker_addresses/node-0:1", maxElastic + 1, 413, "a value has at most 65536 bytes there"},
		{"DELETE", "/global/rank_0", 0, 400, "a rank leaves by its number"},
		{"POST", "/global/0", 1, 405, "there are PUT, GET and DELETE"},
	} {
		told = nil
		s.refused = 0
		if code, got := ask(s, c.method, c.path, strings.Repeat("x", c.size)); code != c.status || !strings.Contains(got, c.why) {
			t.Errorf("%s %s of %d bytes: %d %q, want %d %q", c.method, c.path, c.size, code, got, c.status, c.why)
		}
		if len(told) != 1 || !strings.Contains(told[0], c.why) || !strings.Contains(told[0], "192.0.2.1:1234") {
			t.Errorf("%s %s: told %q", c.method, c.path, told)
		}
	}
	want(t, s, "PUT", "/worker_addresses/node-0:1", "pickled", http.StatusOK, "")
	want(t, s, "GET", "/worker_addresses/node-0:1", "", http.StatusNotFound, "")
	full := false
	for i := 0; i < 100 && !full; i++ {
		code, got := ask(s, "PUT", fmt.Sprintf("/global_process_set_hash_%x/0", i), strings.Repeat("x", 3*maxAddress))
		full = code == http.StatusInsufficientStorage && strings.Contains(got, "bytes already")
	}
	if !full {
		t.Error("there is no end to what it keeps")
	}
	told, s.refused = nil, 0
	for range maxTold + 5 {
		ask(s, "GET", "/x/y", "")
	}
	if len(told) != maxTold {
		t.Errorf("told %d times", len(told))
	}
}

// Strangers that open connections and say nothing take places, and no more than there are; who goes makes room.
func TestLimit(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limited := limit(ln, 2)
	taken := make(chan net.Conn)
	go func() {
		defer close(taken)
		for {
			conn, err := limited.Accept()
			if err != nil {
				return
			}
			taken <- conn
		}
	}()
	for range 3 {
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	first := <-taken
	defer (<-taken).Close()
	if len(limited.places) != 2 {
		t.Errorf("%d places are taken", len(limited.places))
	}
	select {
	case <-taken:
		t.Error("a third connection found a place")
	default:
	}
	first.Close()
	first.Close() // as net/http does; it had one place
	defer (<-taken).Close()
	if len(limited.places) != 2 {
		t.Errorf("%d places are taken", len(limited.places))
	}
	limited.Close()
	if _, more := <-taken; more {
		t.Error("accepted behind its end")
	}
}

func TestCross(t *testing.T) {
	for _, c := range []struct {
		world            World
		node, local      int
		wantRank, wantOf int
	}{
		{World{2, 2}, 1, 1, 1, 2},
		{World{2, 1, 2}, 2, 1, 1, 2},
		{World{2, 1, 2}, 2, 0, 2, 3},
		{World{1}, 0, 0, 0, 1},
	} {
		if rank, of := c.world.Cross(c.node, c.local); rank != c.wantRank || of != c.wantOf {
			t.Errorf("%v, node %d, local rank %d: %d of %d, want %d of %d", c.world, c.node, c.local, rank, of, c.wantRank, c.wantOf)
		}
	}
}

// Other nodes of muster's can ask whether anybody has come; a server that does not know the question is an error.
func TestHasCome(t *testing.T) {
	s := &Server{World: World{1, 1}}
	server := httptest.NewServer(s)
	defer server.Close()
	addr := server.Listener.Addr().String()
	for _, want := range []bool{false, true} {
		if came, err := HasCome(t.Context(), addr); came != want || err != nil {
			t.Errorf("%v, %v; want %v", came, err, want)
		}
		ask(s, "PUT", "/global/1", "addresses")
	}
	older := httptest.NewServer(http.NotFoundHandler())
	defer older.Close()
	if came, err := HasCome(t.Context(), older.Listener.Addr().String()); came || err == nil {
		t.Errorf("of an older one: %v, %v", came, err)
	}
}
