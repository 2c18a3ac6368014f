package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Client asks the agent that listens at a path.
type Client struct {
	Path string
	Own  bool // whoever listens must be this user: root would else run what another one says
}

// ErrGone says that no agent answers. Another one may in a moment, in the place of one that died.
const (
	ErrGone   = gone("it is being replaced, or gone")
	errHungUp = gone("it hung up: it is ending, was replaced, or runs as another user; nobody knows whether it has heard")
)

type gone string

func (g gone) Error() string        { return string(g) }
func (g gone) Is(target error) bool { return target == ErrGone }

// Ask sends a request and reads the answer into result, which may be nil. The agent's own errors come back as they are.
func (c Client) Ask(ctx context.Context, r Request, result any) error {
	t, err := c.talk(ctx, r)
	if err != nil {
		return err
	}
	defer t.conn.Close()
	return t.answer(ctx, result)
}

// Await sends a request that is answered when something has come to pass. It returns when the agent has heard it, and tell does when that has
// come to pass, with what Ask returns. tell is to be called.
func (c Client) Await(ctx context.Context, r Request) (tell func(ctx context.Context, result any) error, err error) {
	r.Wait = true
	t, err := c.talk(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := t.answer(ctx, nil); err != nil {
		t.conn.Close()
		return nil, err
	}
	return func(ctx context.Context, result any) error {
		defer t.conn.Close()
		return t.answer(ctx, result)
	}, nil
}

// A talk is a connection with a request on its way.
type talk struct {
	path  string
	conn  *net.UnixConn
	lines *bufio.Reader
}

func (c Client) talk(ctx context.Context, r Request) (*talk, error) {
	conn, err := c.dial()
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("ask the agent at %s: %w", c.Path, ErrGone)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the agent at %s: %w", c.Path, err)
	}
	if uid, err := userOf(conn); c.Own && (err != nil || uid != os.Getuid()) {
		conn.Close()
		return nil, fmt.Errorf("the agent at %s is not this user's (%d) but user %d's: do it as that user", c.Path, os.Getuid(), uid)
	}
	t := &talk{c.Path, conn, bufio.NewReader(io.LimitReader(conn, maxAnswer))}
	err = t.within(ctx, func() error {
		line, err := json.Marshal(r)
		if err == nil {
			_, err = conn.Write(append(line, '\n'))
		}
		return err
	})
	if err != nil {
		conn.Close()
		return nil, err
	}
	return t, nil
}

// answer reads a line of the agent's.
func (t *talk) answer(ctx context.Context, result any) error {
	var a answer
	err := t.within(ctx, func() error {
		line, err := t.lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		return json.Unmarshal(line, &a)
	})
	switch {
	case err != nil:
		return err
	case a.Error != "":
		return errors.New(a.Error)
	case result == nil:
		return nil
	}
	return json.Unmarshal(a.Result, result)
}

// within does something at the connection until ctx ends.
func (t *talk) within(ctx context.Context, do func() error) error {
	defer context.AfterFunc(ctx, func() { t.conn.SetDeadline(time.Now()) })()
	err := do()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("the agent at %s does not answer: %w", t.path, context.Cause(ctx))
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		err = errHungUp
	}
	return fmt.Errorf("ask the agent at %s: %w", t.path, err)
}

func (c Client) dial() (*net.UnixConn, error) {
	return Named(c.Path, func(at *net.UnixAddr) (*net.UnixConn, error) { return net.DialUnix("unix", nil, at) })
}

// Find returns the agents of this user that listen, and have their private directory in one of dirs.
func Find(dirs ...string) []Client {
	var paths []string
	for _, dir := range dirs {
		paths = append(paths, below(dir)...)
	}
	return alive(paths)
}

// FindAnywhere returns those that the kernel's list names (proc_net_unix(5)): an agent may have been started with another TMPDIR.
func FindAnywhere() []Client {
	list, _ := os.ReadFile("/proc/net/unix") // without it nobody else is found
	return alive(listed(string(list)))
}

// below lists where the private directories in dir would have their sockets.
func below(dir string) (paths []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), Dirs) && e.IsDir() {
			paths = append(paths, filepath.Join(dir, e.Name(), Socket))
		}
	}
	return paths
}

// listed picks the paths that look like an agent's from the text of /proc/net/unix; the path is the eighth column.
func listed(text string) (paths []string) {
	for line := range strings.Lines(text) {
		if i := strings.IndexByte(line, '/'); i >= 0 {
			path := strings.TrimSuffix(line[i:], "\n")
			if filepath.Base(path) == Socket && strings.HasPrefix(filepath.Base(filepath.Dir(path)), Dirs) {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// alive returns the sockets at which a process of this user listens, or is about to: of a run that goes on, while its agent is replaced. Else
// another job's would be taken for the only one. Another user's is passed over, although root could talk to it: what it says of an environment would
// be run.
func alive(paths []string) (found []Client) {
	seen := map[string]bool{}
	for _, path := range paths {
		if seen[path] || !mine(path) {
			continue
		}
		seen[path] = true
		c := Client{Path: path}
		conn, err := c.dial()
		if err != nil { // its agent is gone
			if goesOn(filepath.Dir(path)) {
				found = append(found, c)
			}
			continue
		}
		if uid, err := userOf(conn); err == nil && uid == os.Getuid() {
			found = append(found, c)
		}
		conn.Close()
	}
	return found
}

// GoesOn reports whether the run whose agent this is goes on, also while another agent takes its place.
func (c Client) GoesOn() bool { return goesOn(filepath.Dir(c.Path)) }

// goesOn reports whether some process still has a run's directory for its own.
func goesOn(dir string) bool {
	for _, d := range []string{dir, filepath.Join(Memory, filepath.Base(dir))} {
		f, err := os.OpenFile(filepath.Join(d, Owner), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return true
		}
	}
	return false
}

// mine reports whether this user's socket is at path.
func mine(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid()
}
