package allow

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/muster-run/muster/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestParse(t *testing.T) {
	for text, want := range map[string]struct {
		as      string // in one way of writing
		in, out string
	}{
		"world":                         {as: "world", out: "10.0.0.1 127.0.0.1 ::1"},
		"10.0.0.7":                      {as: "10.0.0.7", in: "10.0.0.7 ::ffff:10.0.0.7 ::ffff:10.0.0.7%eth0", out: "10.0.0.8 ::10.0.0.7 fd00::7"},
		"::ffff:10.0.0.7":               {as: "10.0.0.7", in: "10.0.0.7 ::ffff:10.0.0.7", out: "10.0.0.8"},
		"fe80::7%eth0":                  {as: "fe80::7", in: "fe80::7 fe80::7%eth1", out: "fe80::8"},
		"10.0.0.0/16":                   {as: "10.0.0.0/16", in: "10.0.0.1 10.0.255.255 ::ffff:10.0.3.4", out: "10.1.0.0 9.255.255.255"},
		"10.0.3.4/16":                   {as: "10.0.0.0/16", in: "10.0.0.1"},
		"10.0.3.4/32":                   {as: "10.0.3.4", in: "10.0.3.4", out: "10.0.3.5"},
		"::ffff:10.0.0.0/112":           {as: "10.0.0.0/16", in: "10.0.3.4", out: "10.1.0.0"},
		"fd00:7::/48":                   {as: "fd00:7::/48", in: "fd00:7::1 fd00:7:0:ffff::%eth0", out: "fd00:8::1 10.0.0.1"},
		"0.0.0.0/0":                     {as: "0.0.0.0/0", in: "10.0.0.1 ::ffff:1.2.3.4", out: "fd00::1"},
		"::/0":                          {as: "::/0", in: "fd00::1", out: "10.0.0.1 ::ffff:10.0.0.1"},
		" fd00::1 , world,10.0.0.0/8,":  {},
		"fd00::1, world ,10.0.0.2/31":   {as: "world,fd00::1,10.0.0.2/31", in: "fd00::1 10.0.0.2 10.0.0.3", out: "10.0.0.4"},
		"10.0.0.9,10.0.0.2,10.0.0.9":    {as: "10.0.0.2,10.0.0.9", in: "10.0.0.9"},
		"10.0.0.0/8,10.0.0.0/8,1.1.1.1": {as: "1.1.1.1,10.0.0.0/8"},
		"World":                         {},
		"":                              {},
		"10.0.0.0/33":                   {},
		"10.0.0.1:29400":                {},
		"[fd00::1]":                     {},
		"::ffff:10.0.0.0/90":            {},
		"fe80::%eth0/64":                {},
		"host0":                         {},
	} {
		r, err := Parse(text)
		if (err != nil) != (want.as == "") || r.String() != want.as {
			t.Errorf("%q is %q, %v", text, r, err)
		}
		for _, a := range strings.Fields(want.in) {
			if !r.Has(netip.MustParseAddr(a)) {
				t.Errorf("%q lacks %s", text, a)
			}
		}
		for _, a := range strings.Fields(want.out) {
			if r.Has(netip.MustParseAddr(a)) {
				t.Errorf("%q has %s", text, a)
			}
		}
	}
}

// What is wrong is named, with what may stand there.
func TestParseNamesWhatIsWrong(t *testing.T) {
	const want = `"10.0.0.0/33" is neither world nor an address, nor a network such as 10.0.0.0/16 or fd00::/48`
	if _, err := Parse("world, 10.0.0.0/33,10.0.0.1"); err == nil || err.Error() != want {
		t.Error(err)
	}
}

// A list does not change, nor does one that grew from it change another.
func TestWith(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	var none List
	one := none.With(One(a), netip.Prefix{})
	both := one.With(One(b))
	for _, c := range []struct {
		l      List
		a, b   bool
		absent bool
	}{{none, false, false, true}, {one, true, false, false}, {both, true, true, false}} {
		if c.l.Has(a) != c.a || c.l.Has(b) != c.b || c.l.Empty() != c.absent || c.l.Has(netip.Addr{}) {
			t.Errorf("%v", c.l)
		}
	}
}

// What is read is written so that it is read as the same again, and holds the addresses that its words say, one by one.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"world", "10.0.0.7,world", "::ffff:10.0.0.0/112", "fe80::7%eth0, 10.0.0.0/8", "::/0", "::ffff:0:0/90", ",", "10.0.3.4/16"} {
		f.Add(text, "10.0.3.4")
	}
	f.Add("fd00::/48", "fd00::1%eth0")
	f.Fuzz(func(t *testing.T, text, at string) {
		r, err := Parse(text)
		if err != nil {
			if !r.None() {
				t.Errorf("%q is refused and means %v", text, r)
			}
			return
		}
		again, err := Parse(r.String())
		if err != nil || again.String() != r.String() || r.None() {
			t.Fatalf("%q is written %q, and that is %q, %v", text, r, again, err)
		}
		a, err := netip.ParseAddr(at)
		if err != nil {
			return
		}
		if r.Has(a) != says(r.String(), a) || again.Has(a) != r.Has(a) {
			t.Errorf("%q has %v: %v", r, a, r.Has(a))
		}
	})
}

// says is Has in the slow way.
func says(text string, a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	for word := range strings.SplitSeq(text, ",") {
		one, err := netip.ParseAddr(word)
		if err == nil && one == a {
			return true
		}
		if p, err := netip.ParsePrefix(word); err == nil && p.Contains(a) {
			return true
		}
	}
	return false
}
