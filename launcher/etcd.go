package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/muster-run/muster/discovery"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report"
)

// Etcd says how an etcd is entered. What is "" etcdctl's own variables say: ETCDCTL_CACERT, ETCDCTL_CERT, ETCDCTL_KEY,
// ETCDCTL_USER, ETCDCTL_PASSWORD.
type Etcd struct {
	TLS       bool   // torchrun's protocol=https: it speaks TLS, though its members do not say https://
	CACert    string // --etcd-cacert: file of the authorities that may vouch for it; the system's, if it speaks TLS
	Cert, Key string // --etcd-cert, --etcd-key: files with which this node shows who it is
	User      string // --etcd-user: NAME or NAME:PASSWORD
	Password  string
	Prefix    string // --etcd-prefix: of all keys; "": /muster
}

// EtcdJob is one job's place in an etcd. No node hosts it, and other jobs may be in it too.
type EtcdJob struct {
	Etcd
	Members []string // as discovery.Members spells them
	ID      string   // of the job
	Agent   string   // names this agent among the job's, and the one that takes over from it
	Again   bool     // it does take over
	Log     *slog.Logger
	Waiting func(because string) // called, by any goroutine, when a try to reach it failed
}

// InEtcd reports whether the nodes meet in an etcd, as far as flags and platform say without a contradiction.
func (c Config) InEtcd() bool {
	return !c.Standalone && c.inEtcd(discovery.Detect(c.Host))
}

// inEtcd: a flag counts more than the platform, and both of torchrun's, backend and endpoint, have a say.
func (c Config) inEtcd(found discovery.Finding) bool {
	switch {
	case discovery.InEtcd(c.Endpoint):
		return true
	case c.Backend != "":
		return c.Backend == "etcd"
	case c.MasterAddr != "":
		return false
	}
	return len(found.Etcd) > 0
}

// planEtcd decides in which etcd the nodes meet.
func planEtcd(c Config, found discovery.Finding, p *Plan) (err error) {
	by := found.Rule
	switch {
	case c.Backend == "c10d":
		return fail(job.ExitUsage, "drop one of them", "%s is no endpoint for %s", c.said("rdzv-endpoint", c.Endpoint), c.said("rdzv-backend", c.Backend))
	case c.MasterAddr != "":
		return fail(job.ExitUsage, "drop one of them", "%s, but with etcd no node hosts the meeting point", c.said("master-addr", c.MasterAddr))
	case c.Serve == "yes":
		return fail(job.ExitUsage, "drop it", "%s, but with etcd no node hosts the meeting point", c.said("serve", c.Serve))
	case c.Endpoint != "":
		by = c.by("rdzv-endpoint")
		if p.Etcd, err = discovery.Members(c.Endpoint); err != nil {
			return fail(job.ExitUsage, "give the members of an etcd: HOST:PORT,...", "%s %w", report.NewMask(nil).Text(c.said("rdzv-endpoint", c.Endpoint)), err)
		}
	case len(found.Etcd) > 0:
		p.Etcd = found.Etcd
	default:
		return fail(job.ExitUsage, "say --rdzv-endpoint HOST:PORT,...", "%s, but nothing says where it is", c.said("rdzv-backend", "etcd"))
	}
	p.Endpoint = job.Addr(strings.Join(p.Etcd, ","))
	p.set(c, "rdzv-endpoint", string(p.Endpoint), by)
	p.set(c, "rdzv-backend", "etcd", by)
	return planAddrs(c, farthest(p.Etcd), p)
}

// farthest is the host of the first member that is not on this machine alone. If all of them are, so is the job.
func farthest(members []string) string {
	for _, m := range members {
		if host := discovery.MemberHost(m); !isLoopback(host) {
			return host
		}
	}
	return discovery.MemberHost(members[0])
}

// openEtcd waits until etcd answers, and listens for the others.
func (m *meeting) openEtcd(ctx context.Context, members []string) error {
	show := newWaiting(m.c.Log, m.desk, "waiting for etcd at "+string(m.port))
	dialing, cancel := context.WithDeadline(ctx, m.end)
	defer cancel()
	if err := m.useEtcd(members, func(because string) {
		if dialing.Err() != nil { // it was there before
			m.away(because)
			return
		}
		show.turn(because, "it is away") // one member may be so for another reason than the next
	}); err != nil {
		return err
	}
	err := m.enterEtcd(dialing, show)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return show.cutShort(context.Cause(ctx))
	case errors.Is(err, context.DeadlineExceeded):
		code, within := m.tooLate(job.ExitStore)
		return fail(code, "does it run, and is the endpoint right?",
			"no etcd at %s within %v: %s", m.port, within, cmp.Or(show.state(), "no answer"))
	default:
		code, _ := m.tooLate(job.ExitStore)
		return fail(code, "--etcd-cacert, --etcd-cert, --etcd-key and --etcd-user say how it is entered, or etcdctl's variables",
			"etcd at %s: %w", m.port, err)
	}
	if m.c.LocalAddr == "" {
		m.hosts = first(m.hosts, facing(dialing, members))
	}
	return m.listenForPeers(farthest(members))
}

// enterEtcd waits until this node may write; else it would learn in the midst of the meeting that it may not. After a world it asks again until it is too late,
// as whoever refuses it may be put right. The error is the refusal then, unless something else was told since.
func (m *meeting) enterEtcd(ctx context.Context, show *waiting) (refusal error) {
	code, _ := m.tooLate(job.ExitStore)
	for {
		err := m.store.Set(ctx, "opened", nil)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil && refusal != nil && show.state() == refusal.Error():
			return refusal
		case ctx.Err() != nil || code != job.ExitRetry || !m.again():
			return err
		}
		refusal = err
		show.tick(err.Error())
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
	}
}

// resumeEtcd is openEtcd for who takes over from another agent. It waits for nobody, as a world that runs needs no etcd.
func (m *meeting) resumeEtcd(members []string) error {
	if err := m.useEtcd(members, m.away); err != nil {
		return err
	}
	return m.listenForPeers(farthest(members))
}

// useEtcd opens the store in etcd without waiting for it.
func (m *meeting) useEtcd(members []string, waiting func(because string)) (err error) {
	m.store, err = m.c.OpenEtcd(EtcdJob{
		Etcd: m.c.etcd(), Members: members, ID: m.spec.ID, Agent: m.spec.Self.Incarnation, Again: m.c.takesOver(), Log: m.c.Log, Waiting: waiting,
	})
	if err != nil && m.c.upgraded() {
		m.c.Log.Error(fmt.Sprintf("cannot take over: %v", err))
		os.Exit(job.ExitInternal) // without a goodbye
	}
	return err
}

// etcd is how an etcd is entered, all considered.
func (c Config) etcd() Etcd {
	e := c.Etcd
	for name, value := range map[string]*string{
		"ETCDCTL_CACERT": &e.CACert, "ETCDCTL_CERT": &e.Cert, "ETCDCTL_KEY": &e.Key, "ETCDCTL_USER": &e.User, "ETCDCTL_PASSWORD": &e.Password,
	} {
		if *value == "" {
			*value, _ = c.getenv(name)
		}
	}
	if user, password, both := strings.Cut(e.User, ":"); both {
		e.User, e.Password = user, password
	}
	e.Prefix = strings.TrimSuffix(cmp.Or(e.Prefix, "/muster"), "/")
	return e
}

// facing is the address of this machine from which it reaches the first of members that it can; "": none. Nothing is sent.
func facing(ctx context.Context, members []string) job.Addr {
	var d net.Dialer
	for _, m := range members {
		conn, err := d.DialContext(ctx, "udp", net.JoinHostPort(discovery.MemberHost(m), "9"))
		if err != nil {
			continue
		}
		conn.Close()
		if ip := conn.LocalAddr().(*net.UDPAddr).IP; !ip.IsLoopback() {
			return job.Addr(ip.String())
		}
	}
	return ""
}

// first puts one of hosts before the others, if it is among them.
func first(hosts []job.Addr, one job.Addr) []job.Addr {
	i := slices.Index(hosts, one)
	if i < 0 {
		return hosts
	}
	return slices.Concat(hosts[i:i+1], hosts[:i], hosts[i+1:])
}
