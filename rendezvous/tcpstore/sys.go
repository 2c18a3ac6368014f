package tcpstore

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The three system calls of the hot path, made without telling Go's scheduler: they never block, since the sockets
// do not, and the scheduler's book-keeping around each would cost about as much as everything else that we do for a
// request. Larger transfers go the ordinary way. The calls are package syscall's: those of x/sys are in assembly, and
// take their arguments over the stack.

// rawMost is up to how many bytes a transfer is short enough for the scheduler not to know of it.
const rawMost = 16 << 10

// receive reads what is there, up to len(b).
func receive(fd int, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// send writes what the socket takes now. It raises no SIGPIPE.
func send(fd int, b []byte) (int, error) {
	if len(b) > rawMost {
		return unix.SendmsgN(fd, b, nil, nil, unix.MSG_NOSIGNAL)
	}
	n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// poll returns what is ready now.
func poll(ep int, events []unix.EpollEvent) (int, error) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(ep), uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
