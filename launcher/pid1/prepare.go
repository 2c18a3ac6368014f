package pid1

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// prepare puts this process in order before it has children. It returns how many CPUs Go would use.
func prepare(isInit bool) (cpus int) {
	cpus = runtime.GOMAXPROCS(2) // a slow exec holds one of them
	debug.SetMemoryLimit(64 << 20)
	closeOnExec()
	if !isInit {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			complain("cannot adopt orphans (PR_SET_CHILD_SUBREAPER: %v); a worker's daemons may outlive the job", err)
		}
	}
	return cpus
}

// maxCPUs is how many the agent uses: enough for the output of its workers and for ten thousand peers.
const maxCPUs = 8

// processors is how many CPUs a Go program uses. The workers get the user's word on it, and no other.
const processors = "GOMAXPROCS"

// agentEnv bounds the CPUs of the agent's Go runtime, which otherwise prepares for all of them when it starts: with 192
// that takes 5 MiB and 15 ms of CPU time. In the agent's own code it would be too late. The marker says whether the
// variable is ours, for Connect to take it back, how many agents there were before, and that messages are in fields.
func agentEnv(cpus, before int) []string {
	env, ours := os.Environ(), 0
	if _, set := os.LookupEnv(processors); !set {
		env, ours = append(env, fmt.Sprintf("%s=%d", processors, min(cpus, maxCPUs))), 1
	}
	return append(env, fmt.Sprintf("%s=3:%d:%d:%d:1", marker, os.Getpid(), ours, before))
}

// closeOnExec keeps the descriptors that we inherited from our children; Go by itself does not.
func closeOnExec() {
	if unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	fds, _ := os.ReadDir("/proc/self/fd") // Linux before 5.11
	for _, e := range fds {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// spare is how many threads may wait in the kernel, for files that are slow, beside those that run, of which there is one for each CPU.
const spare = 8

// warm makes the Go runtime start as many threads as it may need with so many CPUs now. It keeps them; should a worker use up all processes of
// the cgroup, a thread that is needed later could not be made, and Go would give up. Where the user wants more CPUs for Go than we do it does not
// make all: they are processes, too, and there may be a limit.
func warm(cpus int) {
	n := min(cpus, maxCPUs) + spare
	var here, gone sync.WaitGroup
	here.Add(n)
	for range n {
		gone.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			here.Done()
			here.Wait()
		})
	}
	gone.Wait()
}

// pipe makes a pipe for one stream of a child's output: wide, so that a busy reader does not hold the writer up, and
// with a read end that does not block. The write end is the child's, and programs expect it to block.
func pipe() (read, write int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return 0, 0, os.NewSyscallError("pipe", err)
	}
	if err := unix.SetNonblock(p[0], true); err != nil {
		closeAll(p[:])
		return 0, 0, os.NewSyscallError("fcntl", err)
	}
	for _, size := range []int{1 << 20, 256 << 10} { // without privilege there is a limit of the user's, 64 MiB in all
		if _, err := unix.FcntlInt(uintptr(p[0]), unix.F_SETPIPE_SZ, size); err == nil {
			break
		}
	}
	return p[0], p[1], nil
}

// duplicates returns new descriptors of the same files, as many as there is room for.
func duplicates(fds []int) []int {
	var out []int
	for _, fd := range fds {
		if d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3); err == nil {
			out = append(out, d)
		}
	}
	return out
}
