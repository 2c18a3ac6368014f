package proc

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Vigil waits for the end of a process that need not be a child of ours: another one reaps it.
type Vigil struct {
	root Root
	of   Process
	file *os.File // a pidfd: it can be read from when the process has ended
}

// Watch begins a vigil. Kernels before 5.3 have none, and a process that is gone needs none.
func (r Root) Watch(p Process) (*Vigil, error) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return nil, err
	}
	if err = unix.SetNonblock(fd, true); err == nil { // so that no thread waits with it
		var now Process
		if now, err = r.Process(p.PID); err == nil && now.Start != p.Start {
			err = unix.ESRCH
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &Vigil{r, p, os.NewFile(uintptr(fd), "pidfd")}, nil
}

// Close ends the vigil, and a Wait.
func (v *Vigil) Close() error { return v.file.Close() }

// Wait returns how the process ended; an error says that the vigil was ended before.
func (v *Vigil) Wait() (Exit, error) {
	conn, err := v.file.SyscallConn()
	if err != nil {
		return Exit{}, err
	}
	e := Exit{PID: v.of.PID}
	err = conn.Read(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, 0); n == 0 || err == unix.EINTR {
			return false
		}
		e.At = time.Now()
		status, known := v.status(fd)
		if !known {
			e.Lost = "it was reaped before it could be looked at"
		}
		if e.Code = status.ExitStatus(); status.Signaled() {
			e.Code, e.Signal, e.Core = 0, status.Signal(), status.CoreDump()
		}
		return true
	})
	return e, err
}

// status is what the kernel shows of a process as long as nobody has reaped it, and since Linux 6.15 afterwards.
func (v *Vigil) status(fd uintptr) (status syscall.WaitStatus, known bool) {
	text, err := os.ReadFile(v.root.path(v.of.PID, "stat"))
	if now, wrong := parseStat(string(text)); err == nil && wrong == nil && now.Start == v.of.Start {
		if f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]); len(f) > 49 { // f[0] is field 3 of the manual
			n, err := strconv.ParseUint(string(f[49]), 10, 32)
			return syscall.WaitStatus(n), err == nil
		}
	}
	info := pidfdInfo{mask: pidfdInfoExit}
	_, _, no := unix.Syscall(unix.SYS_IOCTL, fd, pidfdGetInfo, uintptr(unsafe.Pointer(&info)))
	return syscall.WaitStatus(uint32(info.exit)), no == 0 && info.mask&pidfdInfoExit != 0
}

// pidfdInfo is struct pidfd_info of linux/pidfd.h in its first size.
type pidfdInfo struct {
	mask, cgroup uint64
	ids          [11]uint32 // pid to fsgid
	exit         int32
}

const (
	pidfdInfoExit = 1 << 3
	pidfdGetInfo  = 3<<30 | unsafe.Sizeof(pidfdInfo{})<<16 | 0xff<<8 | 11 // _IOWR(PIDFS_IOCTL_MAGIC, 11, struct pidfd_info)
)
