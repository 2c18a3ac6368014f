package remote

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const patience = 4 * time.Minute

func key(secret string) Key { return NewKey([]byte(secret), "test") }

// serving starts a server with keys, and returns its address and what it says. It ends with the test.
func serving(t *testing.T, keys ...Key) (addr string, says chan string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	says = make(chan string, 100)
	s := &Server{
		Keys: keys, Grace: 100 * time.Millisecond,
		Prepare: func(c Command) *exec.Cmd {
			cmd := exec.Command("/bin/sh", "-c", string(c.Line))
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			return cmd
		},
		Say:   func(format string, args ...any) { says <- fmt.Sprintf(format, args...) },
		Files: func(dir string) string { return "FILES=" + dir },
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String(), says
}

// hears waits for the server's word.
func hears(t *testing.T, says <-chan string, word string) {
	t.Helper()
	select {
	case text := <-says:
		if !strings.Contains(text, word) {
			t.Errorf("it says %q, not %q", text, word)
		}
	case <-time.After(patience):
		t.Fatalf("it does not say %q", word)
	}
}

// runs runs a line, and returns its exit code and output.
func runs(t *testing.T, addr string, c Command, in io.Reader) (code int, out, errput string) {
	t.Helper()
	conn, err := Dial(t.Context(), addr, []Key{key("sesame sesame 12")})
	if err != nil {
		t.Fatal(err)
	}
	var o, e bytes.Buffer
	code, err = conn.Run(t.Context(), c, Streams{in, &o, &e})
	if err != nil {
		t.Fatal(err)
	}
	return code, o.String(), e.String()
}

func TestRun(t *testing.T) {
	addr, _ := serving(t, key("another one"), key("sesame sesame 12"))
	for _, c := range []struct {
		line, in    string
		code        int
		out, errput string
	}{
		{line: "echo out; echo err >&2; exit 7", code: 7, out: "out\n", errput: "err\n"},
		{line: "kill -9 $$", code: 137},
		{line: "cat", in: "some words", out: "some words"},
		{line: "exit 3", in: "that nobody reads", code: 3},
		{line: "exec 0<&-; echo here", in: "that nobody can read", out: "here\n"},
		{line: "(echo late) & echo soon; wait", out: "soon\nlate\n"},
		{line: `echo "$A $B"; pwd`, out: "a b c\n/usr\n"},
		{line: `cat "$FILES/etc/x"; ls "$FILES"`, out: "text etc\n"},
	} {
		command := Command{Line: []byte(c.line), Env: bytesOf([]string{"A=a b", "B=c"}), Dir: []byte("/usr"), Files: map[string][]byte{"/../etc/x": []byte("text ")}}
		var in io.Reader
		if c.in != "" {
			in = strings.NewReader(c.in)
		}
		code, out, errput := runs(t, addr, command, in)
		if strings.HasPrefix(c.line, "(echo") && out == "late\nsoon\n" {
			out = c.out
		}
		if code != c.code || out != c.out || errput != c.errput {
			t.Errorf("%s: %d %q %q", c.line, code, out, errput)
		}
	}
}

// Any bytes go there and back, more than pipes and windows hold, and arguments that are no text.
func TestBinary(t *testing.T) {
	addr, _ := serving(t, key("sesame sesame 12"))
	sent := make([]byte, 3<<20+17)
	rand.Read(sent)
	if code, out, _ := runs(t, addr, Command{Line: []byte("cat; exit 9")}, bytes.NewReader(sent)); code != 9 || out != string(sent) {
		t.Errorf("code %d, %d bytes of %d came back", code, len(out), len(sent))
	}
	long := "\xff\xfe " + strings.Repeat("x", 200<<10)
	if _, out, _ := runs(t, addr, Command{Line: []byte("cat $FILES/f"), Files: map[string][]byte{"/f": []byte(long)}}, nil); out != long {
		t.Errorf("%d bytes of %d came back", len(out), len(long))
	}
}

// What cannot be started is said, and is none of the command's exit codes.
func TestNotStarted(t *testing.T) {
	addr, _ := serving(t, key("sesame sesame 12"))
	conn, err := Dial(t.Context(), addr, []Key{key("sesame sesame 12")})
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Run(t.Context(), Command{Line: []byte("true"), Dir: []byte("/no/such")}, Streams{nil, io.Discard, io.Discard})
	var no *Refusal
	if !errors.As(err, &no) || !strings.Contains(err.Error(), "/no/such") {
		t.Error(err)
	}
	conn, err = Dial(t.Context(), addr, []Key{key("sesame sesame 12")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = conn.Run(t.Context(), Command{Line: make([]byte, maxCommand)}, Streams{nil, io.Discard, io.Discard}); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Error(err)
	}
}

// Who does not prove that he has the secret gets no further.
func TestRefused(t *testing.T) {
	addr, says := serving(t, key("sesame sesame 12"))
	_, err := Dial(t.Context(), addr, []Key{key("open open open 1"), key("sesame sesame 13")})
	var no *Refusal
	if !errors.As(err, &no) {
		t.Errorf("another secret: %v", err)
	}
	hears(t, says, "none of the secrets")
	good := hello(key("sesame sesame 12"))
	for word, text := range map[string]string{
		"it opened with \"GET / HTTP":           "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"ssh's own client":                      "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
		"it broke off":                          good[:len(good)-1],
		"it says it has 255 secrets":            good[:len(magic)+saltSize] + "\xff",
		"none of the secrets":                   good[:len(good)-1] + string(good[len(good)-1]^1),
		"does not prove that it has the secret": good + strings.Repeat("\x00", proofSize),
	} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, text)
		c.(*net.TCPConn).CloseWrite()
		io.ReadAll(c)
		c.Close()
		hears(t, says, word)
	}
}

// hello is how a caller with a key opens.
func hello(k Key) string {
	salt := newSalt()
	return magic + string(salt) + "\x01" + string(k.proof("name", salt))
}

// An opening that somebody recorded, played again, proves nothing: the server's salt is another one.
func TestReplay(t *testing.T) {
	addr, says := serving(t, key("sesame sesame 12"))
	var recorded bytes.Buffer
	through, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer through.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		a, err := through.Accept()
		if err != nil {
			return
		}
		defer a.Close()
		b, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		defer b.Close()
		back := make(chan struct{})
		go func() { defer close(back); io.Copy(a, b) }()
		io.Copy(io.MultiWriter(b, &recorded), a)
		b.Close()
		<-back
	}()
	if code, _, _ := runs(t, through.Addr().String(), Command{Line: []byte("exit 4")}, nil); code != 4 {
		t.Fatal("code", code)
	}
	<-done
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Write(recorded.Bytes())
	io.ReadAll(c)
	hears(t, says, "does not prove that it has the secret")
}

// A server that does not have the secret learns nothing, and is not told what to run.
func TestWrongServer(t *testing.T) {
	for word, answer := range map[string]string{
		"an ssh server answers":      "SSH-2.0-OpenSSH_9.2p1\r\n",
		"not muster's sshd":          "HTTP/1.1 400 Bad Request\r\n",
		"none of the secrets":        "\x00",
		"does not have the secret":   "\x01\x00" + strings.Repeat("\x01", saltSize+proofSize),
		"is not muster":              "\x01\x01" + strings.Repeat("\x01", saltSize+proofSize),
		"it broke off: unexpected E": "\x01\x00abc",
		"it does not answer: EOF":    "",
	} {
		ours, theirs := net.Pipe()
		got := make(chan []byte)
		go func() {
			hello := make([]byte, len(magic)+saltSize+1+proofSize)
			io.ReadFull(theirs, hello)
			io.WriteString(theirs, answer)
			theirs.SetReadDeadline(time.Now()) // nothing more has come
			rest, _ := io.ReadAll(theirs)
			theirs.Close()
			got <- rest
		}()
		_, err := greet(ours, []Key{key("sesame sesame 12")})
		ours.Close()
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: %v", answer, err)
		}
		if rest := <-got; len(rest) > 0 {
			t.Errorf("%q: it was told %q", answer, rest)
		}
	}
}

// Frames that were changed, repeated or left out are noticed, and so are lengths that cannot be.
func TestSealed(t *testing.T) {
	k, salt := key("sesame sesame 12"), newSalt()
	frames := func(texts ...string) (all [][]byte) {
		for i := range texts {
			ours, theirs := net.Pipe()
			l := newLine(ours, nil, k, salt, "caller", "server")
			l.sent = uint64(i)
			b := new(bytes.Buffer)
			done := make(chan struct{})
			go func() { defer close(done); io.Copy(b, theirs) }()
			if err := l.send(input, []byte(texts[i])); err != nil {
				t.Fatal(err)
			}
			ours.Close()
			<-done
			all = append(all, b.Bytes())
		}
		return all
	}
	f := frames("one", "two")
	changed := bytes.Clone(f[0])
	changed[6] ^= 1
	for name, c := range map[string]struct {
		stream []byte
		good   int // frames that come
	}{
		"as sent":   {bytes.Join(f, nil), 2},
		"repeated":  {slices.Concat(f[0], f[0]), 1},
		"left out":  {f[1], 0},
		"changed":   {changed, 0},
		"truncated": {f[0][:len(f[0])-1], 0},
		"oversized": {[]byte{0x7f, 0xff, 0xff, 0xff, 1, 2, 3}, 0},
		"empty":     {[]byte{0, 0, 0, 0}, 0},
	} {
		ours, theirs := net.Pipe()
		go func() { ours.Write(c.stream); ours.Close() }()
		l := newLine(theirs, bufio.NewReader(theirs), k, salt, "server", "caller")
		n := 0
		for ; n < 10; n++ {
			if _, _, err := l.receive(); err != nil {
				break
			}
		}
		theirs.Close()
		if n != c.good {
			t.Errorf("%s: %d frames came, want %d", name, n, c.good)
		}
	}
}

// When the connection is lost, all that the command started ends: what hears TERM by that, what does not by KILL.
func TestLost(t *testing.T) {
	addr, says := serving(t, key("sesame sesame 12"))
	for line, word := range map[string]string{
		`echo up; exec sleep 1000`: "the command was stopped",
		`trap "" TERM; (trap "" TERM; (sleep 1000; true) & sleep 1000; true) & echo up; sleep 1000; true`: "was killed",
	} {
		conn, err := Dial(t.Context(), addr, []Key{key("sesame sesame 12")})
		if err != nil {
			t.Fatal(err)
		}
		mark := filepath.Join(t.TempDir(), "mark")
		ctx, cancel := context.WithCancel(t.Context())
		_, err = conn.Run(ctx, Command{Line: []byte(line), Env: [][]byte{[]byte("MARK=" + mark)}}, Streams{nil, ups{cancel}, io.Discard})
		if err == nil || !strings.Contains(err.Error(), "lost") {
			t.Error(err)
		}
		hears(t, says, word)
		for end := time.Now().Add(patience); len(marked(t, mark)) > 0; {
			if time.Now().After(end) {
				t.Fatalf("%s: alive: %q", line, marked(t, mark))
			}
		}
	}
}

// ups calls a function as soon as something is written.
type ups struct{ then func() }

func (u ups) Write(p []byte) (int, error) { u.then(); return len(p), nil }

// marked are the processes with a word in their environment.
func marked(t *testing.T, word string) (found []string) {
	dirs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if env, _ := os.ReadFile(d); bytes.Contains(env, []byte(word)) {
			found = append(found, d)
		}
	}
	return found
}

// A node that is not there yet is waited for, each new reason is told once, and what cannot get better ends the wait.
func TestReach(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	var reasons []string
	ctx, cancel := context.WithCancel(t.Context())
	_, err = Reach(ctx, addr, []Key{key("sesame sesame 12")}, func(why error) { reasons = append(reasons, why.Error()); cancel() })
	if err == nil || len(reasons) != 1 || !strings.Contains(reasons[0], "refused") {
		t.Errorf("%v, %q", err, reasons)
	}
	addr, _ = serving(t, key("sesame sesame 12"))
	var no *Refusal
	if _, err = Reach(t.Context(), addr, []Key{key("open open open 1")}, func(error) {}); !errors.As(err, &no) {
		t.Error(err)
	}
}

// A private key opens what ssh would open for it.
func TestKeys(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("id_rsa", "-----BEGIN EC PRIVATE KEY-----\nMIHc\n-----END EC PRIVATE KEY-----\n")
	write("id_ecdsa", "no key")
	keys, err := KeysIn(dir)
	if len(keys) != 1 || err == nil || !strings.Contains(err.Error(), "id_ecdsa is no private key") {
		t.Errorf("%d keys, %v", len(keys), err)
	}
	path := filepath.Join(dir, "id_rsa")
	for _, c := range []struct{ public, known, says string }{
		{"", "", "id_rsa.pub"},
		{"ssh-rsa AAAA me@here\n", "", "authorized_keys: no such file"},
		{"ssh-rsa AAAA me@here\n", "ssh-rsa AAAB me@here\n# ssh-rsa AAAA\n#ssh-rsa AAAA\n", "authorized_keys does not have"},
		{"ssh-rsa AAAA me@here\n", "x y\n\nfrom=\"*\" ssh-rsa AAAA other\n", "authorized_keys does not have"}, // options limit what it opens
		{"ssh-rsa AAAA me@here\n", "x y\n\nssh-rsa AAAA other\n", ""},
		{"ssh-rsa", "ssh-rsa AAAA", "is no public key"},
	} {
		if c.public != "" {
			write("id_rsa.pub", c.public)
		}
		if c.known != "" {
			write("authorized_keys", c.known)
		}
		if err := Admitted(path); c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%q in %q: %v, want %q", c.public, c.known, err, c.says)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	write("large", "-----BEGIN "+strings.Repeat("x", maxKeyFile))
	for name, word := range map[string]string{"fifo": "no regular file", "large": "more than"} {
		if _, err := KeyOf(filepath.Join(dir, name)); err == nil || !strings.Contains(err.Error(), word) {
			t.Error(name, err)
		}
	}
}
