package chaos

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// packetsLate has all packets from and to a node come late: everything is slower, and nothing is told.
func packetsLate(l *lap, fault string) {
	v, late := l.victim(), time.Duration(10+l.draw.IntN(60))*time.Millisecond
	l.befalls(fault, v)
	end := l.delay(v, late)
	l.goesOn()
	end()
	l.goesOn()
}

// delay takes a node's wire out of the switch, and carries each frame from its one end to the other as much later, both ways.
func (l *lap) delay(v int, late time.Duration) (end func()) {
	l.t.Helper()
	port := l.hosts[v].Port()
	var ends []*os.File
	l.Switch.Network("ip", "link add late0 type veth peer name late1\nlink set late1 master br0 up\nlink set late0 up\n")
	var err error
	l.must(inNetworkOf(l.Switch.PID(), func() {
		for _, name := range []string{port, "late0"} {
			var f *os.File
			if f, err = wire(name); err != nil {
				return
			}
			ends = append(ends, f)
		}
	}))
	l.must(err)
	l.Switch.Network("ip", fmt.Sprintf("link set %s nomaster\n", port))
	var carriers sync.WaitGroup
	for i := range ends {
		carriers.Go(func() { carry(ends[i], ends[1-i], late) })
	}
	return func() {
		l.t.Helper()
		l.Switch.Network("ip", fmt.Sprintf("link set %s master br0\nlink del late0\n", port))
		for _, f := range ends {
			f.Close()
		}
		carriers.Wait()
	}
}

// inNetworkOf does something in the network of a process. The thread goes back then, and does not end: machines that it had started would end with it.
func inNetworkOf(pid int, do func()) error {
	runtime.LockOSThread()
	ours, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer ours.Close()
	theirs, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return err
	}
	defer theirs.Close()
	if err := unix.Setns(int(theirs.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	do()
	if err := unix.Setns(int(ours.Fd()), unix.CLONE_NEWNET); err != nil {
		return err // and nobody else is to have this thread
	}
	runtime.UnlockOSThread()
	return nil
}

// wire is an end of a wire, from which come the frames that arrive there, and nothing that was written to it. Each has before it what the kernel
// would leave to a card: what of its checksum is still to be done, and where it is to be cut.
func wire(name string) (*os.File, error) {
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in the network's order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	const ignoreOutgoing = 23 // PACKET_IGNORE_OUTGOING
	f := os.NewFile(uintptr(fd), name)
	for option, value := range map[int]int{unix.PACKET_VNET_HDR: 1, ignoreOutgoing: 1} {
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, option, value); err != nil {
			f.Close()
			return nil, err
		}
	}
	card, err := unix.NewIfreq(name)
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, card)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: int(card.Uint32())})
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// carry carries until an end is closed. A frame that the other end does not take is lost, as on any wire.
func carry(from, to *os.File, late time.Duration) {
	type frame struct {
		due  time.Time
		text []byte
	}
	way := make(chan frame, 1<<14)
	var sender sync.WaitGroup
	sender.Go(func() {
		for f := range way {
			time.Sleep(time.Until(f.due))
			_, _ = to.Write(f.text)
		}
	})
	buffer := make([]byte, 1<<17)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			break
		}
		way <- frame{time.Now().Add(late), append([]byte(nil), buffer[:n]...)}
	}
	close(way)
	sender.Wait()
}
