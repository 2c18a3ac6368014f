package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/nccl"
	"github.com/muster-run/muster/topology"
)

// This file is what workers are told of the networks between the nodes, as package nccl chooses it for this machine and the world.

// What --nccl-tune says.
const (
	tuneOff     = "off"
	tuneExplain = "explain"
)

// topologyFile is in the directory of the run.
const topologyFile = "nccl-topology.xml"

// planRails says what this node tells the others of its adapters, and what is to be done where they differ.
func planRails(c Config, p *Plan) {
	if c.Rails != nccl.RailsTell {
		p.Spec.Rails = c.Rails
	}
	if c.Tune != tuneOff && p.Spec.Nodes+p.Spec.Spares > 1 && len(p.machine.Slots()) > 0 {
		p.Spec.Self.Rails = nccl.Rails(p.machine)
	}
}

// given is what the choice rests on, but for the world. Without GPUs no file is looked for.
func (p Plan) given(c Config) nccl.Given {
	g := nccl.Given{Machine: p.machine, Getenv: c.given, Logs: c.Output.Dir}
	if len(g.Machine.Slots()) > 0 {
		python, err := c.interpreter()
		if err == nil {
			python, err = pid1.LookPath(python, "", c.Environ)
		}
		if err != nil {
			python = ""
		}
		dir, _ := os.Getwd() // where workers start; without it names are taken from /
		g.Container, g.Sealed = nccl.Look(string(c.Root), c.given, python, dir), sealed()
	}
	return g
}

// sealed reports whether a seccomp filter keeps this container from placing memory on NUMA nodes, as Docker's does.
func sealed() bool {
	_, _, err := unix.Syscall6(unix.SYS_GET_MEMPOLICY, 0, 0, 0, 0, 0, 0)
	return err == unix.EPERM
}

// given looks up what counts as set for workers: what another launcher leaves alone is as the user has it.
func (c Config) given(name string) (string, bool) {
	value, set := c.getenv(name)
	return value, set || slices.Contains(c.Dialect.Without, name)
}

// choose chooses for a world whose nodes are reached by way of host. TopoFile is where the machine's topology is written for NCCL, and lookup asks
// name servers.
func (p Plan) choose(c Config, w job.World, host, unknown, topoFile string, lookup lookup) nccl.Choice {
	g := p.given(c)
	g.TopoFile, g.World.Nodes, g.World.Rails = topoFile, p.machines(w, host), w.Terms.Rails
	g.World.Peers = nodesOf(w)
	if g.World.Nodes > 1 {
		g.World.Own = misnamed(c.Host, lookup)
	}
	switch {
	case g.World.Nodes == 1 || !branches(g.Machine):
	case host == "":
		g.World.Unrouted = unknown
	default:
		g.World.Route, g.World.Unrouted = route(host)
	}
	return nccl.Choose(g)
}

// misnamed is why Gloo, which announces the address of this machine's own name, would announce one of the loopback device; "": it would not. It takes
// the first address that is this machine's, and the loopback device's where there is none.
func misnamed(h job.Host, lookup lookup) string {
	all := listed(h)
	if all == nil {
		ctx, cancel := context.WithTimeout(context.Background(), routeTime)
		defer cancel()
		var err error
		all, err = lookup(ctx, h.Hostname)
		switch {
		case errors.Is(err, errNoAnswer):
			return "no name server has told this machine's own name " + h.Hostname + " by now, and Gloo may wait for that, or tell the others 127.0.0.1"
		case err != nil, len(all) == 0:
			return "this machine's own name " + h.Hostname + " does not resolve, and Gloo would tell the others 127.0.0.1"
		}
	}
	loopback, foreign := "", ""
	for _, a := range all {
		switch {
		case isLoopback(a):
			loopback = cmp.Or(loopback, a)
		case local(a):
			return ""
		default:
			foreign = cmp.Or(foreign, a)
		}
	}
	if loopback != "" {
		return "this machine's own name is " + loopback + ", which Gloo would tell the others"
	}
	return "this machine's own name is " + foreign + ", which it does not have, and Gloo would tell the others 127.0.0.1"
}

// lookup asks for a name's addresses, as net.Resolver's LookupHost does.
type lookup func(ctx context.Context, name string) ([]string, error)

// An ownLookup is what name servers say of this machine's own name. They are asked once, while the nodes meet: what they have not said by then Gloo would
// wait for in vain, and a round does not wait for it. The zero value has no answer.
type ownLookup struct {
	answered chan struct{} // closed with the answer, or when it is late
	all      []string
	err      error
}

// ask asks for it where Gloo would. Nobody waits for the goroutine, not at a job's end either: while Go's resolver waits for an answer it heeds no
// cancellation, but routeTime.
func (o *ownLookup) ask(c Config, p Plan, lookup lookup) {
	if c.Tune == tuneOff || p.Spec.Nodes+p.Spec.Spares < 2 || listed(c.Host) != nil {
		return
	}
	o.answered = make(chan struct{})
	go func() {
		defer close(o.answered)
		ctx, cancel := context.WithTimeout(context.Background(), routeTime)
		defer cancel()
		o.all, o.err = lookup(ctx, c.Host.Hostname)
	}()
}

var errNoAnswer = errors.New("no answer yet")

// lookup is the answer, if there is one.
func (o *ownLookup) lookup(context.Context, string) ([]string, error) {
	select {
	case <-o.answered:
		return o.all, o.err
	default:
		return nil, errNoAnswer
	}
}

// listed are the addresses that /etc/hosts has for this machine's own name.
func listed(h job.Host) (all []string) {
	text, _ := h.ReadFile("/etc/hosts")
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) > 1 && slices.ContainsFunc(words[1:], func(name string) bool { return strings.EqualFold(name, h.Hostname) }) {
			all = append(all, words[0])
		}
	}
	return all
}

// local reports whether an address is this machine's, as Gloo finds out: it can be bound.
func local(address string) bool {
	c, err := net.ListenPacket("udp", net.JoinHostPort(address, "0"))
	if err == nil {
		c.Close()
	}
	return err == nil
}

// branches reports whether a machine may have more than one network.
func branches(m topology.Machine) bool {
	n := 0
	for _, i := range m.Nets {
		if !i.Loopback && i.State != "down" {
			n++
		}
	}
	return n > 1
}

// machines is on how many machines a world is. Agents of single processes have their machine's name.
func (p Plan) machines(w job.World, host string) int {
	switch {
	case isLoopback(host):
		return 1
	case p.Process == nil:
		return len(w.Members)
	}
	names := map[string]bool{}
	for _, m := range w.Members {
		names[m.Name] = true
	}
	return len(names)
}

// routeTime bounds the look for a name.
const routeTime = 2 * time.Second

// route is the network interface by which this node reaches a host that all others reach, too; or why it is not known.
func route(host string) (name, why string) {
	ctx, cancel := context.WithTimeout(context.Background(), routeTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "udp", net.JoinHostPort(host, "9")) // which sends nothing
	if err != nil {
		return "", fmt.Sprintf("%s, by which nodes reach each other, has no route: %v", host, err)
	}
	defer conn.Close()
	own := conn.LocalAddr().(*net.UDPAddr).IP
	name = interfaceOf(own.String())
	switch i, err := net.InterfaceByName(name); {
	case err != nil:
		return "", fmt.Sprintf("no interface has %v, by which %s is reached", own, host)
	case i.Flags&net.FlagLoopback != 0:
		return "", fmt.Sprintf("%s is %v here, which others cannot reach", host, own)
	}
	return name, ""
}

// tune chooses for this round, and says what a person should know of that once: group rank 0 for all. A round that follows another looks at
// the adapters again, as an agent does that takes over.
func (r *round) tune(again bool) {
	if r.c.Tune == tuneOff {
		return
	}
	plan := r.plan
	if again {
		plan.machine = r.looked()
	}
	host, unknown := r.line.host, ""
	if r.session.Rank == 0 { // what others reach is not the address by which we reach ourselves
		if host = hostOf(r.plan.Endpoint); r.plan.Etcd != nil {
			host, unknown = "", "the nodes meet in etcd, which does not tell how they reach this one"
		}
	}
	choice := plan.choose(r.c, r.session.World, host, unknown, r.topology(), r.h.own.lookup)
	if e := tuned(choice); !slices.Equal(e, r.h.Tuned) {
		r.h.Tuned = e
		r.c.keep(keptRun, r.h) // an agent that takes over starts workers again as they were
	}
	lines := explained(choice)
	text := strings.Join(slices.Concat(lines, choice.Notes), "\n")
	if text == r.tuned {
		return
	}
	r.tuned = text
	for _, l := range lines {
		if r.c.Tune == tuneExplain {
			r.c.Log.Info("nccl: " + l)
		}
	}
	for _, n := range choice.Notes {
		if r.session.Rank == 0 || r.c.Tune == tuneExplain {
			r.c.Log.Warn("nccl: " + n)
		}
	}
}

// looked is the machine as it is now. What has become of ports that this node told the others of is said here, once: the others know what
// it had when they met.
func (r *round) looked() topology.Machine {
	m, err := topology.Probe(r.c.Root)
	if err != nil {
		return r.plan.machine
	}
	usable := map[string]bool{}
	why := map[string]string{}
	for _, p := range m.Rails() {
		usable[p.Name()], why[p.Name()] = p.Port.Usable, p.Port.Why
	}
	var dead []string
	for _, p := range r.plan.Spec.Self.Rails {
		if p.Why == "" && !usable[p.Name] {
			dead = append(dead, fmt.Sprintf("%s (%s)", p.Name, cmp.Or(why[p.Name], "it is gone")))
		}
	}
	if text := strings.Join(dead, ", "); text != r.dead {
		if r.dead = text; text != "" {
			r.c.Log.Warn("nccl: could be used when the nodes met, and cannot now: " + text)
		}
	}
	return m
}

// tuned are the variables of a choice.
func tuned(choice nccl.Choice) (e job.Env) {
	for _, s := range choice.Set {
		e = append(e, job.Var{Name: s.Name, Value: s.Value, Why: fmt.Sprintf("%s (%s)", s.Why, s.Source)})
	}
	return e
}

// explained are the lines of a choice: what is set, what stays as it was, and what is left alone, each with its reason.
func explained(choice nccl.Choice) (lines []string) {
	for _, s := range choice.Set {
		lines = append(lines, fmt.Sprintf("%s=%s: %s (%s)", s.Name, s.Value, s.Why, s.Source))
	}
	return append(lines, stays(choice)...)
}

// stays are the lines of what a choice does not touch.
func stays(choice nccl.Choice) (lines []string) {
	for _, k := range choice.Kept {
		text := fmt.Sprintf("%s=%s stays, of %s", k.Name, k.Value, k.From)
		if k.Would != "" {
			text += ", in place of " + k.Would
		}
		lines = append(lines, text)
	}
	return append(lines, choice.Left...)
}

// topology writes the file for NCCL on a machine that hides how it is built, and says where; "": it is not needed, or cannot be written.
func (r *round) topology() string {
	text := nccl.Topology(r.plan.machine)
	if text == nil {
		return ""
	}
	file := filepath.Join(r.run, topologyFile)
	if old, err := os.ReadFile(file); err == nil && string(old) == string(text) {
		return file
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		r.c.Log.Warn(fmt.Sprintf("nccl: %v", err))
		return ""
	}
	return file
}

func nodesOf(w job.World) (nodes []job.Node) {
	for _, m := range w.Members {
		nodes = append(nodes, m.Node)
	}
	return nodes
}

// rails is the leader's: it makes sure that a world's nodes have the same adapters for training, where they are to.
func (r *round) rails() error {
	w := r.session.World
	if w.Terms.Rails != nccl.RailsRefuse {
		return nil
	}
	if differ := nccl.Disagreement(nodesOf(w)); differ != "" {
		return fail(job.ExitRefused, "mend or leave out that node, or say --nccl-rails common", "%w", errors.New(differ))
	}
	return nil
}
