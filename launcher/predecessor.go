package launcher

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/muster-run/muster/ports"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/rendezvous"
)

// A predecessor is an agent of this job that hosts the meeting where this one is to. When its first process is killed, and this one started
// in its place, it stays for a while for the sake of the others. The zero value is none, as far as is known.
type predecessor struct {
	asked bool
	show  *waiting // nil: whoever holds the port is none
	who   string
	waits bool // for its end
}

// orphanTime is how long an agent without a first process may take to end: workers have their grace, members leave, and read in its store what
// comes after it.
const orphanTime = time.Minute

// look learns whether whoever holds the port is a predecessor, and shows that this agent waits for it. Who has the job's claim is one, however long it takes
// to answer, or for the first node to meet there; without claims it is asked, once.
func (p *predecessor) look(ctx context.Context, m *meeting, late time.Time) {
	if p.show == nil && (m.claimed() || !p.asked && m.meetsAt(ctx, m.hereabouts(), late)) {
		p.who = ports.Named(m.incumbents())
		p.show = newWaiting(m.c.Log, m.desk, "waiting to host the meeting at port "+portOf(m.port))
	}
	p.asked = true
	if p.show != nil {
		p.show.tick(fmt.Sprintf("another agent of this job still does%s", p.who))
	}
}

// meetsAt reports whether this job meets in a store at an address.
func (m *meeting) meetsAt(ctx context.Context, at string, late time.Time) bool {
	client, err := m.dialHere(ctx, at, late)
	if err != nil {
		return false
	}
	defer client.Close()
	ctx, cancel := context.WithDeadline(ctx, late)
	defer cancel()
	ours, err := rendezvous.Meets(ctx, client, m.spec.ID)
	return ours && err == nil
}

// mayEnd puts a deadline off, once, for a predecessor that is about to end: nothing shows that it still has its first process, which holds the
// port with it.
func (p *predecessor) mayEnd(m *meeting, late *time.Time) bool {
	if p.show == nil || p.waits || attended(m.incumbents()) {
		return false
	}
	p.waits, *late = true, p.show.began.Add(orphanTime)
	if m.end.Before(*late) {
		*late = m.end
	}
	return true
}

// claimed reports whether an agent of this job on this machine has the job's claim on the port.
func (m *meeting) claimed() bool { return len(ports.Claimants(number(portOf(m.port)), m.spec.ID)) > 0 }

// stays reports whether it hosts in the stead of an agent that was lost, as far as can be told, and goes on to do so: it has its first process, and nodes of
// this job take each other's places. Or it may be parked. Then this one meets the others there.
func (p *predecessor) stays(m *meeting) bool {
	return p.show != nil && (m.plan.Park || m.again() && attended(m.incumbents()))
}

// attended reports whether the parent of one of these processes is among them.
func attended(hosts []int) bool {
	return slices.ContainsFunc(hosts, func(pid int) bool {
		host, err := proc.Root("/proc").Process(pid)
		return err == nil && slices.Contains(hosts, host.Parent)
	})
}

// number is a port in digits.
func number(port string) int {
	n, _ := strconv.Atoi(port) // an endpoint's was one
	return n
}
