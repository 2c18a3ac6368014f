// Package ports finds TCP ports of this machine that are free, keeps them until they are used, and says who holds one.
package ports

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"
)

// Take takes the port that was asked for, or, when that is 0, a free one outside the range from which the kernel takes
// ports for outgoing connections. take is told whether the port may be one that connections of an earlier program
// still linger on.
func Take[T any](asked int, take func(port int, lingering bool) (T, error)) (T, int, error) {
	if asked != 0 {
		got, err := take(asked, true)
		return got, asked, err
	}
	low, high := Range()
	var err error
	for range 256 {
		port := low + rand.IntN(high-low)
		var got T
		if got, err = take(port, false); err == nil {
			return got, port, nil
		}
	}
	var none T
	return none, 0, fmt.Errorf("none of 256 ports from %d to %d is free: %w", low, high-1, err)
}

// Hold keeps a port for another process: the socket that it returns is bound and never listens. With SO_REUSEADDR on
// both, as PyTorch has it, Linux lets the other bind and listen beside it (net/ipv4/inet_connection_sock.c, inet_csk_bind_conflict), while
// nobody else is given the port. A port that must be free of lingering connections is bound without that option first.
func Hold(port int, lingering bool) (int, error) {
	fd, addr, err := anySocket(port)
	if err != nil {
		return -1, err
	}
	for _, step := range holdSteps(fd, addr, lingering) {
		if err := step(); err != nil {
			unix.Close(fd)
			return -1, err
		}
	}
	return fd, nil
}

func holdSteps(fd int, addr unix.Sockaddr, lingering bool) []func() error {
	reuse := func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }
	bind := func() error { return unix.Bind(fd, addr) }
	if lingering {
		return []func() error{reuse, bind}
	}
	return []func() error{bind, reuse}
}

// anySocket makes a socket for all addresses of both families, or of IPv4 where the kernel has no IPv6.
func anySocket(port int) (int, unix.Sockaddr, error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		return fd, &unix.SockaddrInet4{Port: port}, err
	}
	err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	return fd, &unix.SockaddrInet6{Port: port}, err
}

// Range returns a range of unprivileged ports outside net.ipv4.ip_local_port_range
// (kernel, Documentation/networking/ip-sysctl.rst), below it where there is room.
func Range() (low, high int) {
	data, _ := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range") // without it, the kernel's default
	first, last := 32768, 60999
	if f := strings.Fields(string(data)); len(f) == 2 {
		a, errA := strconv.Atoi(f[0])
		b, errB := strconv.Atoi(f[1])
		if errA == nil && errB == nil && a <= b {
			first, last = a, b
		}
	}
	switch {
	case first > 21000:
		return max(20000, first-12000), first
	case last < 64000:
		return last + 1, 65536
	}
	return 20000, 30000
}

// Holder names the program that listens on a port, as far as /proc shows it to us: " (pid 12, nginx)".
func Holder(port int) string { return Named(Holders(port)) }

// Named is the first of processes, as a part of a sentence: " (pid 12, nginx)"; "": there is none.
func Named(pids []int) string {
	if len(pids) == 0 {
		return ""
	}
	return fmt.Sprintf(" (pid %d, %s)", pids[0], command(pids[0]))
}

// Holders are the processes that listen on a port, as far as /proc shows them to us, the lowest PID first.
func Holders(port int) []int { return holding(listenerInode(port)) }

// holding are the processes that have a socket open; "": nobody has.
func holding(inode string) (pids []int) {
	if inode == "" {
		return nil
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == "socket:["+inode+"]" {
			pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// command is what a process was started as, or the kernel's name of one that has written over that.
func command(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if name := named(string(line)); name != "" {
		return name
	}
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(name))
}

// named is a command line up to its first flag, for what flags say may be secret: "python3 -m http.server", "muster run".
func named(line string) string {
	words := strings.Split(strings.TrimRight(line, "\x00"), "\x00")
	flag := slices.IndexFunc(words[1:], func(word string) bool { return strings.HasPrefix(word, "-") && word != "-m" })
	if flag >= 0 {
		words = words[:1+flag]
	}
	words[0] = words[0][strings.LastIndex(words[0], "/")+1:]
	return strings.ToValidUTF8(strings.Map(shown, fmt.Sprintf("%.*s", maxCommand, strings.Join(words, " "))), "")
}

// maxCommand bounds the characters of a command in a sentence.
const maxCommand = 80

// shown drops what would not be seen, or do something to a terminal.
func shown(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return -1
}

// listenerInode finds the socket that listens on port (proc_net_tcp(5): state 0A, port in hexadecimal).
func listenerInode(port int) string {
	suffix := fmt.Sprintf(":%04X", port)
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, _ := os.ReadFile(table)
		for _, row := range strings.Split(string(data), "\n") {
			if f := strings.Fields(row); len(f) > 9 && f[3] == "0A" && strings.HasSuffix(f[1], suffix) {
				return f[9]
			}
		}
	}
	return ""
}
