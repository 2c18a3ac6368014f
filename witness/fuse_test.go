package witness

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// deadFile is a file system of one file, "data", in which every read waits for ever, and every fsync, as if its server had died. It is mounted at
// dir and served until the process ends. linux/fuse.h.
func deadFile(dir string) error {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/fuse: %w", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d", fd, os.Getuid(), os.Getgid())
	if err := unix.Mount("dead", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	go serveDead(fd)
	return nil
}

func serveDead(fd int) {
	request := make([]byte, 128<<10)
	for {
		n, err := unix.Read(fd, request)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err != nil || n < 40 {
			return
		}
		answer, code, silent := answerDead(binary.NativeEndian.Uint32(request[4:]), binary.NativeEndian.Uint64(request[16:]))
		if silent {
			continue
		}
		reply := make([]byte, 16, 16+len(answer))
		binary.NativeEndian.PutUint32(reply, uint32(16+len(answer)))
		binary.NativeEndian.PutUint32(reply[4:], uint32(-int32(code)))
		copy(reply[8:], request[8:16])
		unix.Write(fd, append(reply, answer...))
	}
}

// answerDead answers a request about a node: 1 is the directory, 2 the file.
func answerDead(opcode uint32, node uint64) (answer []byte, code unix.Errno, silent bool) {
	put32, put64 := binary.NativeEndian.PutUint32, binary.NativeEndian.PutUint64
	attr := func(node uint64) []byte {
		b := make([]byte, 88)
		put64(b, node)
		put32(b[64:], 1)
		put32(b[60:], unix.S_IFDIR|0o755)
		if node == 2 {
			put64(b[8:], 1<<20)
			put32(b[60:], unix.S_IFREG|0o666)
		}
		return b
	}
	const lookup, getattr, open, read, fsync, init = 1, 3, 14, 15, 20, 26
	switch opcode {
	case init:
		b := make([]byte, 64)
		put32(b, 7)
		put32(b[4:], 31)
		put32(b[20:], 4096)
		return b, 0, false
	case lookup:
		b := make([]byte, 40)
		put64(b, 2)
		return append(b, attr(2)...), 0, false
	case getattr:
		return append(make([]byte, 16), attr(node)...), 0, false
	case open:
		return make([]byte, 16), 0, false
	case read, fsync:
		return nil, 0, true
	}
	return nil, unix.ENOSYS, false
}
