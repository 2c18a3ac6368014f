package main

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/heartbeat"
	jobs "github.com/muster-run/muster/job"
)

// A flock is the members of a beating world, in one process and one goroutine, so that the leader has the machine to itself: each is a
// connection that was opened as an agent opens it. Once a second it is its turn: it reads what the leader said, and says how its workers
// stand.
type flock struct {
	*beating
	socks []int // by member; 0: it has not called yet
	began time.Time
	still time.Time // when training came to a standstill; zero: it goes on
	text  []byte    // of the frame that is written
	heard [4 << 10]byte
	late  time.Duration // the most that a turn came after its time
}

const (
	turns    = 100 // in a second: all whose turn it is beat in one go
	stepTime = 100 * time.Millisecond
	culprit  = 13 // the rank for which the others wait in the end
	greeters = 16 // members that call at once
)

// herded are what a flock says of itself: its CPU time each second, and how late it was.
type herded struct{ CPU, Late time.Duration }

// follow plays the members until the leader has seen enough, and closes our input. A line there brings training to a standstill.
func (b *beating) follow() error {
	fmt.Println("ready")
	f := &flock{beating: b, began: time.Now(), socks: make([]int, b.Size), text: make([]byte, 4)}
	orders := make(chan string)
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			orders <- in.Text()
		}
		close(orders)
	}()
	if err := f.live(f.call(), orders); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(herded{time.Duration(float64(cpu()) / time.Since(f.began).Seconds()), f.late})
}

// live has each member's turn come once a second.
func (f *flock) live(calls <-chan called, orders <-chan string) error {
	for turn := 0; ; {
		due := f.began.Add(time.Duration(turn) * time.Second / turns)
		select {
		case c := <-calls:
			if c.err != nil {
				return fmt.Errorf("node %d: %w", c.member, c.err)
			}
			f.socks[c.member] = c.sock
		case _, more := <-orders:
			if !more {
				return nil
			}
			f.still = time.Now()
		case <-time.After(time.Until(due)):
			f.late = max(f.late, time.Since(due))
			if err := f.turn(turn % turns); err != nil {
				return err
			}
			turn++
		}
	}
}

// turn is that of every so manieth member.
func (f *flock) turn(which int) error {
	for i := which; i < len(f.socks); i += turns {
		if f.socks[i] == 0 {
			continue
		}
		if err := f.beat(i); err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
	}
	return nil
}

// beat is a member's turn.
func (f *flock) beat(i int) error {
	n, _, err := unix.Recvfrom(f.socks[i], f.heard[:], unix.MSG_DONTWAIT)
	switch {
	case err == unix.EAGAIN:
		n = 0
	case err != nil:
		return err
	case n == 0:
		return errors.New("the leader closed its connection")
	}
	f.text = append(f.text[:4], fmt.Sprintf(`{"ping":%d`, time.Since(f.began))...)
	if ping := pinged(f.heard[:n]); ping > 0 {
		f.text = append(f.text, fmt.Sprintf(`,"pong":%d`, ping)...)
	}
	f.text = append(append(append(f.text, `,"beat":`...), f.report(i)...), '}')
	binary.BigEndian.PutUint32(f.text, uint32(len(f.text)-4))
	return unix.Sendto(f.socks[i], f.text, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
}

// pinged is what the leader wants back, if it asked.
func pinged(heard []byte) int {
	_, rest, _ := bytes.Cut(heard, []byte(`"ping":`))
	digits, _, _ := bytes.Cut(rest, []byte(`}`))
	n, _ := strconv.Atoi(string(digits))
	return n
}

// report is what a node says of workers that do ten steps a second, and in the end all wait for one of them.
func (f *flock) report(node int) []byte {
	at, stands := time.Now(), !f.still.IsZero()
	if stands {
		at = f.still
	}
	steps := uint64(at.Sub(f.began) / stepTime)
	beats := make([]jobs.Beat, f.Slots)
	for local := range beats {
		rank := node*f.Slots + local
		lane := jobs.Lane{
			Group: 0x9e3779b97f4a7c15, Name: "0", Entered: 100*steps + 1, Completed: 100 * steps, Op: "all_reduce", Bytes: 25 << 20, Members: f.Slots * (f.Size - 1),
		}
		beats[local] = jobs.Beat{
			Rank: rank, PID: 1_000_000 + node + local, Local: local, Sources: jobs.FromRecorder | jobs.FromHooks, Life: 1,
			Count: 201 * steps, Steps: steps, Limit: 10 * time.Minute, Lanes: []jobs.Lane{lane}, Second: uint8(1 + at.Second()),
		}
		if stands {
			look(&beats[local])
		}
	}
	text, _ := json.Marshal(heartbeat.Report{Generation: 1, Round: 1, Ranks: heartbeat.Pack(beats)})
	return text
}

// look adds how a worker looks that stands still: nobody looks at others.
func look(b *jobs.Beat) {
	b.Sight = &jobs.Sight{State: 'S', CPU: time.Hour, Disk: 1 << 33, Wire: 1 << 43, Output: 1 << 21, Waits: "futex_wait_queue", Memory: 1 << 34}
	if b.Rank == culprit {
		b.Sight.State, b.Lanes[0].Entered = 'T', b.Lanes[0].Completed
	}
}

// A called is a member's connection to the leader.
type called struct {
	member, sock int
	err          error
}

// call has all members call the leader, some at once.
func (f *flock) call() <-chan called {
	calls, places := make(chan called), make(chan struct{}, greeters)
	go func() {
		for i := 1; i < f.Size; i++ {
			places <- struct{}{}
			go func() {
				sock, err := f.open(i)
				<-places
				calls <- called{i, sock, err}
			}()
		}
	}()
	return calls
}

// open opens a member's connection: fleet's hello.go says how. What is left of it is the socket.
func (f *flock) open(member int) (int, error) {
	c, err := net.Dial("tcp", f.Endpoint)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	in, salt, incarnation := bufio.NewReader(c), rand.Text(), f.node(member).Incarnation
	if _, err := io.WriteString(c, fleet.Magic); err != nil {
		return 0, err
	}
	w, err := ask(c, in, map[string]any{"protocol": fleet.Protocol, "job": jobID, "generation": 1, "rank": member, "incarnation": incarnation, "salt": salt})
	if err != nil {
		return 0, err
	}
	mac := hmac.New(sha256.New, []byte(nonce))
	fmt.Fprintf(mac, "muster fleet member %q 1 %d %q 0 %q", jobID, member, incarnation, w.Salt)
	if _, err := ask(c, in, map[string]any{"proof": hex.EncodeToString(mac.Sum(nil))}); err != nil {
		return 0, err
	}
	file, err := c.(*net.TCPConn).File()
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return unix.Dup(int(file.Fd()))
}

// An answer is the leader's.
type answer struct{ Salt, Refused string }

// ask says something and reads what the leader answers.
func ask(to io.Writer, in *bufio.Reader, what map[string]any) (a answer, err error) {
	text, _ := json.Marshal(what)
	if _, err := to.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)); err != nil {
		return a, err
	}
	var size [4]byte
	if _, err := io.ReadFull(in, size[:]); err != nil {
		return a, err
	}
	text = make([]byte, min(binary.BigEndian.Uint32(size[:]), maxAnswer))
	if _, err := io.ReadFull(in, text); err != nil {
		return a, err
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, err
	}
	if a.Refused != "" {
		return a, fmt.Errorf("refused: %s", a.Refused)
	}
	return a, nil
}

const maxAnswer = 4 << 10 // bytes
