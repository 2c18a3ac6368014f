package platforms

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// A dns is the cluster's name server. A name is there when it was asked for in vain for a while, each after a while of its own, as it is where
// Services come late and caches keep that there was nothing; one may have an address first at which nobody is.
type dns struct {
	conn *net.UDPConn

	mu    sync.Mutex
	names map[string]*record
}

type record struct {
	addr  netip.Addr
	stale netip.Addr // what is told of it before
	old   int        // how often that is still told
	later int        // how often there is still nothing of that name
	asked int
}

// serveDNS starts one at an address of a machine's network.
func serveDNS(t *testing.T, pid int, addr string) *dns {
	d := &dns{names: map[string]*record{}}
	var err error
	within(t, pid, func() {
		d.conn, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr+":53")))
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { d.serve(); close(done) }()
	t.Cleanup(func() { d.conn.Close(); <-done })
	return d
}

// within calls a function in the network of a process, and comes back from there. The thread must live on: with it would end the machines that
// were made on it.
func within(t *testing.T, pid int, call func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	there, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	call()
	if err := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); err != nil {
		panic(err) // nothing else may run on this thread
	}
}

// add publishes a name, which is asked for in vain so often before.
func (d *dns) add(name, addr string, later int) *record {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &record{addr: netip.MustParseAddr(addr), later: later}
	d.names[name] = r
	return r
}

// moveAll says that names are told with another address so often before.
func (d *dns) moveAll(from string, often int) {
	for _, r := range d.names {
		d.moves(r, from, often)
	}
}

// moves is that of one name.
func (d *dns) moves(r *record, from string, often int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r.stale, r.old = netip.MustParseAddr(from), often
}

// moved is whether a name that was told with its old address was told with its new one in the end.
func (d *dns) moved() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.names {
		if r.stale.IsValid() && r.old == 0 && r.later < 0 {
			return true
		}
	}
	return false
}

// sometime is for how long a name is not there.
func sometime() int { return 1 + rand.IntN(4) }

// asked is how often a name was looked for that is, or will be.
func (d *dns) asked() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.names {
		n += r.asked
	}
	return n
}

func (d *dns) serve() {
	query := make([]byte, 512)
	for {
		n, from, err := d.conn.ReadFromUDPAddrPort(query)
		if err != nil {
			return // it was closed
		}
		if answer := d.answer(query[:n]); answer != nil {
			_, _ = d.conn.WriteToUDPAddrPort(answer, from) // else it asks again
		}
	}
}

const (
	typeA      = 1
	nxDomain   = 3
	headerSize = 12
)

// answer is a message as RFC 1035 has it, with one record or none. nil: this is no question.
func (d *dns) answer(query []byte) []byte {
	if len(query) < headerSize {
		return nil
	}
	name, end := question(query)
	if end == 0 {
		return nil
	}
	addr, known := d.lookUp(name, binary.BigEndian.Uint16(query[end:]) == typeA)
	answer := append(slices.Clone(query[:2]), 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0) // a response, recursive, of one question
	answer = append(answer, query[headerSize:end+4]...)
	switch {
	case !known:
		answer[3] |= nxDomain
	case addr.IsValid():
		answer[7] = 1
		answer = append(answer, 0xc0, headerSize, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4) // the question's name, to be kept for no time
		answer = append(answer, addr.AsSlice()...)
	}
	return answer
}

// question is the name that a message asks for, and where that ends; 0: it does not.
func question(query []byte) (string, int) {
	var labels []string
	for at := headerSize; at < len(query); {
		n := int(query[at])
		at++
		if n == 0 && at+4 <= len(query) {
			return strings.ToLower(strings.Join(labels, ".")), at
		}
		if n == 0 || at+n > len(query) {
			break
		}
		labels = append(labels, string(query[at:at+n]))
		at += n
	}
	return "", 0
}

// lookUp is the address of a name, if it is one of IPv4 that is asked for, and whether there is such a name.
func (d *dns) lookUp(name string, v4 bool) (addr netip.Addr, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.names[name]
	switch {
	case r == nil:
		return addr, false
	case !v4:
		return addr, r.later <= 0
	}
	r.asked++
	if r.later--; r.later >= 0 {
		return addr, false
	}
	if r.old > 0 {
		r.old--
		return r.stale, true
	}
	return r.addr, true
}
