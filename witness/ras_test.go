package witness

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
)

// rasServer answers connections as NCCL's watch does: serve is told which connection it is, counted from 0, and speaks on it. The
// server is gone when the test ends.
func rasServer(t *testing.T, serve func(n int, c rasClient)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				serve(n, rasClient{c, bufio.NewScanner(c)})
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return l.Addr().String()
}

// A rasClient is the server's end of a connection.
type rasClient struct {
	net.Conn
	in *bufio.Scanner
}

// silent says nothing until the client has gone.
func (c rasClient) silent() { io.Copy(io.Discard, c) }

// speak answers the commands as a version of NCCL does and gives the report. It returns the commands.
func (c rasClient) speak(knowsJSON bool, report string) (commands []string) {
	for c.in.Scan() {
		commands = append(commands, c.in.Text())
		switch word, _, _ := strings.Cut(strings.ToLower(c.in.Text()), " "); word {
		case "client":
			fmt.Fprint(c, "SERVER PROTOCOL 2\n")
		case "timeout":
			fmt.Fprint(c, "OK\n")
		case "set":
			if knowsJSON {
				fmt.Fprint(c, "OK\n")
			} else {
				fmt.Fprintf(c, "ERROR: Unknown command %s\n", c.in.Text())
			}
		case "status", "verbose":
			fmt.Fprint(c, report)
			return commands
		}
	}
	return commands
}

func file(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The reports of several versions, each over a connection.
func TestRASReports(t *testing.T) {
	for _, c := range []struct {
		file     string
		json     bool
		commands string
		want     RASReport
	}{
		{"ras-2.29.json", true, "CLIENT PROTOCOL 2, TIMEOUT 2, SET FORMAT json, STATUS", RASReport{Version: "2.29.2", Groups: 2, Peers: []RASPeer{
			{"10.0.0.2", 812, 1, "9d2f", 1, "AllReduce: 511, others 512"},
		}}},
		{"ras-2.28.7-missing.json", true, "CLIENT PROTOCOL 2, TIMEOUT 2, SET FORMAT json, STATUS", RASReport{Version: "2.28.7", Groups: 1, Timeouts: 1, Peers: []RASPeer{
			{"10.0.0.2", 812, 1, "9d2f", 1, "unresponsive"},
			{"", 0, 2, "9d2f", 2, "dead"},
			{"10.0.0.2", 814, 3, "9d2f", 3, "missing"},
			{"10.0.0.1", 410, 0, "9d2f", 0, "reported Remote process error"},
		}}},
		{"ras-2.24.txt", false, "CLIENT PROTOCOL 2, TIMEOUT 2, SET FORMAT json, VERBOSE STATUS", RASReport{Version: "2.24.3+cuda12.8", Timeouts: 1, Peers: []RASPeer{
			{"172.16.64.210", 3487, 5, "", -1, "unresponsive"},
			{"172.16.64.211", 991, 0, "", -1, "dead"},
			{Group: "9d2f6ee4c8a1b203", Rank: 5, Odd: "missing"},
			{Group: "9d2f6ee4c8a1b203", Rank: 7, Odd: "missing"},
			{"172.16.64.210", 3481, 0, "9d2f6ee4c8a1b203", 0, "reported Remote process error"},
			{"172.16.64.210", 3483, 1, "9d2f6ee4c8a1b203", 1, "status: INIT"},
			{"172.16.64.210", 3484, 2, "9d2f6ee4c8a1b203", 2, "collective: launched up to operation 511"},
			{"172.16.64.210", 3485, 3, "9d2f6ee4c8a1b203", 3, "AllReduce: not launched any operations"},
			{"172.16.64.210", 3486, 4, "9d2f6ee4c8a1b203", 4, "AllReduce: not launched any operations"},
			{Group: "9d2f6ee4c8a1b203", Rank: 6, Odd: "AllReduce: launched up to operation 3"},
		}}},
	} {
		t.Run(c.file, func(t *testing.T) {
			commands := make(chan []string, 1)
			addr := rasServer(t, func(n int, s rasClient) { commands <- s.speak(c.json, file(t, c.file)) })
			r, err := AskRAS(t.Context(), addr)
			if string(r.Text) != file(t, c.file) {
				t.Errorf("kept %q", r.Text)
			}
			r.Text = nil
			if err != nil || !reflect.DeepEqual(r, c.want) {
				t.Errorf("%v\ngot  %+v\nwant %+v", err, r, c.want)
			}
			if got := strings.Join(<-commands, ", "); got != c.commands {
				t.Errorf("said %s", got)
			}
		})
	}
}

// The first to answer are a process that is stopped, one that goes away, and one that says less than it should: another one is asked.
func TestRASTriesAgain(t *testing.T) {
	addr := rasServer(t, func(n int, c rasClient) {
		switch n {
		case 0:
			c.silent()
		case 1:
			c.speak(true, `{"nccl_version": "2.29.2", "communi`)
		case 2:
		default:
			c.speak(true, `{"nccl_version": "2.29.2"}`)
		}
	})
	if r, err := AskRAS(t.Context(), addr); err != nil || r.Version != "2.29.2" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRASRefuses(t *testing.T) {
	for _, c := range []struct {
		name, want string
		serve      func(c rasClient)
	}{
		{"another server", `what answers is not NCCL: it says "HTTP/1.1 400 Bad Request"`, func(c rasClient) {
			c.in.Scan()
			fmt.Fprint(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		}},
		{"no end of a line", "bufio: buffer full", func(c rasClient) { fmt.Fprint(c, strings.Repeat("x", 5000)); c.silent() }},
		{"no JSON", "report of 4 bytes: invalid character", func(c rasClient) { c.speak(true, "what") }},
		{"endless", "the report is longer than 33554432 bytes", func(c rasClient) {
			c.speak(true, "")
			for {
				if _, err := c.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr := rasServer(t, func(_ int, s rasClient) { c.serve(s) })
			if r, err := AskRAS(t.Context(), addr); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	if _, err := AskRAS(t.Context(), "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "nobody listens") {
		t.Error(err)
	}
}

// Who asked may lose interest.
func TestRASStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	addr := rasServer(t, func(_ int, c rasClient) {
		cancel()
		c.silent()
	})
	if _, err := AskRAS(ctx, addr); err == nil || !strings.HasSuffix(err.Error(), "context canceled") {
		t.Error(err)
	}
}

// Too many odd peers are counted, not kept.
func TestRASIsBounded(t *testing.T) {
	var text strings.Builder
	text.WriteString("#0-0 (1) INCOMPLETE\n  The missing ranks: 0")
	for i := range 999 {
		fmt.Fprintf(&text, ",%d", i+1)
	}
	if r := parseRASText([]byte(text.String() + "\n")); len(r.Peers) != maxRASPeers || r.More != 1000-maxRASPeers {
		t.Errorf("%d peers and %d more", len(r.Peers), r.More)
	}
}

func FuzzRASText(f *testing.F) {
	f.Add([]byte("DEAD\n  Process 1 on node a managing GPU 0\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if r := parseRASText(text); len(r.Peers) > maxRASPeers {
			t.Errorf("%d peers", len(r.Peers))
		}
	})
}

func FuzzRASJSON(f *testing.F) {
	f.Add([]byte(`{"communicators": [{"ranks": [{"rank": 1, "collective_counts": {"AllReduce": 1}}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) { parseRASJSON(text) })
}
