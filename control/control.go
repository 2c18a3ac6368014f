// Package control is the agent's unix socket, at which its own user asks how the job stands and acts on it.
//
// A client connects, sends one [Request] as a line of JSON, and reads one line: {"result": …} or {"error": "…"}. Who waits for something reads {} at once,
// and that line when it has come to pass. The socket lies in the run's private directory; the agent answers nobody but its own user and root.
package control

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Socket is the name of the socket in a run's private directory, and Dirs how the names of those directories begin. Owner is a file there, or in the
// directory of the same name in Memory, which is locked while a process of the run lives.
const (
	Socket = "agent.sock"
	Dirs   = "muster-"
	Owner  = "owner"
	Memory = "/dev/shm"
)

// A Request is what a client asks. What can be asked is the agent's to say.
type Request struct {
	Do   string `json:"do"`
	Rank *int   `json:"rank,omitempty"` // a global rank, where one is meant
	File string `json:"file,omitempty"` // a path, the same
	Wait bool   `json:"wait,omitempty"` // the answer is something that is to come to pass
}

// answer is the line that comes back.
type answer struct {
	Error  string          `json:"error,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// Bounds on what one side may make the other wait for and hold.
const (
	maxRequest = 4 << 10
	maxAnswer  = 64 << 20 // a bug report, the status of a hundred thousand nodes
	maxClients = 16       // at once; the others wait
	maxWaiters = 64       // beside them; the others are refused
	readTime   = 2 * time.Second
	allTime    = 15 * time.Second
	lastTime   = 100 * time.Millisecond // once the agent ends
)

// maxPath is what fits into sockaddr_un with its end (unix(7)).
const maxPath = 107

// Named calls f with a name for the socket at path that the kernel takes: where path is too long, one that leads through an
// open directory.
func Named[T any](path string, f func(*net.UnixAddr) (T, error)) (T, error) {
	if len(path) > maxPath {
		dir, err := os.Open(filepath.Dir(path))
		if err != nil {
			var none T
			return none, err
		}
		defer dir.Close()
		path = filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), filepath.Base(path))
	}
	return f(&net.UnixAddr{Name: path, Net: "unix"})
}

// userOf returns who is at the other end: of a server the client's user, of a client the one who listens.
func userOf(c *net.UnixConn) (uid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	var cred *unix.Ucred
	if cause := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cause != nil {
		err = cause
	}
	if err != nil {
		return -1, err
	}
	return int(cred.Uid), nil
}
