package launcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/crowd"
	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/ports"
	"github.com/muster-run/muster/rendezvous"
	"github.com/muster-run/muster/rendezvous/store"
	"github.com/muster-run/muster/rendezvous/tcpstore"
	"github.com/muster-run/muster/report/events"
)

// A meeting is this node's way to the others: the store, which one of the nodes hosts, and the port at which peers
// reach this agent. A world of one node needs neither.
type meeting struct {
	c       Config
	plan    Plan
	spec    job.Spec // the plan's, with this node's addresses
	port    job.Addr // the endpoint
	token   string   // the job's
	store   store.Store
	door    door
	servers sync.WaitGroup
	closers []func()
	session *rendezvous.Session
	desk    *desk
	hosts   []job.Addr // this node's addresses, without a port
	end     time.Time  // peers must be here by then
	late    bool       // they were not, and it is another time now
	refused bool       // the meeting is over without a world that has us, and each node is to read why
	ended   bool       // the job is, and whoever stood by as this node did is to read so
	anew    bool       // this is not the agent's first meeting
	hosting bool       // this node serves the store
	server  *tcpstore.Server
	heir    successor           // of the agent that does
	out     string              // why this node takes no place for a while
	lived   bool                // the job had a world, as this node saw while it stood by
	quits   bool                // this node leaves, and others meet again
	leaves  time.Time           // by then it has left, for it was told to; zero: it was not
	various bool                // the nodes of the last world did not all run the same command
	stood   rendezvous.Standing // beside which world this node stood by, as an agent before this one did

	awaited atomic.Bool   // others meet in the store that this node hosts, for what comes after the world that was decided on
	decided chan struct{} // has one when a meeting in the store that this node hosts came to something, after the last that had us in it

	gone   atomic.Pointer[absence]                 // of the store; nil: it was there when it was last asked
	lapsed time.Duration                           // for how long it was away in the meeting that goes on, before that
	beside atomic.Pointer[string]                  // the id of another job that meets at the same port; nil: of none is known
	show   atomic.Pointer[waiting]                 // of the meeting that goes on; nil: none
	leave  atomic.Pointer[context.CancelCauseFunc] // ends the meeting in a store that another agent of this machine hosts
	vain   atomic.Pointer[context.CancelFunc]      // ends what is said only to a store whose host may have gone
}

// An absence is a store that is not to be reached.
type absence struct {
	since   time.Time
	because string
}

// openMeeting hosts the store or finds the node that does.
func openMeeting(ctx context.Context, c Config, h *heritage, d *desk) (*meeting, error) {
	p := h.Plan
	m := &meeting{c: c, desk: d, plan: p, decided: make(chan struct{}, 1), spec: p.Spec, token: p.Token, port: p.Endpoint, hosts: p.Spec.Self.Addrs, end: time.Now().Add(c.JoinTimeout)}
	m.door.self = p.Spec.Self.Incarnation
	d.moves(c.JoinTimeout + loopTime)
	m.inheritStood()
	if p.Unfit != "" {
		m.end = time.Now().Add(min(c.JoinTimeout, declineTime))
	}
	if p.Endpoint == "" {
		m.store = &store.Memory{}
	}
	if at, err := m.inheritedStand(); err != nil {
		return m, err
	} else if at != (stand{}) {
		return m, m.inherit(ctx, at)
	}
	if c.takesOver() {
		return m, m.resume()
	}
	return m, m.open(ctx)
}

// inherit goes on to host the store, and to let others in where they know this node from before it did.
func (m *meeting) inherit(ctx context.Context, at stand) error {
	if at.ln != nil { // else the door is where this node will be known
		door, err := m.inherited(heldDoor)
		if err != nil {
			return err
		}
		if door != nil {
			m.await(door)
		}
	}
	return m.host(ctx, at, m.c.First.Legacy().Blobs[keptWorld])
}

// open is openMeeting without anything that another agent left.
func (m *meeting) open(ctx context.Context) error {
	p := m.plan
	switch {
	case p.Endpoint == "":
		return nil
	case p.Etcd != nil:
		return m.openEtcd(ctx, p.Etcd)
	case p.Serve:
		return m.serve(ctx, true)
	case p.MayServe && isMe(ctx, hostOf(p.Endpoint), m.c.Host.Hostname):
		return m.serve(ctx, false)
	}
	return m.find(ctx)
}

// serve hosts the store at the endpoint's port. When somebody holds that port already, a node that is sure that it
// should host waits for him to go, unless he hosts in its stead; any other takes him for another agent of this machine. Whoever does
// neither go nor show that he is one is a stranger.
func (m *meeting) serve(ctx context.Context, sure bool) error {
	port := portOf(m.port)
	var before predecessor
	var beside neighbour
	for late := time.Now().Add(strangerTime); ; {
		at, err := m.take(ctx)
		over := beside.look(m, err, &late)
		switch {
		case err == nil:
			return m.host(ctx, at, nil)
		case !errors.Is(err, syscall.EADDRINUSE):
			return fail(job.ExitSystem, "", "host the meeting point: %w", err)
		case over:
			return m.unheard()
		case time.Now().After(late) && !before.mayEnd(m, &late):
			return m.stranger(port, before.show != nil)
		}
		if sure {
			before.look(ctx, m, late)
		}
		if !sure || before.stays(m) {
			until, claimed := late, errors.Is(err, errClaimed)
			if claimed || before.show != nil {
				until = m.end // an agent of this job may be busy
			}
			switch err := m.findHere(ctx, until); {
			case claimed && errors.Is(err, errVacant) && !time.Now().Before(m.end):
				return m.deaf()
			case errors.Is(err, tcpstore.ErrNotStore):
				late = time.Now() // unless he has just gone
			case errors.Is(err, errVacant) && (claimed || before.show != nil) && time.Now().Before(m.end):
				late = time.Now().Add(strangerTime) // as he has
			case !errors.Is(err, errVacant):
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// storeAddr is where this node would listen to host the store.
func (m *meeting) storeAddr() string {
	host, port, _ := net.SplitHostPort(string(m.port))
	if isLoopback(host) {
		return net.JoinHostPort(literal(host), port)
	}
	return ":" + port
}

// host serves the store where others find it, and to ourselves. It begins with what an agent before this one kept of it.
func (m *meeting) host(ctx context.Context, at stand, kept []byte) error {
	end, own, hint := m.end, m.hereabouts(), ""
	if at.ln != nil {
		own = here(at.ln.Addr())
	} else if soon := time.Now().Add(handedTime); soon.Before(end) {
		end, hint = soon, "give this job another port with --rdzv-endpoint or --master-port: another job has that one, and what it hands over does not arrive"
	}
	ctx, cancel := context.WithDeadlineCause(ctx, end, errors.New("no answer from ourselves"))
	defer cancel()
	m.serveStore(at, kept, cancel)
	client, err := tcpstore.Dial(ctx, own, m.reaching(nil))
	if err != nil {
		return fail(job.ExitSystem, hint, "reach the meeting point that this node hosts: %w", err)
	}
	m.store, m.hosting = client, true
	host := hostOf(m.port)
	if at.ln == nil {
		return m.listenForPeers(host)
	}
	return m.announce(at.ln.Addr(), isLoopback(host), host)
}

// How long the host of a store waits for others at its end: to read what their meeting came to, to read that the job is over, or
// to meet without it.
const (
	readTime = 2 * time.Second
	overTime = 5 * time.Second
)

// shut ends the store that this node hosts, when others do not need it any more, or soon.
func (m *meeting) shut(server *tcpstore.Server) {
	ctx, cancel := context.WithDeadline(context.Background(), m.needed())
	defer cancel()
	_ = server.Shutdown(ctx) // the error says that somebody stayed
	m.desk.hosted(server)
}

// needed is until when others may read in the store. Where they meet without this node, it waits for what that comes to.
func (m *meeting) needed() time.Time {
	patience := time.Duration(0)
	switch {
	case m.quits:
		m.untilDecided(m.inTime(overTime))
		patience = readTime // it hears of their world before they do
	case m.refused:
		patience = readTime
	case m.plan.Spec.Standby(), m.awaited.Load(), m.ended:
		patience = overTime
	}
	return time.Now().Add(m.inTime(patience))
}

// inTime is how much of a wait there is time for: who told this node to stop ends it otherwise, and what it tells then is lost.
func (m *meeting) inTime(wait time.Duration) time.Duration {
	if m.leaves.IsZero() {
		return wait
	}
	return min(wait, time.Until(m.leaves))
}

// untilDecided waits until the others have agreed on a world after the one that this node was in.
func (m *meeting) untilDecided(most time.Duration) {
	select {
	case <-m.decided:
	case <-time.After(most):
	}
}

// here is the address at which this machine reaches its own listener.
func here(at net.Addr) string {
	tcp := at.(*net.TCPAddr)
	if tcp.IP.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
	}
	return tcp.String()
}

// findHere connects to whoever holds the port on this machine: another agent, or a program that has nothing to do
// with us and may never say so. The error is errVacant when he has gone, or had not answered when it was late.
func (m *meeting) findHere(ctx context.Context, late time.Time) error {
	client, err := m.dialHere(ctx, string(m.port), late)
	if err != nil {
		return err
	}
	m.store = client
	return m.listenForPeers(hostOf(m.port))
}

func (m *meeting) dialHere(ctx context.Context, at string, late time.Time) (*tcpstore.Client, error) {
	dialing, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	m.leave.Store(&leave)
	dialing, cancel := context.WithDeadlineCause(dialing, late, errVacant)
	defer cancel()
	show := newWaiting(m.c.Log, m.desk, "waiting for the store at port "+portOf(job.Addr(at)))
	client, err := tcpstore.Dial(dialing, at, m.reaching(func(a tcpstore.Attempt) {
		m.vacant(a)
		if dialing.Err() == nil && errors.Is(a.Err, tcpstore.ErrNoAnswer) && m.claimed() { // later there is more to tell of than this
			who, cure := unanswering(m.incumbents())
			show.tick(fmt.Sprintf("this job's agent%s hosts it and does not answer; %s", who, cure))
		}
	}))
	if err == nil || errors.Is(err, tcpstore.ErrNotStore) || dialing.Err() == nil {
		return client, err
	}
	return nil, context.Cause(dialing)
}

// errVacant ends a meeting in a store whose host, on this machine, is gone.
var errVacant = errors.New("nobody hosts the meeting any more")

// vacant leaves a store when nobody listens there any more, or another job does: its host was another agent of this machine, so
// this one can take its place. The last world's end may still be told in that store meanwhile, by keepTelling.
func (m *meeting) vacant(a tcpstore.Attempt) {
	m.missed(a)
	if leave := m.leave.Load(); leave != nil && (errors.Is(a.Err, syscall.ECONNREFUSED) || errors.Is(a.Err, tcpstore.ErrOther)) {
		(*leave)(errVacant)
	}
}

// strangerTime is how long a program that holds our port may take to prove that it is a store, or to go: it may be this
// node's last agent.
const strangerTime = 3 * time.Second

// deaf is the end of a wait for an agent of this job that hosts its meeting on this machine.
func (m *meeting) deaf() error {
	who, cure := unanswering(m.incumbents())
	code, within := m.tooLate(job.ExitStore)
	return fail(code, cure, "no store at %s within %v: this job's agent%s hosts it and does not answer", m.port, within, who)
}

func (m *meeting) stranger(port string, ours bool) error {
	if ours {
		return fail(job.ExitStranger, "end that one first, or give this job another --rdzv-id, and another port with --rdzv-endpoint or --master-port",
			"this node should host the meeting point, but another agent of %s does, at port %s%s", m.spec.ID, port, ports.Named(m.incumbents()))
	}
	return fail(job.ExitStranger, "end that program, or choose another port with --rdzv-endpoint or --master-port",
		"this node should host the meeting point, but another program holds port %s%s", port, ports.Holder(number(port)))
}

// find connects to the store that another node hosts, however long that node takes to come, within the time for
// joining. A name that turns out to be this machine's, for DNS may be late, makes this node the host.
func (m *meeting) find(ctx context.Context) error {
	host := hostOf(m.port)
	dialing, cancel := context.WithDeadline(ctx, m.end)
	defer cancel()
	show, mayServe := newWaiting(m.c.Log, m.desk, "waiting for the store at "+string(m.port)), m.plan.MayServe
	var last error
	client, err := tcpstore.Dial(dialing, string(m.port), m.reaching(func(a tcpstore.Attempt) {
		m.missed(a)
		if dialing.Err() != nil { // this meeting is behind us
			return
		}
		last = a.Err
		show.tick(tcpstore.Cause(a.Err))
		if mayServe && isMe(dialing, host, m.c.Host.Hostname) {
			cancel()
		}
	}))
	switch {
	case err == nil:
		m.store = client
		return m.listenForPeers(host)
	case errors.Is(err, tcpstore.ErrNotStore):
		return fail(job.ExitStranger, "give the same endpoint to all nodes, with a port that nothing else uses",
			"another program listens at %s, where the nodes should meet: %w", m.port, err)
	case ctx.Err() != nil:
		return show.cutShort(context.Cause(ctx))
	case time.Now().Before(m.end) && mayServe:
		return m.serve(ctx, false)
	}
	if last == nil {
		last = err
	}
	hint := "is the node that hosts it running, and is the endpoint right?"
	switch {
	case errors.Is(last, tcpstore.ErrBarred):
		hint = "the log of the node that hosts it has the address from which this one comes; its --store-allow has to name that, or a network with it"
	case errors.Is(last, tcpstore.ErrNoAnswer):
		hint = "somebody accepts connections there and says nothing: is that a store of muster's or PyTorch's, an etcd (--rdzv-backend etcd), another program, or a proxy or service mesh before it?"
	}
	code, within := m.tooLate(job.ExitStore)
	return fail(code, hint, "no store at %s within %v: %s", m.port, within, tcpstore.Cause(last))
}

// listenForPeers opens the port at which this agent would lead, on an address that peers can reach.
func (m *meeting) listenForPeers(endpoint string) error {
	loopback := isLoopback(endpoint)
	addr := ":0"
	if loopback {
		addr = net.JoinHostPort(string(m.hosts[0]), "0")
	}
	ln, err := m.inherited(heldDoor)
	if ln == nil && err == nil {
		ln, err = net.Listen("tcp", addr)
	}
	if err != nil {
		return fail(job.ExitSystem, "", "listen for other agents: %w", err)
	}
	m.await(ln)
	return m.announce(ln.Addr(), false, "")
}

// await lets other agents in by a listener.
func (m *meeting) await(ln net.Listener) {
	free := m.hold(heldDoor, ln)
	m.run(func() { accept(ln, m.c.Log, guard(m.c.admits(), m.c.Log, m.door.handle)) }, func() { free(); ln.Close() })
}

// announce completes this node's addresses with the port. The endpoint itself comes last: it may be the address of
// a load balancer, which passes on this one port and not the workers'.
func (m *meeting) announce(at net.Addr, only bool, endpoint string) error {
	port := strconv.Itoa(at.(*net.TCPAddr).Port)
	hosts := m.hosts
	if only {
		hosts = nil
	}
	m.spec.Self.Addrs = nil
	for _, h := range hosts {
		m.spec.Self.Addrs = append(m.spec.Self.Addrs, job.Addr(net.JoinHostPort(string(h), port)))
	}
	if at := job.Addr(net.JoinHostPort(literal(endpoint), port)); endpoint != "" && !slices.Contains(m.spec.Self.Addrs, at) {
		m.spec.Self.Addrs = append(m.spec.Self.Addrs, at)
	}
	if len(m.spec.Self.Addrs) == 0 {
		return fail(job.ExitSystem, "say --local-addr", "this node has no address at which others could reach it")
	}
	return nil
}

// literal turns the name of loopback into its IPv4 address, which every machine has.
func literal(host string) string {
	if isLoopback(host) && net.ParseIP(host) == nil {
		return "127.0.0.1"
	}
	return host
}

// first is what this node brings to the job's first meeting, as far as it knows that there was no other.
func (m *meeting) first(past job.Tally) rendezvous.Options {
	o := m.brings(m.plan.policy(m.c), past)
	o.Stays = m.plan.Park
	return o
}

// brings is what a node brings for which these rules count, and that knows of so many rounds.
func (m *meeting) brings(p policy, past job.Tally) rendezvous.Options {
	return rendezvous.Options{
		LastCall: p.LastCall, Fence: p.fence(), NodeTimeout: p.nodeTimeout(), Closed: p.Join == joinNever, Policy: p.encode(), Past: past,
		Lives: m.lives, Doubt: m.c.doubt(), Say: m.c.say(m.desk),
	}
}

// world agrees with the other nodes on a world, of which met is told, and opens the line to them. Where lost nodes can be made up
// for, so can be a store that is lost, or a leader that is not to be reached: then they meet again, until it is too late.
func (m *meeting) world(ctx context.Context, o rendezvous.Options, met func(Config, *rendezvous.Session)) (*line, error) {
	for {
		l, err := m.once(ctx, o, met)
		if err == nil || !m.again() || ExitCode(err) != job.ExitRetry || ctx.Err() != nil || !time.Now().Before(m.end) {
			return l, err
		}
		m.c.Log.Warn(err.Error() + "; this node meets the others again")
		m.heir.end()
		if m.session != nil {
			m.session.Close()
			o, m.session = o.After(&m.session.World), nil
		} else {
			m.leaveStore()
		}
		m.door.reset(m.over(o.Previous))
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
	}
}

// retryPause is between two meetings that come to nothing.
const retryPause = time.Second

// again reports whether there is another world when this one is lost.
func (m *meeting) again() bool { return m.anew || m.plan.regroups(m.c) }

// patience is how long the main loop may wait for a store that is away, which it does not while it only waits for peers.
func (m *meeting) patience() time.Duration { return max(time.Until(m.end), m.c.JoinTimeout) + loopTime }

// once is one try of world.
func (m *meeting) once(ctx context.Context, o rendezvous.Options, met func(Config, *rendezvous.Session)) (*line, error) {
	m.desk.moves(m.patience())
	if m.store == nil {
		if err := m.open(ctx); err != nil {
			return nil, err
		}
	}
	if err := m.join(ctx, o); err != nil {
		return nil, err
	}
	select {
	case <-m.decided: // by us
	default:
	}
	if now := time.Now(); now.After(m.end) && !m.late { // they outwaited a fence, and the leader may be lost just now
		m.late, m.end = true, now.Add(2*fleetTime)
	}
	m.succeed()
	met(m.c, m.session)
	for _, text := range m.remarks() {
		m.c.Log.Warn(text)
	}
	return m.connect(ctx)
}

// remarks are what people should know of the world that was met: nodes may be together that should not be, or apart.
func (m *meeting) remarks() (texts []string) {
	for _, text := range []string{m.mixed(), m.confined()} {
		if text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

// mixed says, once, that nodes run different commands: they may be of different jobs.
func (m *meeting) mixed() string {
	w, was := m.session.World, m.various
	if m.various = w.Terms.Program == job.Various; !m.various || was {
		return ""
	}
	return fmt.Sprintf("the nodes do not all run the same command (%s): if that is not meant, several jobs meet here as one; give each its own --rdzv-id, or another port with --rdzv-endpoint or --master-port",
		listNodes(w.Members))
}

// confined says that nodes of other machines may not have come because the place where they meet leads them to themselves, so that each trains by itself.
func (m *meeting) confined() string {
	w := m.session.World
	if w.Generation > 1 || len(w.Members) == w.Terms.Nodes || len(w.Members) > 1 && !isLoopback(hostOf(m.port)) { // else others have found it
		return ""
	}
	why := m.astray()
	if why == "" {
		return ""
	}
	return fmt.Sprintf("%d of at most %d nodes, %s; name one machine for all with --rdzv-endpoint or --master-addr", len(w.Members), w.Terms.Nodes, why)
}

// astray says why others may not find this node, which hosts the meeting.
func (m *meeting) astray() string {
	if m.plan.Etcd != nil || !m.hosting && !isLoopback(hostOf(m.port)) {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	return astray(ctx, hostOf(m.port))
}

// lookTime is how long a name server may take to say where a name leads.
const lookTime = 2 * time.Second

// listNodes names some of a world's nodes.
func listNodes(members []job.Member) string {
	var names []string
	for _, m := range members[:min(len(members), mostNamed)] {
		names = append(names, m.String())
	}
	if more := len(members) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// mostNamed is how many nodes a line names.
const mostNamed = 8

// tooLate is the exit status when a meeting does not come about in time, and that time: a job that had a world is worth another try.
func (m *meeting) tooLate(code int) (int, time.Duration) {
	switch {
	case m.anew:
		return job.ExitRetry, m.c.RejoinTimeout
	case m.lived:
		return job.ExitRetry, m.c.JoinTimeout
	}
	return code, m.c.JoinTimeout
}

// missing is the end of a wait for others. Where the store was away to the end of it, that is what they were missing for.
func (m *meeting) missing(why *rendezvous.Missing) error {
	code, stood, gone := job.ExitPeers, m.lived && !m.anew, m.gone.Load()
	m.back()
	var hints []string
	switch {
	case gone != nil && time.Since(gone.since) >= min(awayTime, why.After/2):
		code = job.ExitStore
		why.Store = fmt.Sprintf("the store at %s was away for %v: %s", m.port, time.Since(gone.since).Round(time.Second), gone.because)
		hints = append(hints, m.awayHint(stood))
	case m.lapsed >= awayTime:
		why.Lapse = fmt.Sprintf("the store at %s was away for %v of that", m.port, m.lapsed.Round(time.Second))
		fallthrough
	default:
		hints = m.missingHints(stood, why.Status.Another)
	}
	if other := m.beside.Load(); other != nil {
		hints = append(hints, fmt.Sprintf("Job %.100q also meets at that port: were all nodes given the same job id?", *other))
	}
	code, _ = m.tooLate(code)
	return fail(code, sentences(hints), "rendezvous: %w", why)
}

// awayHint is what to do about a store that was away to the end; of a node that stood by, which may have been left behind.
func (m *meeting) awayHint(stood bool) string {
	patience := "--join-timeout"
	if m.anew {
		patience = "--rdzv-timeout"
	}
	patience += " says how long nodes wait for it"
	if stood {
		return "the job may have ended: see the log of its nodes, and whether the store runs; " + patience
	}
	return "is it running, under the same name or address? " + patience
}

// missingHints is where the others may be; of a node that stood by, or waits for another job, for which the line says it.
func (m *meeting) missingHints(stood, another bool) (hints []string) {
	switch {
	case stood:
		hints = append(hints, "the job may have ended: see the log of its nodes")
	case !another:
		hints = append(hints, "did the missing nodes start, and can they reach "+string(m.port)+"?")
	}
	if m.torchruns() {
		hints = append(hints, torchrunMeets)
	}
	if why := m.astray(); why != "" && !stood && !another {
		hints = append(hints, "This node hosts the meeting itself, "+why)
	}
	return hints
}

// sentences is a text of them.
func sentences(all []string) string {
	var b strings.Builder
	for i, s := range all {
		switch {
		case i == 0:
		case strings.HasSuffix(all[i-1], ".") || strings.HasSuffix(all[i-1], "?"):
			b.WriteString(" ")
		default:
			b.WriteString(". ")
		}
		b.WriteString(s)
	}
	return b.String()
}

// looksForTorchruns tells of one that meets in the store of a world which it may lack: of a full one nobody is missing.
func (m *meeting) looksForTorchruns(nodes int) {
	if nodes < m.spec.Nodes && m.torchruns() {
		m.c.Log.Warn("this world is not full. " + torchrunMeets)
	}
}

const torchrunMeets = "A torchrun meets in that store: it and muster do not see each other, so start either on all nodes."

// torchruns reports whether a torchrun keeps its state in the store (C10dRendezvousBackend of torch.distributed.elastic), as where a job is half moved.
func (m *meeting) torchruns() bool {
	if m.store == nil || m.plan.Etcd != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	for _, id := range []string{m.plan.Called, "none"} {
		if there, err := m.store.Check(ctx, "torch.rendezvous."+id); there && err == nil {
			return true
		}
	}
	return false
}

// awayTime is how long a store must be away, where it was not so from the beginning, to be the reason for which nodes did not meet.
const awayTime = 3 * time.Second

// next is world for those who have been in one.
func (m *meeting) next(ctx context.Context, o rendezvous.Options, out string, met func(Config, *rendezvous.Session)) (*line, error) {
	m.heir.end()
	m.out = out
	m.session, m.anew, m.late, m.end = nil, true, false, time.Now().Add(m.c.RejoinTimeout)
	m.door.reset(m.over(o.Previous))
	return m.world(ctx, o, met)
}

// over is a world that this agent has left; nil: there was none.
func (m *meeting) over(w *job.World) *fleet.Over {
	if w == nil {
		return nil
	}
	return &fleet.Over{World: *w, Token: m.token}
}

// resumed is the world of an agent that died, and the line to the others.
func (m *meeting) resumed(ctx context.Context) (*line, error) {
	m.resumeSession()
	return m.connect(ctx)
}

// join agrees with the other nodes on a world. Where this node can take the place of a host that went away, it does:
// the others find the new store at the same endpoint, and all meet anew.
func (m *meeting) join(ctx context.Context, o rendezvous.Options) error {
	if why := m.inheritedEnd(); why != nil {
		return m.serveOn(ctx, why)
	}
	for {
		joining, leave := context.WithCancelCause(ctx)
		m.leave.Store(&leave)
		err := m.agree(joining, o)
		leave(nil)
		switch excluded := new(rendezvous.Excluded); {
		case errors.As(err, &excluded) && excluded.Replaced && m.hosting && !m.othersHere():
			return m.serveOn(ctx, err)
		case !errors.Is(err, errVacant):
			return err
		}
		m.c.Log.Warn(fmt.Sprintf("the agent of this machine that hosted the meeting at %s is gone; the others meet anew", m.port))
		m.leaveStore()
		if err := m.serve(ctx, false); err != nil {
			return err
		}
	}
}

// agree is one try of join.
func (m *meeting) agree(ctx context.Context, o rendezvous.Options) (err error) {
	what := "meeting for " + m.spec.ID
	if time.Now().Before(o.NotBefore) {
		what = fmt.Sprintf("left out until %s, for %s; %s", o.NotBefore.Format(time.TimeOnly), m.out, what)
	}
	show := newWaiting(m.c.Log, m.desk, what)
	m.show.Store(show)
	defer m.show.Store(nil)
	o.Timeout = max(time.Until(m.end), time.Millisecond) // 0 would be for ever
	o.Forgets = m.plan.Etcd == nil && m.port != ""
	o.Stood, o.Stands = m.stood, m.stand
	var stood time.Time // since when this node stands by; zero: it does not
	o.Progress = func(s rendezvous.Status) {
		m.back()
		m.desk.moves(m.patience())
		if s.Running > 0 && !s.Another && stood.IsZero() {
			stood = time.Now()
			m.c.note(events.Line{Level: events.Info, Event: events.SpareWaits, Message: "this node stands by: " + s.String()})
		}
		m.lived = m.lived || s.Running > 0 && !s.Another
		show.turn(s.String(), s.Timeless().String())
	}
	m.gone.Store(nil)
	m.lapsed = 0
	if m.session, err = rendezvous.Join(ctx, m.store, m.spec, o); err == nil {
		err = m.session.Unpack() // verdicts and pages name all nodes
	}
	if err == nil && m.c.sim.share != nil {
		m.c.sim.share(&m.session.World)
	}
	var missing *rendezvous.Missing
	var refused *rendezvous.Refusal
	var excluded *rendezvous.Excluded
	var ended *rendezvous.Ended
	switch {
	case err == nil:
		if !stood.IsZero() {
			m.c.note(events.Line{Level: events.Info, Event: events.SpareCalled, Waited: events.Seconds(time.Since(stood)), Message: "this node stood by, and has a place now: " + m.describe()})
		}
		if m.anew || show.told {
			m.c.aloud().Info("all here: " + m.describe())
		}
		m.looksForTorchruns(len(m.session.World.Members))
		return nil
	case errors.As(err, &missing):
		return m.missing(missing)
	case errors.As(err, &refused), errors.As(err, &excluded):
		m.refused = excluded == nil || excluded.Met
		return fail(job.ExitRefused, "", "%w", err)
	case errors.As(err, &ended):
		m.ended = true
		if ended.Verdict.OK() { // an end that nobody else tells of
			m.c.Log.Info(ended.Error())
		}
		return err
	case ctx.Err() != nil:
		return show.cutShort(context.Cause(ctx))
	}
	hint := "the node that hosts it may have died"
	if m.plan.Etcd != nil {
		hint = ""
	}
	return fail(job.ExitRetry, hint, "the store at %s was lost before all nodes met: %w", m.port, err)
}

func (m *meeting) missed(a tcpstore.Attempt) {
	m.away(tcpstore.Cause(a.Err))
	if vain := m.vain.Load(); vain != nil && errors.Is(a.Err, syscall.ECONNREFUSED) {
		(*vain)()
	}
}

// away shows that the store is, to who waits for the others. That it is so for another reason than a moment ago is no change.
func (m *meeting) away(because string) {
	now := &absence{time.Now(), because}
	for !m.gone.CompareAndSwap(nil, now) {
		if was := m.gone.Load(); was != nil && m.gone.CompareAndSwap(was, &absence{was.since, because}) {
			break
		}
	}
	if show := m.show.Load(); show != nil {
		show.turn(fmt.Sprintf("the store at %s is away: %s", m.port, because), "the store is away")
	}
}

// back notes that the store answers, or that nobody waits for that any more.
func (m *meeting) back() {
	if was := m.gone.Swap(nil); was != nil {
		m.lapsed += time.Since(was.since)
	}
}

// because is why the store does not answer, as far as is known.
func (m *meeting) because() string {
	if gone := m.gone.Load(); gone != nil {
		return gone.because
	}
	return "no answer"
}

func (m *meeting) describe() string {
	w := m.session.World
	if len(w.Members) == 1 {
		return fmt.Sprintf("world size %d", w.Size())
	}
	return fmt.Sprintf("world size %d on %d nodes; this is node %d", w.Size(), len(w.Members), m.session.Rank)
}

// run starts a server of this meeting; end makes it return.
func (m *meeting) run(serve, end func()) {
	m.servers.Go(serve)
	m.closers = append(m.closers, end)
}

// close ends the meeting and all that it started.
func (m *meeting) close() {
	if m == nil {
		return
	}
	if m.session != nil {
		m.session.Close()
	}
	m.door.shut()
	m.leaveStore()
	m.servers.Wait()
}

// leaveStore ends the use of the store, and what this node serves for it.
func (m *meeting) leaveStore() {
	m.heir.end()
	if m.store != nil {
		m.store.Close()
	}
	for _, end := range m.closers {
		end()
	}
	m.store, m.closers, m.hosting = nil, nil, false
}

// maxWaiting bounds the agents that wait at a door which is not open yet. Those who have to make room come again.
const maxWaiting = 1 << 14

// room leaves most of the files that this process may have open to others than those who wait.
func (d *door) room() int {
	if d.most > 0 {
		return d.most
	}
	var l unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &l) // cannot fail for oneself
	return int(min(maxWaiting, l.Cur/4))
}

// A door keeps the connections of other agents until this agent knows that it leads. The zero value keeps them. Who calls another agent than
// this is turned away.
type door struct {
	self    string // incarnation of this node
	most    int    // who may wait; 0: as there is room
	mu      sync.Mutex
	fleet   *fleet.Fleet
	over    *fleet.Over           // the world that this agent was in; nil: there was none
	there   crowd.Crowd[net.Conn] // who is asked whom he calls, and who has said it and waits
	asking  sync.WaitGroup
	waiting []net.Conn
	closed  bool
}

func (d *door) handle(c net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fleet != nil || d.closed {
		d.let(c)
		return
	}
	var over fleet.Over
	if d.over != nil {
		over = *d.over
	}
	over.Self = d.self
	if !d.enter(c) {
		return
	}
	d.asking.Go(func() { d.ask(c, over) })
}

// enter finds room for a connection, if need be that of another. It is called with mu held.
func (d *door) enter(c net.Conn) bool {
	from, _ := netip.ParseAddrPort(c.RemoteAddr().String()) // not of a pipe
	out, full := d.there.Enter(c, from.Addr(), d.room())
	if !full {
		return true
	}
	out.Close()
	d.waiting = slices.DeleteFunc(d.waiting, func(w net.Conn) bool { return w == out })
	return out != c
}

// let hands a connection on, or keeps it. It is called with mu held.
func (d *door) let(c net.Conn) {
	switch {
	case d.fleet != nil:
		d.fleet.Handle(c)
	case d.closed:
		c.Close()
	case d.enter(c):
		d.there.Heard(c)
		d.waiting = append(d.waiting, c)
	}
}

// ask turns away who calls for the world that is over, or another agent.
func (d *door) ask(c net.Conn, over fleet.Over) {
	next := over.Meet(c)
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.there.Leave(c)
	switch {
	case next == nil:
	case !known: // turned away meanwhile
		next.Close()
	default:
		d.let(next)
	}
}

func (d *door) open(f *fleet.Fleet) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fleet = f
	for _, c := range d.waiting {
		d.there.Leave(c)
		f.Handle(c)
	}
	d.waiting = nil
}

// shut turns everybody away, until reset.
func (d *door) shut() { d.set(true, nil) }

// reset lets others wait again, for another world than the one that is over.
func (d *door) reset(over *fleet.Over) { d.set(false, over) }

func (d *door) set(closed bool, over *fleet.Over) {
	d.mu.Lock()
	for c := range d.there.All {
		c.Close()
	}
	d.waiting, d.there, d.closed, d.fleet, d.over = nil, crowd.Crowd[net.Conn]{}, closed, nil, over
	d.mu.Unlock()
	d.asking.Wait()
}

// accept hands on what comes to a listener until it is closed.
func accept(ln net.Listener, log *slog.Logger, take func(net.Conn)) {
	for failed := 0; ; {
		c, err := ln.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err == nil:
			failed = 0
			take(c)
		default: // out of descriptors, or the peer went away: others may still come
			if failed++; failed == 2 {
				log.Warn("other agents cannot connect: " + err.Error())
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}
