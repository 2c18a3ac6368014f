package witness

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A socket is a TCP connection, or the attempt of one, as the kernel tells it (sock_diag(7)).
type socket struct {
	cookie      uint64 // no two sockets of a machine ever have the same
	local, peer netip.AddrPort
	opening     bool   // nobody has answered yet
	moved       uint64 // bytes received, and sent and acknowledged
	unacked     uint32 // segments
	repeats     uint8  // times that the oldest of them was sent again, in a row
}

// stuckAfter is how many times in a row a segment must have been sent again before its peer counts as one that does not acknowledge:
// each waits twice as long as the one before it, beginning with at least 0.2 s, so this is more than a second.
const stuckAfter = 3

// maxStuck is how many such peers of a worker are named: they travel with each beat.
const maxStuck = 4

// wireOf returns the bytes of each connection that a worker holds, and its peers that do not acknowledge.
func (w *Witness) wireOf(t *tree, sockets map[uint64]socket) (moved map[uint64]uint64, stuck []string) {
	moved = map[uint64]uint64{}
	for _, inode := range t.sockets {
		s := sockets[inode]
		if s.cookie == 0 || s.with(w.Apart) {
			continue
		}
		moved[s.cookie] = s.moved
		if s.unacked > 0 && s.repeats >= stuckAfter {
			stuck = append(stuck, s.String())
		}
	}
	slices.Sort(stuck)
	return moved, stuck[:min(len(stuck), maxStuck)]
}

// with reports whether one of the ports is at either end.
func (s socket) with(ports []uint16) bool {
	return slices.Contains(ports, s.local.Port()) || slices.Contains(ports, s.peer.Port())
}

// String says how a peer is stuck: "10.0.0.3:41234, 7 retransmissions".
func (s socket) String() string {
	if s.opening {
		return fmt.Sprintf("%v, not connected after %d retransmissions", s.peer, s.repeats)
	}
	return fmt.Sprintf("%v, %d retransmissions", s.peer, s.repeats)
}

// inodes returns the sockets that a process has open. It needs the rights of the process's user.
func (w *Witness) inodes(pid int) (inodes []uint64) {
	dir := w.path(pid, "fd")
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	for _, name := range names {
		link, _ := os.Readlink(filepath.Join(dir, name))
		if rest, ok := strings.CutPrefix(link, "socket:["); ok {
			if n, err := strconv.ParseUint(strings.TrimSuffix(rest, "]"), 10, 64); err == nil {
				inodes = append(inodes, n)
			}
		}
	}
	return inodes
}

// Offsets in the kernel's structures: linux/inet_diag.h, linux/tcp.h.
const (
	requestSize = 56 // struct inet_diag_req_v2
	messageSize = 72 // struct inet_diag_msg
	atRepeats   = 2  // tcp_info.tcpi_retransmits
	atUnacked   = 24 // tcp_info.tcpi_unacked
	atAcked     = 120
	atReceived  = 128 // with the one before: Linux 4.1

	extInfo = 2 // INET_DIAG_INFO

	established, synSent, finWait1, closeWait = 1, 2, 4, 8
	states                                    = 1<<established | 1<<synSent | 1<<finWait1 | 1<<closeWait
)

// readSockets fills in those of these sockets, by inode, that are TCP connections of this network namespace. It needs no rights. The
// kernel goes through all that it has, so it takes longer on a machine with many.
func readSockets(sockets map[uint64]socket) error {
	if len(sockets) == 0 {
		return nil
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer unix.Close(fd)
	patience := unix.Timeval{Sec: 1}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		if err := dump(fd, family, sockets); err != nil {
			return fmt.Errorf("netlink: %w", err)
		}
	}
	return nil
}

// dump asks for all connections of one family and fills in those of sockets.
func dump(fd int, family byte, sockets map[uint64]socket) error {
	request := make([]byte, unix.SizeofNlMsghdr+requestSize)
	binary.NativeEndian.PutUint32(request[0:], uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	request[16], request[17], request[18] = family, unix.IPPROTO_TCP, 1<<(extInfo-1)
	binary.NativeEndian.PutUint32(request[20:], states)
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buffer := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if done, err := parseDump(buffer[:n], sockets); done || err != nil {
			return err
		}
	}
}

var errShort = errors.New("a message is shorter than it says")

// parseDump fills in the sockets of which one answer of the kernel tells.
func parseDump(b []byte, sockets map[uint64]socket) (done bool, err error) {
	for len(b) >= unix.SizeofNlMsghdr {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.SizeofNlMsghdr || size > len(b) {
			return false, errShort
		}
		body := b[unix.SizeofNlMsghdr:size]
		switch binary.NativeEndian.Uint16(b[4:]) {
		case unix.NLMSG_DONE:
			return true, nil
		case unix.NLMSG_ERROR:
			if len(body) < 4 {
				return false, errShort
			}
			return true, unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
		case unix.SOCK_DIAG_BY_FAMILY:
			inode, s, ok := parseSocket(body)
			if _, wanted := sockets[inode]; wanted && ok {
				sockets[inode] = s
			}
		}
		b = b[min(aligned(size), len(b)):]
	}
	return false, nil
}

// parseSocket reads a struct inet_diag_msg with its attributes.
func parseSocket(b []byte) (inode uint64, s socket, ok bool) {
	if len(b) < messageSize {
		return 0, s, false
	}
	s.opening = b[1] == synSent
	s.local, s.peer = addrPort(b[0], b[8:24], b[4:6]), addrPort(b[0], b[24:40], b[6:8])
	s.cookie = binary.NativeEndian.Uint64(b[44:])
	inode = uint64(binary.NativeEndian.Uint32(b[68:]))
	for rest := b[messageSize:]; len(rest) >= 4; {
		size := int(binary.NativeEndian.Uint16(rest))
		if size < 4 || size > len(rest) {
			break
		}
		if binary.NativeEndian.Uint16(rest[2:]) == extInfo {
			return inode, s, s.fill(rest[4:size])
		}
		rest = rest[min(aligned(size), len(rest)):]
	}
	return inode, s, false
}

// fill reads a struct tcp_info. Before Linux 4.1 it has no bytes.
func (s *socket) fill(info []byte) bool {
	if len(info) < atReceived+8 {
		return false
	}
	s.repeats = info[atRepeats]
	s.unacked = binary.NativeEndian.Uint32(info[atUnacked:])
	s.moved = binary.NativeEndian.Uint64(info[atAcked:]) + binary.NativeEndian.Uint64(info[atReceived:])
	return true
}

// addrPort reads an address and a port in network order. An IPv4 address in IPv6 clothes is told as the former.
func addrPort(family byte, addr, port []byte) netip.AddrPort {
	size := 4
	if family == unix.AF_INET6 {
		size = 16
	}
	a, _ := netip.AddrFromSlice(addr[:size])
	return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(port))
}

func aligned(n int) int { return (n + 3) &^ 3 }
