package launcher

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous"
	"github.com/muster-run/muster/rendezvous/store"
	"github.com/muster-run/muster/rendezvous/tcpstore"
)

// This file is several jobs on one host's network, whose nodes would meet at the same port of the same machine: platforms give all jobs one, or none.
// One of them meets there, and any other at a port beside, which its nodes find by its name: in the stores that they host, agents say whose they are.

// otherPorts is how many such ports a job has: some may be another one's, or anybody's.
const otherPorts = 8

// elsewhere are the endpoints with those ports, in the order in which they are tried; none where a person said the port.
func (m *meeting) elsewhere() (all []job.Addr) {
	if !m.plan.Movable {
		return nil
	}
	sum := sha256.Sum256([]byte(m.spec.ID))
	first := int(binary.BigEndian.Uint32(sum[:4]) % lookPorts)
	for i := range otherPorts {
		port := strconv.Itoa(lowPort + (first+i)%lookPorts)
		all = append(all, job.Addr(net.JoinHostPort(hostOf(m.plan.Endpoint), port)))
	}
	return all
}

// onThisMachine is an endpoint as the agents of its machine reach it.
func onThisMachine(endpoint job.Addr) job.Addr {
	host, port, _ := net.SplitHostPort(string(endpoint))
	if !isLoopback(host) {
		host = "127.0.0.1"
	}
	return job.Addr(net.JoinHostPort(literal(host), port))
}

// ownerTime bounds the wait for a store's word.
const ownerTime = time.Second

// owner asks whoever listens at an address whose meeting it hosts; "" where nobody says it. free: nobody listens there.
func (m *meeting) owner(ctx context.Context, at job.Addr) (id string, free bool) {
	ctx, leave := context.WithTimeout(ctx, ownerTime)
	defer leave()
	client, err := tcpstore.Dial(ctx, string(at), tcpstore.Options{FirstOnly: true, Progress: func(a tcpstore.Attempt) {
		free = errors.Is(a.Err, syscall.ECONNREFUSED)
		leave()
	}})
	if err != nil {
		return "", free
	}
	defer client.Close()
	id, _ = rendezvous.Owner(ctx, client) // who does not say it may be PyTorch, or an older muster
	return id, false
}

// settle is where this node, on whose machine the nodes are to meet, hosts them, or looks for another agent of that machine which does.
func (m *meeting) settle(ctx context.Context, sure bool) {
	others := m.elsewhere()
	m.port = m.plan.Endpoint
	if at := m.moved(ctx, onThisMachine); at != "" && !sure {
		m.port = at
		return
	}
	if !m.strange(ctx, onThisMachine(m.port)) {
		return
	}
	for _, at := range others {
		if id, free := m.owner(ctx, onThisMachine(at)); free || id == m.spec.ID {
			m.c.Log.Info(fmt.Sprintf("port %s is another job's; this one meets at %s", portOf(m.port), at))
			m.port = at
			return
		}
	}
}

// strange reports whether another job meets at an address, where this one could meet elsewhere.
func (m *meeting) strange(ctx context.Context, at job.Addr) bool {
	if !m.plan.Movable {
		return false
	}
	id, _ := m.owner(ctx, at)
	return id != "" && id != m.spec.ID
}

// moved is which of the ports beside this job meets at; "": none. as is how an endpoint is reached.
func (m *meeting) moved(ctx context.Context, as func(job.Addr) job.Addr) (at job.Addr) {
	others := m.elsewhere()
	found := make(chan job.Addr, len(others))
	for _, at := range others {
		go func() {
			if id, _ := m.owner(ctx, as(at)); id != m.spec.ID {
				at = ""
			}
			found <- at
		}()
	}
	for range others {
		if one := <-found; one != "" {
			at = one
		}
	}
	return at
}

// seek looks for this job's store until it is found, where another job's is at the endpoint.
func (m *meeting) seek(ctx context.Context, show *waiting) error {
	others := m.elsewhere()
	for {
		if at := m.moved(ctx, asTold); at != "" {
			m.port = at
			return nil
		}
		if id, free := m.owner(ctx, m.plan.Endpoint); !free && (id == "" || id == m.spec.ID) {
			m.port = m.plan.Endpoint
			return nil
		}
		show.tick(fmt.Sprintf("the store there is another job's, and none of this one's is at ports %s to %s", portOf(others[0]), portOf(others[len(others)-1])))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(retryPause):
		}
	}
}

// asTold is an endpoint as all nodes have it.
func asTold(at job.Addr) job.Addr { return at }

// isStrange is strange of a store to which this node has a connection.
func (m *meeting) isStrange(ctx context.Context, s store.Store) bool {
	if !m.plan.Movable {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, ownerTime)
	defer cancel()
	id, err := rendezvous.Owner(ctx, s)
	return err == nil && id != "" && id != m.spec.ID
}

// portOf is the port of an endpoint.
func portOf(a job.Addr) string {
	_, port, _ := net.SplitHostPort(string(a))
	return port
}
