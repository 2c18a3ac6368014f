package launcher

import (
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/muster-run/muster/allow"
	"github.com/muster-run/muster/discovery"
	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous"
)

// rule is a list as a person gives it; "": none.
func rule(t *testing.T, text string) (r allow.Rule) {
	t.Helper()
	if text == "" {
		return r
	}
	r, err := allow.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Where nodes meet the networks of the list count, and this machine.
func TestAdmitsWhereNodesMeet(t *testing.T) {
	for text, want := range map[string]string{"": "", "world": "", "10.0.0.0/8": "10.1.2.3 127.0.0.1 127.8.8.8 ::1", "world,10.0.0.0/8": "10.1.2.3 127.0.0.1 127.8.8.8 ::1"} {
		admits := Config{StoreAllow: rule(t, text)}.admits()
		if (admits == nil) != (want == "") {
			t.Fatalf("%q bars nobody: %v", text, admits == nil)
		}
		if admits == nil {
			continue
		}
		for _, a := range strings.Fields(want) {
			if !admits(netip.MustParseAddr(a)) {
				t.Errorf("%q bars %s", text, a)
			}
		}
		for _, ip := range interfaceIPs() {
			if a, _ := netip.AddrFromSlice(ip); !admits(a) {
				t.Errorf("%q bars %s, which is here", text, a)
			}
		}
		if admits(netip.MustParseAddr("192.0.2.1")) {
			t.Errorf("%q lets everybody in", text)
		}
	}
}

// The workers' store lets in the addresses that the members of this world gave, and those from which they came, also when that is seen later.
func TestMayCome(t *testing.T) {
	const given, seen, listed, other = "203.0.113.2 2001:db8::2", "192.0.2.7 192.0.2.8", "198.51.100.9", "203.0.113.1"
	for text, want := range map[string]string{"world": given + " " + seen, "198.51.100.0/24": listed, "world,198.51.100.0/24": given + " " + seen + " " + listed} {
		r := &round{c: Config{StoreAllow: rule(t, text), WorkerStore: "agent"}, run: t.TempDir()}
		r.session = &rendezvous.Session{World: job.World{Members: []job.Member{{}, {Node: job.Node{Addrs: []job.Addr{"203.0.113.2:7", "[2001:db8::2]:7", "host0:7"}}}}}}
		r.sees(fleet.Event{Host: "192.0.2.7"})
		if err := r.writeAllowed(); err != nil {
			t.Fatal(err)
		}
		r.store = &workerStore{}
		r.sees(fleet.Event{Host: "::ffff:192.0.2.8"})
		file, err := os.ReadFile(r.allowFile())
		if err != nil {
			t.Fatal(err)
		}
		list := rule(t, string(file))
		for _, a := range strings.Fields(given + " " + seen + " " + listed + " " + other + " 127.0.0.1") {
			if in := strings.Contains(want+" 127.0.0.1", a); list.Has(netip.MustParseAddr(a)) != in {
				t.Errorf("%q: %s is let in: %v", text, a, !in)
			}
		}
		if words := strings.Join(r.c10dStore(), " "); words != "store serve --inherit --allow "+r.allowFile() {
			t.Error(words)
		}
	}
	if words := strings.Join((&round{}).c10dStore(), " "); words != "store serve --inherit" {
		t.Error(words)
	}
}

// Who comes to the agents' line alone, as where nodes meet in an etcd, is held against the list as well, and hears why.
func TestGuard(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var log strings.Builder
	var in []string
	take := guard(func(a netip.Addr) bool { return a == netip.MustParseAddr("127.0.0.2") }, slog.New(slog.NewTextHandler(&log, nil)),
		func(c net.Conn) { in = append(in, hostOf(job.Addr(c.RemoteAddr().String()))); c.Close() })
	for _, from := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.3", "127.0.0.2"} {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := d.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		came, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		take(came)
	}
	if strings.Join(in, " ") != "127.0.0.2 127.0.0.2" || strings.Count(log.String(), "connection from 127.0.0.3 to the agents' line was closed") != 1 {
		t.Errorf("let in: %s; told: %s", in, &log)
	}
}

// A list that lacks the node that has it is told of, unless its nodes meet on loopback.
func TestPlanAllow(t *testing.T) {
	const note = "--store-allow 10.8.0.0/16 has none of this node's addresses, [10.9.0.1 host0]: other nodes may not let it in"
	for _, c := range []struct {
		text  string
		addrs []job.Addr
		note  string
	}{
		{"10.8.0.0/16", []job.Addr{"10.9.0.1", "host0"}, note}, {"10.8.0.0/16", []job.Addr{"10.9.0.1", "10.8.7.6"}, ""}, {"10.8.0.0/16", []job.Addr{"127.0.0.1"}, ""},
		{"10.8.0.0/16", nil, ""}, {"world", []job.Addr{"10.9.0.1"}, ""}, {"", []job.Addr{"10.9.0.1"}, ""},
	} {
		p := &Plan{Spec: job.Spec{Self: job.Node{Addrs: c.addrs}}}
		if err := planAllow(Config{StoreAllow: rule(t, c.text)}, discovery.Finding{}, p); err != nil {
			t.Fatal(err)
		}
		if strings.Join(p.Notes, "") != c.note || (len(p.Settings) == 1) != (c.text != "") {
			t.Errorf("%q with %v: %q, %v", c.text, c.addrs, p.Notes, p.Settings)
		}
	}
}
