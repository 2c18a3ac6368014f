package crowd

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/muster-run/muster/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// Who has to go, one after the other. A step is who comes, "!" and who speaks, or "-" and who leaves; names begin with their address.
func TestWhoGoes(t *testing.T) {
	for _, c := range []struct {
		name  string
		most  int
		steps []string
		out   []string
	}{
		{"room for all", 3, []string{"a1", "b1", "c1"}, nil},
		{"who floods throws himself out, and first whom has been silent longest", 4, []string{"a1", "!a1", "b1", "b2", "b3", "b4", "b5"}, []string{"b1", "b2"}},
		{"another comes in for one of the flood", 4, []string{"b1", "b2", "b3", "b4", "a1", "c1"}, []string{"b1", "b2"}},
		{"who has spoken stays before who has not", 3, []string{"b1", "!b1", "b2", "b3", "!b3", "a1"}, []string{"b2"}},
		{"where all have spoken the newest goes", 3, []string{"b1", "!b1", "b2", "!b2", "b3", "!b3", "a1"}, []string{"b3"}},
		{"of equals the newcomer's own", 2, []string{"a1", "!a1", "b1", "!b1", "a2"}, []string{"a2"}},
		{"a newcomer among those who have spoken", 2, []string{"a1", "!a1", "a2", "!a2", "a3"}, []string{"a3"}},
		{"who left makes room", 2, []string{"a1", "a2", "-a1", "b1"}, nil},
		{"who speaks twice", 2, []string{"a1", "!a1", "!a1", "b1"}, nil},
		{"who is not there speaks and leaves", 1, []string{"!a9", "-a9", "a1"}, nil},
		{"no room at all", 0, []string{"a1"}, []string{"a1"}},
	} {
		var w Crowd[string]
		var out []string
		for _, s := range c.steps {
			switch s[0] {
			case '!':
				w.Heard(s[1:])
			case '-':
				w.Leave(s[1:])
			default:
				if who, full := w.Enter(s, netip.AddrFrom4([4]byte{10, 0, 0, s[0]}), c.most); full {
					out = append(out, who)
				}
			}
		}
		if fmt.Sprint(out) != fmt.Sprint(c.out) {
			t.Errorf("%s: %q had to go, not %q", c.name, out, c.out)
		}
		for who := range w.All {
			if slices.Contains(out, who) || !w.Leave(who) {
				t.Errorf("%s: %s is there, and is not", c.name, who)
			}
		}
		if w.Len() != 0 || len(w.from) != 0 {
			t.Errorf("%s: %d are left, from %d addresses", c.name, w.Len(), len(w.from))
		}
	}
}

// A machine with IPv6 has more addresses than anybody can count.
func TestNetwork(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"10.0.0.1", "10.0.0.2", false},
		{"10.0.0.1", "::ffff:10.0.0.1", true},
		{"fd00::1", "fd00::ffff:2", true},
		{"fd00::1", "fd00:0:0:1::1", false},
		{"fe80::1%eth0", "fe80::1", true},
	} {
		if same := Network(netip.MustParseAddr(c.a)) == Network(netip.MustParseAddr(c.b)); same != c.same {
			t.Errorf("%s and %s: %v", c.a, c.b, same)
		}
	}
	if n := Network(netip.Addr{}); n != (netip.Prefix{}) {
		t.Errorf("no address is %v", n)
	}
}
