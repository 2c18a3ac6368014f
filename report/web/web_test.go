package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/test/golden"
)

// A scene is a job that a test moves.
type scene struct {
	mu      sync.Mutex
	v       View
	changed chan struct{}
}

func (s *scene) view() View {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.v
}

func (s *scene) changes() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// becomes shows another view.
func (s *scene) becomes(f func(*View)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.v.Ranks = append([]report.StatusRank(nil), s.v.Ranks...)
	f(&s.v)
	close(s.changed)
	s.changed = make(chan struct{})
}

// serve serves it at a port, and at a socket.
func (s *scene) serve(t testing.TB, tokens ...string) (url, socket string) {
	t.Helper()
	s.changed = make(chan struct{})
	server := New(Config{
		View: s.view, Changed: s.changes, Tokens: tokens, Host: "ann.example.com", Log: slog.New(slog.DiscardHandler),
		Live: func() error { return nil }, Ready: func() error { return errors.New("the agent does not listen yet") },
		Machine: func(_ context.Context, node int) ([]byte, error) {
			if node > 1 {
				return nil, fmt.Errorf("node %d <is> old", node)
			}
			return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" width="7%d" height="70"/>`, node+1), nil
		},
	})
	t.Cleanup(server.Close)
	at, err := ParseAddress("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln, err := at.Listen()
	if err != nil {
		t.Fatal(err)
	}
	server.Serve(ln)
	socket = filepath.Join(t.TempDir(), "page.sock")
	local, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server.Serve(local)
	return "http://" + ln.Addr().String(), socket
}

// training is a healthy job of two nodes of so many ranks each.
func training(nodes, each int) View {
	zero := 0
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	v := View{Status: report.Status{
		Schema: report.StatusSchema, Job: "mnist", Host: "ann", PID: 12, Version: "v1", Began: at, Phase: report.Running, Since: at, Node: &zero, World: nodes * each, MaxRestarts: 3,
		Workers: []report.StatusWorker{{Rank: 0, PID: 20, State: "running", Step: 1804, Beats: "recorder", CPU: 61, Memory: 3 << 20}},
		Order:   "by name",
	}}
	for n := range nodes {
		v.Nodes = append(v.Nodes, report.StatusNode{Name: fmt.Sprintf("gpu-%03d", n)})
		for local := range each {
			v.Ranks = append(v.Ranks, report.StatusRank{Rank: n*each + local, Node: n, State: report.RankRuns, Step: 1804})
		}
	}
	v.Spent = &job.Account{Laps: []job.Lap{{World: nodes * each, Meet: 20 * time.Millisecond, Load: 1900 * time.Millisecond, Train: 3 * time.Minute}}}
	return v
}

// killed is the same when rank 3 died.
func killed(v *View) {
	f := job.Failure{Node: "gpu-001", Group: 1, Rank: 3, LocalRank: 1, PID: 4711, Exit: job.Exit{Signal: 9}, Exception: "ValueError: bad <batch>", Hint: "look at <it>",
		Tail: []string{"Traceback (most recent call last):", "  File \"train.py\", line 7", "ValueError: bad <batch>"}}
	v.Phase, v.Failures, v.Causes = report.Stopping, []job.Failure{f}, []string{f.String()}
	for i := range v.Ranks {
		v.Ranks[i].State = report.RankStops
	}
	v.Ranks[3].State, v.Ranks[3].Note = report.RankFailed, f.Exit.String()
}

// again is the same in the next round.
func again(v *View) {
	f := v.Failures[0]
	v.Phase, v.Failures, v.Causes, v.Round = report.Running, nil, nil, 1
	v.Past, v.Rounds = []job.Round{{Message: f.String(), First: &f}}, []report.StatusRound{{Message: f.String()}}
	was := v.Spent.Laps[0]
	was.Over, was.Why, was.Detect, was.Stop = true, f.String(), 12*time.Millisecond, 210*time.Millisecond
	v.Spent = &job.Account{Laps: []job.Lap{was, {Round: 1, World: v.World, Meet: 80 * time.Millisecond, Load: 2 * time.Second, Train: time.Second}}}
	for i := range v.Ranks {
		v.Ranks[i] = report.StatusRank{Rank: v.Ranks[i].Rank, Node: v.Ranks[i].Node, State: report.RankRuns, Step: 7}
	}
}

// What a page says of a job, to everybody and to its owner.
func TestGolden(t *testing.T) {
	v := training(2, 2)
	check := func(name string) {
		for who, o := range map[string]options{"": {machine: true}, "-owner": {owner: true}} {
			var b strings.Builder
			for _, f := range fragments(v, o) {
				b.WriteString(strings.ReplaceAll(string(f.markup()), "><", ">\n<") + "\n")
			}
			golden.File(t, filepath.Join("testdata", name+who+".html"), b.String())
		}
	}
	check("training")
	killed(&v)
	check("killed")
	again(&v)
	check("again")
	v.Verdict = &job.Verdict{Code: 137, Class: job.Killed, Sentence: "rank 3 was killed, after 1 restart", First: v.Past[0].First, Consequences: []job.Failure{{Rank: 1, Node: "gpu-000"}}}
	check("verdict")
	v = training(2, 2)
	v.Stage, v.Stall, v.Hang = "hung", "hang: rank 1 has not entered all_reduce #7 for 32 s; 3 others wait in it", &job.Hang{Class: "A", Quiet: 32 * time.Second, Waiting: 3, Op: "all_reduce", Number: 7, Culprits: []job.Culprit{{Rank: 1, Looks: "stopped, state T", Stack: []string{"data.py:8 load"}}}}
	v.Ranks[1].State, v.Ranks[2].State, v.Stood = report.RankHung, report.RankBlocked, time.UnixMilli(1_760_000_000_000)
	check("hang")
	v = View{Status: report.Status{Job: "j", Host: "ann", Phase: report.Meeting, Waits: "1 of 2 nodes here"}}
	check("meeting")
	// Between two worlds it is known what ended the last one.
	v.Waits, v.Rounds = "meeting for j: 2 of 1:3 nodes here", []report.StatusRound{{Message: "node 1 (gpu-001) was lost"}}
	v.Spent = &job.Account{Laps: []job.Lap{{World: 4, Over: true, Why: "node 1 (gpu-001) was lost", Train: time.Minute, Detect: time.Second, Stop: time.Second}}}
	check("between")
	v = training(2, 2)
	v.Causes, v.Phase, v.Nodes[1].Gone = []string{"node 1 (gpu-001) was lost: it closed the connection"}, report.Stopping, true
	if _, title, _ := v.headline(); title != "Node 1 (gpu-001) was lost, and all are being stopped" {
		t.Error(title)
	}
	v = training(2, 2)
	killed(&v)
	v.Phase, v.Spent, v.MaxRestarts, v.Round, v.Waits = report.Observing, nil, 0, 1, "the end of torchrun (pid 3), which is only observed"
	v.Rounds = []report.StatusRound{{Message: "rank 1 was killed"}}
	check("observing")
}

// Whatever workers, other nodes and users say, it is text.
func TestTextStaysText(t *testing.T) {
	const evil = "<script>alert(1)</script>\"'><img src=x onerror=y>\x1b[31m"
	v := training(2, 2)
	killed(&v)
	f := v.Failures[0]
	f.Node, f.Exception, f.Hint, f.Tail, f.Evidence = evil, evil, evil, []string{evil}, []job.Evidence{{Text: evil}}
	v.Job, v.Host, v.Version, v.Waits, v.Message, v.Stall, v.Stage, v.Suspects, v.Order = evil, evil, evil, evil, evil, evil, "hung", evil, evil
	v.Causes, v.Failures, v.Health, v.Clashes = []string{evil}, []job.Failure{f}, []string{evil}, []string{evil}
	v.Past, v.Rounds = []job.Round{{Message: evil, First: &f}}, []report.StatusRound{{Message: evil}}
	v.Hang = &job.Hang{Class: evil, Op: evil, Ops: []string{evil}, Stuck: []string{evil}, Culprits: []job.Culprit{{Looks: evil, Stack: []string{evil}}}}
	v.Stragglers = []job.Straggler{{Node: evil, Others: 1}}
	v.Spent.Laps[0].Why = evil
	v.Nodes[0] = report.StatusNode{Name: evil, Place: evil}
	v.Workers[0].State, v.Workers[0].Beats = evil, evil
	v.Ranks[3].Note, v.Ranks[2].State = evil, evil
	for _, verdict := range []*job.Verdict{nil, {Code: 1, Class: job.Failed, Sentence: evil, Hint: evil, First: &f, Hang: v.Hang, Consequences: []job.Failure{f}}} {
		v.Verdict = verdict
		page := document(v, options{owner: true, times: true, live: true, machine: true}, 1, "nonce")
		if strings.Contains(page, "<script>alert") || strings.Contains(page, "<img src=x") || strings.Contains(page, "\x1b") || strings.Count(page, "<script") != 1 {
			t.Errorf("text became more than text:\n%s", page)
		}
	}
}

// ask makes a request and returns its answer, with the body.
func ask(t *testing.T, method, url string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	return do(t, http.DefaultTransport, r)
}

func do(t *testing.T, by http.RoundTripper, r *http.Request) (*http.Response, string) {
	t.Helper()
	w, err := by.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w, string(body)
}

// Who may see what: nobody acts, what workers printed needs the token, and a name that may be anybody's does, too.
func TestDoor(t *testing.T) {
	const token, traceback = "a-secret-of-the-job", "most recent call last"
	s := &scene{v: training(2, 2)}
	killed(&s.v)
	url, socket := s.serve(t, "another", token)
	for _, c := range []struct {
		method, path string
		headers      []string
		code         int
		all          bool // what workers printed is there
	}{
		{"GET", "/", nil, 200, false},
		{"HEAD", "/", nil, 200, false},
		{"POST", "/", nil, 405, false},
		{"DELETE", "/events", []string{"Authorization", "Bearer " + token}, 405, false},
		{"GET", "/", []string{"Authorization", "Bearer " + token}, 200, true},
		{"GET", "/", []string{"Authorization", "Bearer another"}, 200, true},
		{"GET", "/", []string{"Authorization", "Bearer wrong"}, 401, false},
		{"GET", "/", []string{"Authorization", "Basic " + token}, 401, false},
		{"GET", "/?token=wrong", nil, 401, false},
		{"GET", "/", []string{"Cookie", "muster=wrong"}, 200, false},
		{"GET", "/", []string{"Host", "evil.example.org"}, 421, false},
		{"GET", "/status.json", []string{"Host", "evil.example.org:80"}, 421, false},
		{"GET", "/", []string{"Host", "evil.example.org", "Authorization", "Bearer " + token}, 200, true},
		{"GET", "/", []string{"Host", "mnist-master-0"}, 200, false},
		{"GET", "/", []string{"Host", "mnist-master-0.ns.svc:8080"}, 200, false},
		{"GET", "/", []string{"Host", "Ann.Example.Com."}, 200, false},
		{"GET", "/", []string{"Host", "[::1]:8080"}, 200, false},
		{"GET", "/healthz", []string{"Host", "evil.example.org"}, 200, false},
		{"GET", "/readyz", nil, 503, false},
		{"GET", "/machine.svg", nil, 200, false},
		{"GET", "/machine.svg?node=1", nil, 200, false},
		{"GET", "/machine.svg?node=-1", nil, 400, false},
		{"GET", "/machine.svg?node=2", nil, 503, false},
		{"GET", "/metrics", nil, 404, false},
		{"GET", "/../etc/passwd", nil, 404, false},
	} {
		w, body := ask(t, c.method, url+c.path, c.headers...)
		if w.StatusCode != c.code || strings.Contains(body, traceback) != c.all {
			t.Errorf("%s %s %q: %s, traceback %t:\n%s", c.method, c.path, c.headers, w.Status, strings.Contains(body, traceback), body)
		}
		if w.Header.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(w.Header.Get("Content-Security-Policy"), "default-src 'none'") || w.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s %s: %v", c.method, c.path, w.Header)
		}
	}

	w, _ := ask(t, "GET", url+"/?token="+token)
	cookies := w.Cookies()
	if w.StatusCode != 303 || w.Header.Get("Location") != "./" || len(cookies) != 1 || !cookies[0].HttpOnly || strings.Contains(cookies[0].Value, token) {
		t.Fatalf("%s, %v", w.Status, w.Header)
	}
	if w, _ := ask(t, "GET", url+"/machine.svg?node=1&token="+token); w.Header.Get("Location") != "./machine.svg?node=1" {
		t.Errorf("what else was asked for is not kept: %v", w.Header)
	}
	if w, body := ask(t, "GET", url+"/machine.svg?node=2"); w.Header.Get("Content-Type") != "image/svg+xml" || !strings.Contains(body, "node 2 &lt;is&gt; old") || !strings.Contains(w.Header.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("why there is no drawing: %v\n%s", w.Header, body)
	}
	if _, body := ask(t, "GET", url+"/", "Cookie", cookies[0].Name+"="+cookies[0].Value); !strings.Contains(body, traceback) {
		t.Errorf("the cookie does not open the page:\n%s", body)
	}

	local := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer local.CloseIdleConnections()
	r, _ := http.NewRequest("GET", "http://any.example.org/", nil)
	if w, body := do(t, local, r); w.StatusCode != 200 || !strings.Contains(body, traceback) {
		t.Errorf("by the socket: %s\n%s", w.Status, body)
	}
}

// A listener hears changes.
type listener struct {
	t  *testing.T
	in *bufio.Reader
}

func listen(t *testing.T, url string) *listener {
	t.Helper()
	w, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Body.Close() })
	if w.StatusCode != 200 || w.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s, %v", w.Status, w.Header)
	}
	return &listener{t, bufio.NewReader(w.Body)}
}

// next is the next event of which something is to be said; "": there is none any more.
func (l *listener) next() string {
	l.t.Helper()
	event := ""
	for {
		line, err := l.in.ReadString('\n')
		if err != nil {
			return ""
		}
		if event += line; line == "\n" {
			if strings.Contains(event, "data:") {
				return event
			}
			event = ""
		}
	}
}

// Who listens is told what changes, as soon as it does, and nothing else; and the end.
func TestEvents(t *testing.T) {
	s := &scene{v: training(3, 2)}
	url, _ := s.serve(t)
	l := listen(t, url+"/events?seen=0")
	if first := l.next(); !strings.Contains(first, `"head":`) || !strings.Contains(first, `"grid":`) || !strings.Contains(first, "gpu-002") {
		t.Errorf("who knows nothing is not told everything: %s", first)
	}
	s.becomes(func(v *View) { v.Ranks[3].State = report.RankStraggles })
	if e := l.next(); !strings.Contains(e, `"n1":"<article`) || strings.Contains(e, `"n0":`) || strings.Contains(e, `"grid":`) || strings.Contains(e, `"workers":`) {
		t.Errorf("one rank changed: %s", e)
	}
	s.becomes(func(v *View) { v.Nodes = append(v.Nodes, report.StatusNode{Name: "spare"}) })
	if e := l.next(); !strings.Contains(e, `"grid":`) || !strings.Contains(e, "spare") {
		t.Errorf("a node came: %s", e)
	}
	s.becomes(func(v *View) { v.Workers[0].CPU++ })
	if e := l.next(); !strings.Contains(e, `{"w0":"<tr`) {
		t.Errorf("a worker's figures changed: %s", e)
	}
}

// Who has seen the page as it is hears of the next change alone; and when the agent ends, that it did.
func TestEnd(t *testing.T) {
	s := &scene{v: training(2, 2), changed: make(chan struct{})}
	server := New(Config{View: s.view, Changed: s.changes, Log: slog.New(slog.DiscardHandler)})
	ln, err := Address{Host: "127.0.0.1"}.Listen()
	if err != nil {
		t.Fatal(err)
	}
	server.Serve(ln)
	url := "http://" + ln.Addr().String()
	l := listen(t, url+"/events")
	l.next() // everything
	s.becomes(killed)
	e := l.next()
	if !strings.Contains(e, "Rank 3 failed") || strings.Contains(e, `"grid":`) {
		t.Errorf("%s", e)
	}
	_, seen, _ := strings.Cut(e, "id: ")
	seen, _, _ = strings.Cut(seen, "\n")
	l = listen(t, url+"/events?seen="+seen) // as a browser that was away for a moment
	s.becomes(again)
	if e := l.next(); !strings.Contains(e, "started again") || strings.Contains(e, `"grid":`) {
		t.Errorf("who has seen all but the last is told %s", e)
	}
	ended := make(chan struct{})
	go func() { server.Close(); close(ended) }()
	last := ""
	for e := l.next(); e != ""; e = l.next() {
		last = e
	}
	if <-ended; !strings.Contains(last, "event: end") {
		t.Errorf("the last word was %q", last)
	}
}

// So many listen, and no more; one who goes makes room.
func TestListenersAreBounded(t *testing.T) {
	s := &scene{v: training(2, 2)}
	url, _ := s.serve(t)
	var all []*http.Response
	for range maxStreams {
		w, err := http.Get(url + "/events")
		if err != nil || w.StatusCode != 200 {
			t.Fatalf("%v, %v", w, err)
		}
		defer w.Body.Close()
		all = append(all, w)
	}
	if w, _ := ask(t, "GET", url+"/events"); w.StatusCode != 503 || w.Header.Get("Retry-After") == "" {
		t.Errorf("one more: %s", w.Status)
	}
	if w, _ := ask(t, "GET", url+"/"); w.StatusCode != 200 {
		t.Errorf("the page itself: %s", w.Status)
	}
	all[0].Body.Close()
	for { // the server hears of it when the connection is closed
		w, err := http.Get(url + "/events")
		if err != nil {
			t.Fatal(err)
		}
		w.Body.Close()
		if w.StatusCode == 200 {
			return
		}
	}
}

// Who does not take what is sent is let go, and holds up nobody.
func TestSlowListener(t *testing.T) {
	s := &scene{v: training(2, 2), changed: make(chan struct{})}
	h := New(Config{View: s.view, Changed: s.changes}).hubs[public]
	st := h.join(0)
	for i := range maxBehind + 1 {
		s.becomes(func(v *View) { v.PID = 100 + i })
		h.look()
	}
	n := 0
	for range st.events {
		n++
	}
	if n != maxBehind || h.readers[st] {
		t.Errorf("%d events were kept for it, and it is a reader still: %t", n, h.readers[st])
	}
}

func TestAddress(t *testing.T) {
	for text, want := range map[string]Address{":8080": {"", 8080, 8080}, "ann:8080-8090": {"ann", 8080, 8090}, "[::1]:0": {"::1", 0, 0}} {
		if got, err := ParseAddress(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "8080", "ann", "ann:", ":x", ":-1", ":70000", ":9-8", ":0-9", ":1-60000", ":1-2-3"} {
		if got, err := ParseAddress(text); err == nil {
			t.Errorf("%s is %+v", text, got)
		}
	}
	held, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	port := portOf(held)
	if ln, err := (Address{"127.0.0.1", port, port}).Listen(); err == nil {
		ln.Close()
		t.Error("a port was given twice")
	}
	ln, err := Address{"127.0.0.1", port, min(port+50, 65535)}.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
}

func portOf(ln net.Listener) int { return ln.Addr().(*net.TCPAddr).Port }

// Who holds many connections open and says nothing does not keep others out.
func TestOneAddressDoesNotTakeAll(t *testing.T) {
	s := &scene{v: training(2, 2)}
	url, _ := s.serve(t)
	at := strings.TrimPrefix(url, "http://")
	dial := func() net.Conn {
		t.Helper()
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	silent := dial()
	for range maxFrom - 1 {
		dial()
	}
	one := dial() // too many
	fmt.Fprint(one, "HEAD / HTTP/1.0\r\n\r\n")
	if _, err := one.Read(make([]byte, 1)); err == nil {
		t.Error("it is let in")
	}
	if w, _ := ask(t, "GET", url+"/status.json"); w.StatusCode != 200 { // from 127.0.0.1
		t.Error(w.Status)
	}
	silent.Close()
	for { // until the server has noticed
		c := dial()
		fmt.Fprint(c, "HEAD / HTTP/1.0\r\n\r\n")
		if n, _ := c.Read(make([]byte, 1)); n == 1 {
			return
		}
	}
}

// The time in a sentence about a standstill goes on while it lasts, and not when something was done about it.
func TestSentenceOfAStandstill(t *testing.T) {
	const why = "hang: rank 1 has not entered all_reduce #7 for 10 s; 3 others wait in it"
	v := View{Stage: "hung", Hang: &job.Hang{Quiet: 10 * time.Second}, Stood: time.Now().Add(-time.Hour)}
	if got := v.lasting(why, options{}); got == text(why) || !strings.Contains(string(got), "3 others") {
		t.Errorf("it stands still: %s", got)
	}
	for what, edit := range map[string]func(*View){
		"it goes on":        func(v *View) { v.Stage = "" },
		"the round ends":    func(v *View) { v.Causes = []string{why} },
		"the job has ended": func(v *View) { v.Verdict = &job.Verdict{} },
	} {
		over := v
		if edit(&over); over.lasting(why, options{}) != text(why) {
			t.Errorf("%s: %s", what, over.lasting(why, options{}))
		}
	}
}
