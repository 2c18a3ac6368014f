package launcher

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/muster-run/muster/allow"
	"github.com/muster-run/muster/discovery"
	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/job"
)

// This file is who may come to a job's ports, where --store-allow says so: to those at which its nodes meet, and to the store of its workers.
// Nodes that are to come nobody knows beforehand, so that at the former the addresses and networks alone count that the list names.

// planAllow notes who may come. A node that is not on its own list may not get far.
func planAllow(c Config, _ discovery.Finding, p *Plan) error {
	if c.StoreAllow.None() {
		return nil
	}
	p.set(c, "store-allow", c.StoreAllow.String(), "default")
	listed := func(a job.Addr) bool {
		at := hostAddr(string(a)).Addr()
		return at.IsLoopback() || c.StoreAllow.Has(at)
	}
	if mine := p.Spec.Self.Addrs; len(mine) > 0 && !c.StoreAllow.Empty() && !slices.ContainsFunc(mine, listed) {
		p.Notes = append(p.Notes, fmt.Sprintf("%s has none of this node's addresses, %v: other nodes may not let it in", c.said("store-allow", c.StoreAllow), mine))
	}
	return nil
}

// ownAddrs are the addresses of this machine as they are now, and loopback: whom the rule of a job never bars.
func ownAddrs() []netip.Prefix {
	all := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), allow.One(netip.IPv6Loopback())}
	for _, ip := range interfaceIPs() {
		if a, ok := netip.AddrFromSlice(ip); ok {
			all = append(all, allow.One(a))
		}
	}
	return all
}

// admits is who is let in where nodes meet; nil: everybody.
func (c Config) admits() func(netip.Addr) bool {
	if c.StoreAllow.Empty() {
		return nil
	}
	return c.StoreAllow.With(ownAddrs()...).Has
}

// sharedTime is how long it is taken for true that other jobs share the port, or do not. Strangers may come as a flood.
const sharedTime = time.Second

// sharing is shared for one who asks often. It is not to be called by several at a time.
func (m *meeting) sharing() func() bool {
	var asked time.Time
	var is bool
	return func() bool {
		if now := time.Now(); now.Sub(asked) > sharedTime {
			asked, is = now, m.shared()
		}
		return is
	}
}

// guard hands on connections from addresses that are let in, and closes others.
func guard(admits func(netip.Addr) bool, log *slog.Logger, take func(net.Conn)) func(net.Conn) {
	if admits == nil {
		return take
	}
	var loud sparing
	return func(c net.Conn) {
		from, _ := netip.ParseAddrPort(c.RemoteAddr().String())
		if admits(from.Addr()) {
			take(c)
			return
		}
		fleet.Refuse(c, "this node's address is not among those that are let in (--store-allow)")
		log.Log(context.Background(), loud.level(), fmt.Sprintf("a connection from %v to the agents' line was closed: its address is not among those that are let in", from.Addr().Unmap()))
	}
}

// hostAddr is the address in what a node gave, or in what a connection came from; none: it is a name.
func hostAddr(host string) netip.Prefix {
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Prefix{}
	}
	return allow.One(a)
}

// mayCome is who is let in at the store of this round's workers.
func (r *round) mayCome() allow.List {
	all := ownAddrs()
	if r.c.StoreAllow.World {
		for _, m := range r.session.World.Members {
			for _, a := range m.Addrs {
				all = append(all, hostAddr(hostOf(a)))
			}
		}
		all = append(all, r.seen...)
	}
	return r.c.StoreAllow.With(all...)
}

// allowFile has who is let in at the workers' store, as allow.Parse reads it, for the process that serves it.
func (r *round) allowFile() string { return filepath.Join(r.run, "store-allow") }

// writeAllowed leaves who is let in at the workers' store, where not everybody is.
func (r *round) writeAllowed() error {
	switch {
	case r.c.StoreAllow.None():
		return nil
	case r.c.StoreAllow.World && !agentStore(r.c):
		r.c.Log.Warn(fmt.Sprintf("%s: the workers' store is rank 0's own in this job, and lets in everybody; --worker-store agent has muster serve it", r.c.by("store-allow")))
	}
	if err := os.WriteFile(r.allowFile(), []byte(r.mayCome().String()), 0o600); err != nil {
		return fail(job.ExitSystem, "", "leave who may come to the workers' store: %w", err)
	}
	return nil
}

// sees notes from where a member reached this node, which leads: behind a gateway that is none of the addresses that it gave.
func (r *round) sees(e fleet.Event) {
	from := hostAddr(e.Host)
	if !r.c.StoreAllow.World || !from.IsValid() {
		return
	}
	r.seen = append(r.seen, from)
	if r.store == nil {
		return // the list is not written yet
	}
	f, err := os.OpenFile(r.allowFile(), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = fmt.Fprintf(f, ",%v", from.Addr())
		f.Close()
	}
	if err != nil {
		r.c.Log.Debug(fmt.Sprintf("%v is not added to who may come to the workers' store: %v", from.Addr(), err))
	}
}

// c10dStore are the words by which this program serves such a store.
func (r *round) c10dStore() []string {
	words := []string{"store", "serve", "--inherit"}
	if !r.c.StoreAllow.None() {
		words = append(words, "--allow", r.allowFile())
	}
	return words
}
