package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/test/leak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("TEST_ASK_IN"); dir != "" {
		var got string
		err := Client{Path: filepath.Join(dir, Socket)}.Ask(context.Background(), Request{Do: "x"}, &got)
		fmt.Printf("%s %v; finds %d\n", got, err, len(Find(filepath.Dir(dir))))
		os.Exit(0)
	}
	if dir := os.Getenv("TEST_LISTEN_IN"); dir != "" {
		_, err := Listen(dir, echo, slog.New(slog.DiscardHandler))
		fmt.Println("listens", err)
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	leak.Main(m)
}

// echo answers with the request's word.
func echo(_ context.Context, r Request) (any, error) {
	if r.Do == "fail" {
		return nil, errors.New("it is not to be")
	}
	return r.Do, nil
}

// listen serves h in a directory of a run below base.
func listen(t *testing.T, base string, h Handler) (*Server, Client) {
	t.Helper()
	dir, err := os.MkdirTemp(base, Dirs+"job-")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Listen(dir, h, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, Client{Path: filepath.Join(dir, Socket)}
}

func TestAsk(t *testing.T) {
	for _, base := range []string{t.TempDir(), longDir(t)} {
		_, c := listen(t, base, echo)
		var got string
		if err := c.Ask(t.Context(), Request{Do: "hello"}, &got); err != nil || got != "hello" {
			t.Errorf("%s: %q, %v", c.Path, got, err)
		}
		if err := c.Ask(t.Context(), Request{Do: "fail"}, nil); err == nil || err.Error() != "it is not to be" {
			t.Errorf("an error comes back as %v", err)
		}
		info, err := os.Stat(c.Path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the socket's mode: %v, %v", info.Mode(), err)
		}
		if found := Find(base); len(found) != 1 || found[0] != c {
			t.Errorf("found %v, want %v", found, c)
		}
	}
}

// longDir is a directory whose sockets have names that no sockaddr_un holds.
func longDir(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Sockets of agents that are gone, and what only looks like one, are passed over; a new agent takes a dead one's place.
func TestFindOnlyTheLiving(t *testing.T) {
	base := t.TempDir()
	dead, c := listen(t, base, echo)
	dead.Close()
	_, alive := listen(t, base, echo)
	os.WriteFile(filepath.Join(base, Dirs+"file"), nil, 0o600)
	os.Mkdir(filepath.Join(base, Dirs+"empty"), 0o700)
	if found := Find(base, base); len(found) != 1 || found[0] != alive {
		t.Errorf("found %v, want only %v", found, alive)
	}
	lock, err := os.Create(filepath.Join(filepath.Dir(c.Path), Owner))
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	if found := Find(base); len(found) != 2 || c.Ask(t.Context(), Request{}, nil) == nil {
		t.Errorf("found %v, without that whose agent is replaced", found)
	}
	lock.Close()
	if found := Find(base); len(found) != 1 {
		t.Errorf("found %v", found)
	}
	again, err := Listen(filepath.Dir(c.Path), echo, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if found := Find(base); len(found) != 2 {
		t.Errorf("found %v", found)
	}
}

// An agent that was started with another TMPDIR is found by the kernel's list.
func TestFindElsewhere(t *testing.T) {
	_, c := listen(t, t.TempDir(), echo)
	if found := FindAnywhere(); !slices.Contains(found, c) {
		t.Errorf("found %v, want %v among them", found, c)
	}
	if found := Find(t.TempDir()); len(found) > 0 {
		t.Errorf("in a directory of nobody's: %v", found)
	}
	text := "Num       RefCount Protocol Flags    Type St Inode Path\n" +
		"0000000000000000: 00000002 00000000 00010000 0001 01 12345 /tmp/muster-job-1/agent.sock\n" +
		"0000000000000000: 00000002 00000000 00010000 0001 01 12346 @abstract\n" +
		"0000000000000000: 00000003 00000000 00000000 0001 03 12347\n" +
		"0000000000000000: 00000002 00000000 00010000 0001 01 12348 /run/other/agent.sock\n" +
		"0000000000000000: 00000002 00000000 00010000 0001 01 12349 /a b/muster-x/agent.sock\n"
	if got := fmt.Sprint(listed(text)); got != "[/tmp/muster-job-1/agent.sock /a b/muster-x/agent.sock]" {
		t.Error(got)
	}
}

// Another user is hung up on, and finds nobody, also where he may reach the socket.
func TestStranger(t *testing.T) {
	base := "/tmp"
	_, c := listen(t, base, echo)
	dir := filepath.Dir(c.Path)
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	os.Chmod(c.Path, 0o666)
	out, err := asStranger(t, dir, "TEST_ASK_IN="+dir).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "it hung up") || !strings.Contains(string(out), "finds 0") {
		t.Errorf("%v: %s", err, out)
	}
}

// asStranger is this program as another user, copied to where that one can reach it.
func asStranger(t *testing.T, dir, variable string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(self)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "self"), data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "self"))
	cmd.Dir, cmd.Env = "/", []string{variable, "GORACE=atexit_sleep_ms=0"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4711, Gid: 4711}}
	return cmd
}

// Another user's agent is not found, and a client that will run what it is told does not take its word.
func TestStrangersAgent(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", Dirs+"stranger-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o777)
	cmd := asStranger(t, dir, "TEST_LISTEN_IN="+dir)
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "listens <nil>\n" {
		t.Fatalf("%q, %v", line, err)
	}
	c := Client{Path: filepath.Join(dir, Socket)}
	if slices.Contains(append(Find("/tmp"), FindAnywhere()...), c) {
		t.Error("a stranger's agent was found")
	}
	if err := c.Ask(t.Context(), Request{Do: "x"}, nil); err != nil {
		t.Errorf("named by hand: %v", err)
	}
	c.Own = true
	if err := c.Ask(t.Context(), Request{Do: "x"}, nil); err == nil || !strings.Contains(err.Error(), "is not this user's (0) but user 4711's") {
		t.Errorf("a stranger's word was taken: %v", err)
	}
}

// What is no request is told so, whatever its length; who says nothing keeps nobody waiting at the end.
func TestNonsense(t *testing.T) {
	s, c := listen(t, t.TempDir(), echo)
	for text, want := range map[string]string{
		"x\n": "invalid character", "{\"do\":1}\n": "cannot unmarshal", "\n": "unexpected end", strings.Repeat("x", maxRequest): "EOF",
	} {
		conn, err := c.dial()
		if err != nil {
			t.Fatal(err)
		}
		conn.Write([]byte(text))
		conn.CloseWrite()
		data, err := io.ReadAll(conn)
		var a answer
		if err != nil || json.Unmarshal(data, &a) != nil || !strings.Contains(a.Error, want) {
			t.Errorf("%.20q: %q, %v; want %q", text, data, err, want)
		}
		conn.Close()
	}
	mute, err := c.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	began := time.Now()
	s.Close()
	if d := time.Since(began); d > readTime {
		t.Errorf("a mute client holds up the end for %v", d)
	}
}

// More clients than there is room for are served one after the other.
func TestManyClients(t *testing.T) {
	release := make(chan struct{})
	var mu sync.Mutex
	now, most := 0, 0
	count := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		now += n
		most = max(most, now)
		if now == maxClients {
			select {
			case <-release:
			default:
				close(release)
			}
		}
	}
	_, c := listen(t, t.TempDir(), func(ctx context.Context, r Request) (any, error) {
		count(1)
		defer count(-1)
		<-release
		return r.Do, nil
	})
	var all sync.WaitGroup
	for range 3 * maxClients {
		all.Go(func() {
			if err := c.Ask(t.Context(), Request{Do: "x"}, nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if most != maxClients {
		t.Errorf("%d at once, want %d", most, maxClients)
	}
}

// The end of the agent ends a request that waits for it; a client does not wait longer than it wants to.
func TestEnds(t *testing.T) {
	waits := func(ctx context.Context, _ Request) (any, error) {
		<-ctx.Done()
		return nil, errors.New("the agent ends")
	}
	s, c := listen(t, t.TempDir(), waits)
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := c.Ask(short, Request{}, nil); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("a client without patience: %v", err)
	}
	failed := make(chan error)
	go func() { failed <- c.Ask(context.Background(), Request{}, nil) }()
	conn, err := net.Dial("unix", c.Path) // taken after the one before
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	s.Close()
	if err := <-failed; err == nil {
		t.Error("no error at the end")
	}
}

// Those who wait for something hear of it when it has come to pass, if need be as the agent ends, and keep nobody else from being answered.
func TestAwait(t *testing.T) {
	passed, gone := make(chan struct{}), make(chan struct{})
	s, c := listen(t, t.TempDir(), func(ctx context.Context, r Request) (any, error) {
		switch r.Do {
		case "it":
			<-passed
			return "it came to pass", nil
		case "end":
			<-ctx.Done()
			return "the agent ends", nil
		case "nothing":
			<-ctx.Done()
			close(gone)
		}
		return echo(ctx, r)
	})
	await := func(what string) func(context.Context, any) error {
		t.Helper()
		tell, err := c.Await(t.Context(), Request{Do: what})
		if err != nil {
			t.Fatal(err)
		}
		return tell
	}
	hears := func(tell func(context.Context, any) error, want string) {
		t.Helper()
		var got string
		if err := tell(t.Context(), &got); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	var its []func(context.Context, any) error
	for range maxClients + 1 {
		its = append(its, await("it"))
	}
	var got string
	if err := c.Ask(t.Context(), Request{Do: "hello"}, &got); err != nil || got != "hello" {
		t.Errorf("while many wait: %q, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := await("nothing")(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	<-gone // its handler heard that nobody waits any more
	end := await("end")
	close(passed)
	for _, tell := range its {
		hears(tell, "it came to pass")
	}
	s.Close()
	hears(end, "the agent ends")
	if _, err := c.Await(t.Context(), Request{Do: "it"}); !errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
}

// There is an end to how many may wait.
func TestManyWait(t *testing.T) {
	s, c := listen(t, t.TempDir(), func(ctx context.Context, _ Request) (any, error) { <-ctx.Done(); return nil, ctx.Err() })
	for range maxWaiters {
		tell, err := c.Await(t.Context(), Request{})
		if err != nil {
			t.Fatal(err)
		}
		defer tell(context.Background(), nil) // until then it stays
	}
	defer s.Close()
	if _, err := c.Await(t.Context(), Request{}); err == nil || !strings.Contains(err.Error(), "others wait") {
		t.Errorf("one more: %v", err)
	}
}
