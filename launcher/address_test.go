package launcher

import (
	"net"
	"strings"
	"testing"
)

// A name under which each machine finds itself parts a job.
func TestLeads(t *testing.T) {
	ip := net.ParseIP
	mine := []net.IP{ip("10.0.0.1"), ip("fd00::1")}
	for _, c := range []struct {
		host string
		ips  []net.IP
		want string
	}{
		{"localhost", []net.IP{ip("127.0.0.1")}, "for they meet at localhost: agents of other machines cannot reach it"},
		{"host0", []net.IP{ip("127.0.1.1")}, "and host0 is 127.0.1.1 here: where it is that on other machines, too"},
		{"host0", []net.IP{ip("10.0.0.1"), ip("10.0.0.2")}, "and host0 is 10.0.0.1, 10.0.0.2, not all of them this machine's: where others find themselves"},
		{"host0", []net.IP{ip("10.0.0.1"), ip("fd00::1")}, ""},
		{"host0", []net.IP{ip("10.0.0.9")}, ""}, // behind a translation of addresses
		{"10.0.0.1", []net.IP{ip("10.0.0.1")}, ""},
		{"host0", nil, ""},
	} {
		if got := leads(c.host, c.ips, mine); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s %v: %q, want %q", c.host, c.ips, got, c.want)
		}
	}
}
