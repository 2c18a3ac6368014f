package fleet_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous/tcpstore"
)

// One port serves the meeting's store and the fleet.
func TestOnePortForStoreAndFleet(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	w := job.World{ID: "job7", Nonce: "secret", Generation: 1, Members: []job.Member{
		{Node: job.Node{Name: "a", Incarnation: "1"}}, {Node: job.Node{Name: "b", Incarnation: "2"}},
	}}
	leader := fleet.Lead(w, fleet.Options{})
	defer leader.Close()
	server := &tcpstore.Server{Magic: fleet.Magic, Foreign: leader.Handle}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	defer func() { server.Close(); <-served }()
	addr := ln.Addr().String()

	client, err := tcpstore.Dial(ctx, addr, tcpstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	seat := job.Seat{Job: w.ID, Nonce: w.Nonce, Generation: 1, Rank: 1, Incarnation: "2", Leader: job.Node{Addrs: []job.Addr{job.Addr(addr)}}}
	member, err := fleet.Follow(ctx, seat, fleet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	member.Tell("hello", nil)
	for _, want := range []fleet.Change{fleet.Joined, fleet.Heard} {
		select {
		case e := <-leader.Events():
			if e.Change != want {
				t.Errorf("got %v, want %v", e.Change, want)
			}
		case <-ctx.Done():
			t.Fatal("the leader heard nothing")
		}
	}
	if err := client.Set(ctx, "k", []byte("v")); err != nil {
		t.Error(err)
	}
}
