package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/fleet"
	jobs "github.com/muster-run/muster/job" // a job is something else here
	"github.com/muster-run/muster/rendezvous"
	"github.com/muster-run/muster/rendezvous/tcpstore"
)

// patient is for a machine that is too small for the world: it is to give a figure, too.
var patient = fleet.Options{Arrival: worldTime, NodeTimeout: worldTime, Suspect: worldTime, Redial: worldTime}

// A crowd is agents of one world that share a process: each has its own connection to the store, which the first agent hosts, and
// its own to the leader, over loopback. They say what agents say; only workers they have none.
type crowd struct {
	size     int // of the world
	token    string
	endpoint string
	door     door

	mu sync.Mutex
	marks
}

// figures are what a world took since its agents began, all at once.
type figures struct {
	Met, Connected, Started time.Duration // as in marks
	Leader                  time.Duration // CPU time of the first agent with the store it hosts, the kernel's part included
	Members                 time.Duration // and of all others
}

// marks are when the last agent of a crowd came to a point, as nanoseconds of the wall clock, which all processes share.
type marks struct {
	Met       int64 // it had the world,
	Connected int64 // the leader had every member on its line,
	Started   int64 // and it had heard the start
	CPU       time.Duration
}

// withToken asks, behind the size of a world, for one with a job's token.
const withToken = "+token"

const (
	worldTime = 2 * time.Minute // how long a world may take
	mostHere  = 1000            // agents in one process, which has open files for so many
)

// A world says what part of one this process plays; it is what -world takes.
type world struct {
	Size     int
	Token    string // the job's; "": it has none
	Endpoint string // "": this process has the first agent, and starts those with the others
	From, To int    // the agents of this process
}

func (w *world) Set(text string) error {
	size, with := strings.CutSuffix(text, withToken)
	if n, err := strconv.Atoi(size); err == nil {
		*w = world{Size: n, To: 1}
		if with {
			w.Token = fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
		}
		return nil
	}
	return json.Unmarshal([]byte(text), w)
}

func (w *world) String() string {
	b, _ := json.Marshal(w) // cannot fail: it is numbers and an address
	return string(b)
}

// play takes this process's part and writes what came of it to standard output. What it opened is closed with the process.
func (w *world) play() error {
	debug.SetGCPercent(400) // this process keeps what many would: each agent has its own copy of the world
	ctx, cancel := context.WithTimeout(context.Background(), worldTime)
	defer cancel()
	if w.Endpoint != "" {
		return w.follow(ctx)
	}
	return w.lead(ctx)
}

// follow plays some members, when everybody is ready.
func (w *world) follow(ctx context.Context) error {
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	g, before := &crowd{size: w.Size, token: w.Token, endpoint: w.Endpoint}, cpu()
	if err := g.run(ctx, w.From, w.To); err != nil {
		return err
	}
	g.CPU = cpu() - before
	return json.NewEncoder(os.Stdout).Encode(g.marks)
}

// lead plays the agent that hosts the store and leads, and has the others played.
func (w *world) lead(ctx context.Context) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	g := &crowd{size: w.Size, token: w.Token, endpoint: ln.Addr().String()}
	server := &tcpstore.Server{Magic: fleet.Magic, Foreign: g.door.handle, Store: rendezvous.Host(tcpstore.Prefix, "bench", nil, func([]byte) {})}
	go func() { _ = server.Serve(ln) }() // until the process ends
	var all []*members
	for from := 1; from < w.Size; from += mostHere {
		m, err := beginMembers("-world", &world{Size: w.Size, Token: w.Token, Endpoint: g.endpoint, From: from, To: min(from+mostHere, w.Size)})
		if err != nil {
			return err
		}
		all = append(all, m)
	}
	began, before := time.Now().UnixNano(), cpu()
	for _, m := range all {
		m.in.Close()
	}
	if err := g.run(ctx, 0, 1); err != nil {
		return err
	}
	for _, m := range all {
		if err := m.end(&g.marks); err != nil {
			return err
		}
	}
	since := func(at int64) time.Duration { return time.Duration(at - began) }
	return json.NewEncoder(os.Stdout).Encode(figures{
		Met: since(g.Met), Connected: since(g.Connected), Started: since(g.Started), Leader: cpu() - before, Members: g.CPU,
	})
}

// members is a process that plays some.
type members struct {
	cmd *exec.Cmd
	in  io.WriteCloser // of -world, closed: begin
	out *bufio.Reader
}

// beginMembers starts one, which takes its part by a flag, and is ready when it says so.
func beginMembers(flag string, part fmt.Stringer) (*members, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	m := &members{cmd: exec.Command(self, flag, part.String())}
	m.cmd.Stderr, m.cmd.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err1 := m.cmd.StdinPipe()
	out, err2 := m.cmd.StdoutPipe()
	if err := errors.Join(err1, err2, m.cmd.Start()); err != nil {
		return nil, err
	}
	m.in, m.out = in, bufio.NewReader(out)
	_, err = m.out.ReadString('\n')
	return m, err
}

// end adds what a process of members has seen.
func (m *members) end(to *marks) error {
	var got marks
	if err := errors.Join(json.NewDecoder(m.out).Decode(&got), m.cmd.Wait()); err != nil {
		return err
	}
	to.Met, to.Started, to.CPU = max(to.Met, got.Met), max(to.Started, got.Started), to.CPU+got.CPU
	return nil
}

// run plays agents until all have heard the start.
func (g *crowd) run(ctx context.Context, from, to int) error {
	ends := make(chan error, to-from)
	for i := from; i < to; i++ {
		go func() { ends <- g.agent(ctx, i) }()
	}
	for range to - from {
		if err := <-ends; err != nil {
			return err // the process ends with it
		}
	}
	return nil
}

// agent takes part in the world until it has heard the start.
func (g *crowd) agent(ctx context.Context, i int) error {
	store, err := tcpstore.Dial(ctx, g.endpoint, tcpstore.Options{FirstOnly: true})
	if err != nil {
		return err
	}
	session, err := rendezvous.Join(ctx, store, g.spec(i), rendezvous.Options{})
	if err != nil {
		return err
	}
	g.note(&g.Met)
	if session.Rank == 0 {
		return g.lead(ctx, session.World)
	}
	line, err := fleet.Follow(ctx, session.Seat(), g.options())
	if err != nil {
		return err
	}
	err = await(ctx, line, fleet.Heard, 1)
	g.note(&g.Started)
	return err
}

// spec is the i-th agent. The first one is rank 0 as well, and reached where the store is.
func (g *crowd) spec(i int) jobs.Spec {
	addrs := []jobs.Addr{jobs.Addr(fmt.Sprintf("10.1.%d.%d:29400", i/256, i%256)), jobs.Addr(fmt.Sprintf("[fd00::%x]:29400", i))}
	if i == 0 {
		addrs = []jobs.Addr{jobs.Addr(g.endpoint)}
	}
	return jobs.Spec{ID: "bench", Terms: jobs.Terms{Nodes: g.size}, Self: jobs.Node{
		Name: fmt.Sprintf("node%04d.cluster", i), Index: i, Slots: 8, Version: "v0.1.0", Addrs: addrs,
		Incarnation: fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()),
	}}
}

func (g *crowd) options() fleet.Options {
	o := patient
	o.Token = g.token
	return o
}

// lead tells the start to all, once all are there.
func (g *crowd) lead(ctx context.Context, w jobs.World) error {
	line := fleet.Lead(w, g.options())
	g.door.open(line)
	if err := await(ctx, line, fleet.Joined, g.size-1); err != nil {
		return err
	}
	g.note(&g.Connected)
	return line.Tell("start", map[string]any{"kind": "start", "start": map[string]any{"port": 29500, "agent_store": true}})
}

// await reads events until so many were such a change.
func await(ctx context.Context, line *fleet.Fleet, change fleet.Change, count int) error {
	for count > 0 {
		select {
		case e := <-line.Events():
			switch e.Change {
			case change:
				count--
			case fleet.Lost, fleet.Left:
				return fmt.Errorf("node %d is %v: %w", e.Peer, e.Change, e.Why)
			}
		case <-ctx.Done():
			return errors.New("it took too long")
		}
	}
	return nil
}

// note sets a mark to now, which is not before any other agent's.
func (g *crowd) note(at *int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	*at = time.Now().UnixNano()
}

// A door keeps connections for the leader until there is one.
type door struct {
	mu      sync.Mutex
	fleet   *fleet.Fleet
	waiting []net.Conn
}

func (d *door) handle(c net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fleet == nil {
		d.waiting = append(d.waiting, c)
		return
	}
	d.fleet.Handle(c)
}

func (d *door) open(f *fleet.Fleet) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fleet = f
	for _, c := range d.waiting {
		f.Handle(c)
	}
}

// cpu is what this process has used.
func cpu() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // cannot fail for oneself
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
