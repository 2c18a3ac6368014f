package launcher

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/discovery"
	"github.com/muster-run/muster/framework"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/ports"
)

// This file is the contract with the workers: which framework they are, which nodes of it are parameter servers, and where workers
// find each other.

// planFramework decides what the workers are: as flags or the dialect say, else the platform, else the script itself.
func planFramework(c Config, found discovery.Finding, p *Plan) (err error) {
	name, from := c.Framework, ""
	switch {
	case found.Outside:
		name, from = found.Framework, found.FrameworkBy
	case name != "":
	case c.Dialect.Command != nil:
		from = "the launcher in whose words it was called"
	case found.Framework != "":
		name, from = found.Framework, found.FrameworkBy
	default:
		name, from = p.guess(c)
	}
	if p.Framework, err = framework.Lookup(name); err != nil {
		return fail(job.ExitUsage, "", "%s: %w", c.said("framework", name), err)
	}
	if p.Framework.Master && agentStore(c) {
		return fail(job.ExitUsage, "drop one of them", "%s: rank 0 of %s serves where that store would be", c.said("worker-store", c.WorkerStore), p.Framework.Name)
	}
	if p.Framework.Rendezvous && agentStore(c) {
		return fail(job.ExitUsage, "drop one of them", "%s is PyTorch's, and workers of %s meet in a store of their own, which muster serves", c.said("worker-store", c.WorkerStore), p.Framework.Name)
	}
	if name = p.Framework.Name; name != framework.Default {
		p.Spec.Framework = name
	}
	p.set(c, "framework", name, cmp.Or(from, "default"))
	return nil
}

// planServers makes parameter servers of some nodes. Then the job ends with those who train, for the servers would go on.
func planServers(c Config, found discovery.Finding, p *Plan) error {
	p.Success = c.Success
	said, by := c.said("ps", c.Servers), ""
	if serves(c, found, p) {
		c.Servers, by = found.Servers, found.Rule
		said = fmt.Sprintf("%d parameter servers (%s)", found.Servers, found.Rule)
	}
	if c.Servers == 0 {
		return nil
	}
	switch {
	case !p.Framework.Servers:
		return fail(job.ExitUsage, "say --framework, or drop it", "%s: %s has no parameter servers", said, p.Framework.Name)
	case c.Servers >= p.Spec.Fewest():
		return fail(job.ExitUsage, "is --nnodes right?", "%s: of %s nodes, none would be left to train", said, p.Spec.Size())
	}
	p.Spec.Servers = c.Servers
	if c.From["success"] == "" {
		p.Success = p.Framework.Success
	}
	p.set(c, "ps", fmt.Sprintf("%d of %s nodes, the last", c.Servers, p.Spec.Size()), by)
	p.set(c, "success", p.Success, p.Framework.Name+" with parameter servers")
	return nil
}

// serves reports whether the platform's parameter servers are nodes of ours: where flags say neither how many there are nor how many nodes.
func serves(c Config, found discovery.Finding, p *Plan) bool {
	return found.Servers > 0 && p.Framework.Servers && c.From["ps"] == "" && c.Servers == 0 && c.Nodes == 0 && found.Least == 0
}

// reserve takes the ports at which this node's workers will listen, where others must know them. They stay the same in all rounds.
func (h *heritage) reserve() error {
	self := &h.Plan.Spec.Self
	for range h.Plan.Framework.Ports(self.Slots) {
		fd, port, err := ports.Take(0, ports.Hold)
		if err != nil {
			return fail(job.ExitSystem, "", "take a port for each worker: %w", err)
		}
		h.held, self.Ports = append(h.held, fd), append(self.Ports, port)
	}
	return nil
}

// hold keeps those ports from everybody but the workers, as long as this agent lives. One that came after another has to take them
// anew, before it starts workers.
func (h *heritage) hold() error {
	for _, port := range h.Plan.Spec.Self.Ports[len(h.held):] {
		fd, err := ports.Hold(port, true)
		if err != nil {
			return fail(job.ExitStranger, "", "port %d, at which all nodes expect a worker of this one, is held by another program%s: %w", port, ports.Holder(port), err)
		}
		h.held = append(h.held, fd)
	}
	return nil
}

// contract makes sure that the workers of this node will find those of others, and be found.
func (r *round) contract() error {
	if err := r.process(); err != nil {
		return err
	}
	if err := r.plan.Framework.Check(r.session.World); err != nil {
		return fail(job.ExitRefused, "", "%w", err)
	}
	for i, host := range r.hosts() {
		if r.plan.Framework.IPv4 && strings.Contains(host, ":") {
			return fail(job.ExitRefused, "give each node an IPv4 address, or a name by --local-addr", "node %d (%s) is reached at %s alone, and %s cannot read addresses of IPv6",
				i, r.session.World.Members[i].Name, host, r.plan.Framework.Name)
		}
	}
	return r.h.hold()
}

// release ends that.
func (h *heritage) release() {
	for _, fd := range h.held {
		unix.Close(fd)
	}
	h.held = nil
	h.owner.Close() // of none, too
}

// hosts are the addresses of a world's nodes, by group rank, for workers that call each other: of each node's the one most like
// rank 0's node's as this node reaches it, for nodes may be in several networks. v4 passes over addresses of IPv6, of nodes that have another.
func hosts(w job.World, leader string, v4, perProcess bool) []string {
	owners, candidates := map[string]int{}, make([][]string, len(w.Members))
	counted := map[[2]string]bool{}
	for i, m := range w.Members {
		candidates[i] = readable(m.Addrs, v4)
		owner := strconv.Itoa(i)
		if perProcess { // several agents share a machine
			owner = m.Name
		}
		for _, a := range candidates[i] { // that of the endpoint may be there twice
			if at := [2]string{a, owner}; !counted[at] {
				owners[a]++
				counted[at] = true
			}
		}
	}
	out := make([]string, len(w.Members))
	for i, all := range candidates {
		own := distinct(all, owners)
		if len(own) == 0 || i == 0 && owners[leader] <= 1 && !(v4 && strings.Contains(leader, ":") && len(all) > 0) {
			own = []string{leader}
		}
		out[i] = slices.MaxFunc(own, func(a, b string) int { return alike(a, out[0]) - alike(b, out[0]) })
	}
	return out
}

// readable are a node's addresses without their ports, of which v4 leaves those of IPv6 only where there are no others.
func readable(addrs []job.Addr, v4 bool) (hosts []string) {
	for _, a := range addrs {
		hosts = append(hosts, hostOf(a))
	}
	if four := slices.DeleteFunc(slices.Clone(hosts), func(a string) bool { return strings.Contains(a, ":") }); v4 && len(four) > 0 {
		return four
	}
	return hosts
}

// distinct are those of a node's addresses that no other node has, as many have that of a bridge for containers: such lead nowhere,
// unless there are no others, for then all are on one machine.
func distinct(addrs []string, owners map[string]int) []string {
	if own := slices.DeleteFunc(slices.Clone(addrs), func(a string) bool { return owners[a] != 1 }); len(own) > 0 {
		return own
	}
	return addrs[:min(len(addrs), 1)]
}

// interfaceOf is the name of this node's interface with an address; "" if it has none, as behind a translation of addresses.
func interfaceOf(host string) string {
	want := net.ParseIP(host)
	all, _ := net.Interfaces() // none, where nobody may know
	for _, i := range all {
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if own, ok := a.(*net.IPNet); ok && (own.IP.Equal(want) || want.IsLoopback() && own.Contains(want)) {
				return i.Name
			}
		}
	}
	return ""
}

// alike is how many bits two addresses have in common at their beginning; 0 if one is a name.
func alike(a, b string) int {
	x, err1 := netip.ParseAddr(a)
	y, err2 := netip.ParseAddr(b)
	if err1 != nil || err2 != nil || x.BitLen() != y.BitLen() {
		return 0
	}
	for n := x.BitLen(); n > 0; n-- {
		if p, err := x.Prefix(n); err == nil && p.Contains(y.WithZone("")) {
			return n
		}
	}
	return 0
}
