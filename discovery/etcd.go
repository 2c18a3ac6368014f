package discovery

import (
	"cmp"
	"errors"
	"net"
	"strconv"
	"strings"
)

const (
	scheme     = "etcd://"  // before an endpoint that is a list of an etcd's members
	secure     = "https://" // before one of them that speaks TLS
	clientPort = 2379       // of a member, unless it says otherwise (etcd --listen-client-urls)
)

// InEtcd reports whether an endpoint says by itself that it is an etcd.
func InEtcd(endpoint string) bool { return strings.HasPrefix(endpoint, scheme) }

// Members takes HOST[:PORT],… apart, the members of an etcd, with etcd:// in front or without. Each may say http:// or
// https://, as it does for etcdctl; what is returned is HOST:PORT or https://HOST:PORT, all of one kind. The error begins as
// Endpoint's.
func Members(text string) (members []string, err error) {
	tls := 0
	for one := range strings.SplitSeq(strings.TrimPrefix(text, scheme), ",") {
		rest, isTLS := strings.CutPrefix(strings.TrimSpace(one), secure)
		if strings.Contains(rest, "@") {
			return nil, errors.New("names a user, which --etcd-user says, or ETCDCTL_USER")
		}
		host, port, err := Endpoint(strings.TrimSuffix(strings.TrimPrefix(rest, "http://"), "/"))
		if err != nil {
			return nil, err
		}
		member := net.JoinHostPort(host, strconv.Itoa(cmp.Or(port, clientPort)))
		if isTLS {
			tls, member = tls+1, secure+member
		}
		members = append(members, member)
	}
	if tls > 0 && tls < len(members) {
		return nil, errors.New("has members with https:// and others without")
	}
	return members, nil
}

// MemberHost is the host of a member as Members spells it.
func MemberHost(member string) string {
	host, _, _ := net.SplitHostPort(strings.TrimPrefix(member, secure))
	return host
}
