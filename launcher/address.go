package launcher

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/muster-run/muster/job"
)

// isLoopback reports whether host can only ever mean this machine.
func isLoopback(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// localAddrs returns the addresses, without ports, at which peers may reach this node, best first: the one that
// the user named, then those of all interfaces, routable ones only. Loopback serves only where all nodes meet on it.
func localAddrs(first string, loopback bool) []job.Addr {
	var out []job.Addr
	if first != "" {
		out = append(out, job.Addr(strings.Trim(first, "[]")))
	}
	if loopback {
		if first == "" {
			out = append(out, "127.0.0.1", "::1")
		}
		return out
	}
	for _, ip := range interfaceIPs() {
		if a := job.Addr(ip.String()); ip.IsGlobalUnicast() && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// interfaceIPs lists the addresses of all interfaces that are up, IPv4 first.
func interfaceIPs() []net.IP {
	var v4, v6 []net.IP
	ifaces, _ := net.Interfaces() // no interface is an answer too
	for _, i := range ifaces {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok {
				if n.IP.To4() != nil {
					v4 = append(v4, n.IP)
				} else {
					v6 = append(v6, n.IP)
				}
			}
		}
	}
	return append(v4, v6...)
}

// astray says why agents of other machines may look for the meeting elsewhere than on this one, which hosts it, although they were given the same name
// for it; "": nothing says so.
func astray(ctx context.Context, host string) string {
	ips := []net.IP{net.ParseIP(host)}
	if ips[0] == nil {
		ips, _ = net.DefaultResolver.LookupIP(ctx, "ip", host)
	}
	return leads(host, ips, interfaceIPs())
}

// leads is astray of a name that leads to these addresses, on a machine that has those.
func leads(host string, ips, mine []net.IP) string {
	own, names := 0, []string{}
	loops := len(ips) > 0
	for _, ip := range ips {
		if slices.ContainsFunc(mine, ip.Equal) || ip.IsLoopback() {
			own++
		}
		loops = loops && ip.IsLoopback()
		names = append(names, ip.String())
	}
	switch {
	case isLoopback(host):
		return fmt.Sprintf("for they meet at %s: agents of other machines cannot reach it, and what they begin there is another training", host)
	case loops:
		return fmt.Sprintf("and %s is %s here: where it is that on other machines, too, each begins a training of its own", host, names[0])
	case 0 < own && own < len(ips):
		return fmt.Sprintf("and %s is %s, not all of them this machine's: where others find themselves behind it, each begins a training of its own", host, strings.Join(names[:min(len(names), mostNamed)], ", "))
	}
	return ""
}

// isMe reports whether host names this machine: by its host name, with or without a domain, or by resolving to
// the address of one of its interfaces. A name that does not resolve (yet) does not.
func isMe(ctx context.Context, host, hostname string) bool {
	if isLoopback(host) || strings.EqualFold(host, hostname) {
		return true
	}
	if short, _, _ := strings.Cut(hostname, "."); strings.EqualFold(host, short) {
		return true
	}
	mine := interfaceIPs()
	known := func(ip net.IP) bool {
		return slices.ContainsFunc(mine, ip.Equal)
	}
	if ip := net.ParseIP(host); ip != nil {
		return known(ip)
	}
	ips, _ := net.DefaultResolver.LookupIP(ctx, "ip", host)
	return slices.ContainsFunc(ips, known)
}
