package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/fleet"
	jobs "github.com/muster-run/muster/job" // a job is something else here
	"github.com/muster-run/muster/rendezvous"
	"github.com/muster-run/muster/rendezvous/tcpstore"
)

// figures are what a world took since its agents began, all at once.
type figures struct {
	Met       time.Duration // until the last one had the world,
	Connected time.Duration // the leader had every member on its line,
	Started   time.Duration // and the last one had heard the start
	CPU       time.Duration // of all agents, the leader with the store it hosts included, and with the kernel's part
}

// A crowd is the agents of one world, in this process: each has its own connection to the store, which the first one hosts, and its
// own to the leader, over loopback. They say what agents say; only workers they have none.
type crowd struct {
	size     int
	endpoint string
	door     door
	began    time.Time

	mu sync.Mutex
	figures
}

// worldTime is how long a world may take.
const worldTime = 2 * time.Minute

// gather makes a world of n agents and writes what that took to standard output. What it opened is closed with this process.
func gather(n int) error {
	debug.SetGCPercent(400) // one process keeps what n would: each agent has its own copy of the world
	ctx, cancel := context.WithTimeout(context.Background(), worldTime)
	defer cancel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	g := &crowd{size: n, endpoint: ln.Addr().String()}
	server := &tcpstore.Server{Magic: fleet.Magic, Foreign: g.door.handle, Store: rendezvous.Host(tcpstore.Prefix, "bench", nil, func([]byte) {})}
	ends := make(chan error, n+1)
	go func() { ends <- server.Serve(ln) }()
	g.began = time.Now()
	before := cpu()
	for i := range n {
		go func() { ends <- g.agent(ctx, i) }()
	}
	for range n {
		if err := <-ends; err != nil {
			return err
		}
	}
	g.CPU = cpu() - before
	return json.NewEncoder(os.Stdout).Encode(g.figures)
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
	line, err := fleet.Follow(ctx, session.World, session.Rank, session.World.Members[0].Addrs, fleet.Options{Token: "secret"})
	if err != nil {
		return err
	}
	if err := await(ctx, line, fleet.Heard, 1); err != nil {
		return err
	}
	g.note(&g.Started)
	return nil
}

// spec is the i-th agent. The first one is rank 0 as well, and reached where the store is.
func (g *crowd) spec(i int) jobs.Spec {
	addrs := []jobs.Addr{jobs.Addr(fmt.Sprintf("10.1.%d.%d:29400", i/256, i%256)), jobs.Addr(fmt.Sprintf("[fd00::%x]:29400", i))}
	if i == 0 {
		addrs = []jobs.Addr{jobs.Addr(g.endpoint)}
	}
	return jobs.Spec{ID: "bench", Terms: jobs.Terms{Nodes: g.size}, Self: jobs.Node{
		Name: fmt.Sprintf("node%04d.cluster", i), Index: i, Slots: 8, Incarnation: incarnation(), Version: "v0.1.0", Addrs: addrs,
	}}
}

// incarnation is as long and as random as an agent's.
func incarnation() string { return fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()) }

// lead tells the start to all, once all are there.
func (g *crowd) lead(ctx context.Context, w jobs.World) error {
	line := fleet.Lead(w, fleet.Options{Token: "secret"})
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

// note sets a time to now, which is not before any other agent's.
func (g *crowd) note(at *time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	*at = time.Since(g.began)
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
