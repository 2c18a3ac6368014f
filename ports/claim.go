package ports

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Jobs that share a host's network share ports that were given to all of them. Each claims such a port under its name; the one that came first
// listens there, and hands connections over to those that have a claim. A claim is a socket in the abstract namespace, which Linux has one of for
// each network namespace (network_namespaces(7)), as it has ports: containers that share the ports share these, and no file is left behind.

// claimed is the address of a claim.
func claimed(port int, name string) *net.UnixAddr {
	return &net.UnixAddr{Net: "unixpacket", Name: fmt.Sprintf("@muster/%d/%x", port, sha256.Sum224([]byte(name)))}
}

// Claim claims a port. The error is EADDRINUSE while another process has that claim.
func Claim(port int, name string) (net.Listener, error) {
	at := claimed(port, name)
	return net.Listen(at.Net, at.Name)
}

// Claimants are the processes that have claimed a port under a name, as far as /proc shows them to us, the lowest PID first.
func Claimants(port int, name string) []int { return holding(claims(port)[claimed(port, name).Name]) }

// Shared reports whether a port is claimed under another name, too, as far as /proc shows it to us.
func Shared(port int, name string) bool {
	all := claims(port)
	delete(all, claimed(port, name).Name)
	return len(all) > 0
}

// claims are the inodes of the claims on a port, by their addresses (proc_net_unix(5)): sockets that listen, and not what is connected to them.
func claims(port int) map[string]string {
	found := map[string]string{}
	table, _ := os.ReadFile("/proc/net/unix")
	for row := range strings.Lines(string(table)) {
		if f := strings.Fields(row); len(f) == 8 && f[3] == "00010000" && strings.HasPrefix(f[7], fmt.Sprintf("@muster/%d/", port)) {
			found[f[7]] = f[6]
		}
	}
	return found
}

// What bounds a message: what was read of a connection, and a name.
const (
	maxHead = 8 << 10
	maxName = 1 << 10
)

// handTime bounds the wait for who has a claim and is busy.
const handTime = 5 * time.Second

// HandOver gives a connection, whose first read returns what was read of it before, to who has claimed its port under a name. from is the name
// of who had it.
func HandOver(ctx context.Context, port int, from, name string, c net.Conn) error {
	head := make([]byte, maxHead)
	n, err := c.Read(head)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, handTime)
	defer cancel()
	at := claimed(port, name)
	there, err := (&net.Dialer{}).DialContext(ctx, at.Net, at.Name)
	if err != nil {
		return err
	}
	defer there.Close()
	message := append([]byte(from+"\x00"), head[:n]...)
	return lend(c, func(fd int) error {
		_, _, err := there.(*net.UnixConn).WriteMsgUnix(message, unix.UnixRights(fd), nil)
		return err
	})
}

// lend is use with the descriptor of a connection.
func lend(c net.Conn, use func(fd int) error) error {
	for {
		inner, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = inner.NetConn()
	}
	has, ok := c.(syscall.Conn)
	if !ok {
		return errors.New("the connection has no descriptor")
	}
	raw, err := has.SyscallConn()
	if err != nil {
		return err
	}
	var used error
	err = raw.Control(func(fd uintptr) { used = use(int(fd)) })
	return errors.Join(err, used)
}

// A Handed connection is one that was handed over.
type Handed struct {
	From string // the name of who had it, as that says
	Head []byte // what was read of it
	FD   int
}

// Receive takes a connection that came by a claim's listener, until ctx ends.
func Receive(ctx context.Context, by net.Conn) (h Handed, err error) {
	defer by.Close()
	defer context.AfterFunc(ctx, func() { by.Close() })()
	_ = by.SetDeadline(time.Now().Add(handTime))
	there, ok := by.(*net.UnixConn)
	if !ok {
		return h, errors.New("no claim has such connections")
	}
	message, rights := make([]byte, maxName+1+maxHead), make([]byte, unix.CmsgLen(4)) // room for one descriptor: the kernel closes others
	n, m, flags, _, err := there.ReadMsgUnix(message, rights)
	if err != nil {
		return h, err
	}
	fds, err := descriptors(rights[:m])
	from, head, ok := bytes.Cut(message[:n], []byte{0})
	switch {
	case err != nil:
	case len(fds) != 1:
		err = errors.New("a message without a connection")
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = errors.New("a message of more than one connection and what was read of it")
	case !ok:
		err = errors.New("a message that says nothing")
	default:
		return Handed{From: string(from), Head: head, FD: fds[0]}, nil
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	return h, err
}

// descriptors are those that came with a message, also where something else about it is wrong.
func descriptors(rights []byte) (fds []int, err error) {
	all, err := unix.ParseSocketControlMessage(rights)
	for _, one := range all {
		some, wrong := unix.ParseUnixRights(&one)
		fds, err = append(fds, some...), errors.Join(err, wrong)
	}
	return fds, err
}

// Trusted reports whether what came by a claim's listener is from this process's user, or from root. In a user namespace, those who are not of it are
// neither: they all look like one user, whom the machine's root may be, too.
func Trusted(by net.Conn) bool {
	there, ok := by.(*net.UnixConn)
	if !ok {
		return false
	}
	raw, err := there.SyscallConn()
	if err != nil {
		return false
	}
	var who *unix.Ucred
	wrong := raw.Control(func(fd uintptr) { who, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return wrong == nil && err == nil && (who.Uid == 0 || int(who.Uid) == os.Geteuid())
}
