package discovery

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
)

// Endpoint takes HOST, HOST:PORT, [IPv6] and [IPv6]:PORT apart; the port is 0 when there is none. What no node can
// have as its address is an error, which begins where the text ends: "h:0" is followed by "has no port from …".
func Endpoint(text string) (host string, port int, err error) {
	_, notIP := netip.ParseAddr(strings.Trim(text, "[]"))
	if notIP == nil && !strings.Contains(text, "]:") || !strings.Contains(text, ":") {
		host, err := Host(text)
		return host, 0, err
	}
	host, digits, err := net.SplitHostPort(text)
	if err != nil {
		return "", 0, errors.New("is no HOST:PORT (an IPv6 address stands in brackets)")
	}
	if port, err = strconv.Atoi(digits); err != nil || port < 1 || port > 65535 {
		return "", 0, errors.New("has no port from 1 to 65535")
	}
	host, err = Host(host)
	return host, port, err
}

// Host returns a name or address in the one spelling in which muster compares it: without brackets, without the dot
// that ends a full domain name, a name in lower case. The error begins as Endpoint's.
func Host(text string) (string, error) {
	if inner, ok := strings.CutPrefix(text, "["); ok && strings.HasSuffix(inner, "]") {
		text = strings.TrimSuffix(inner, "]")
	}
	if ip, err := netip.ParseAddr(text); err == nil {
		return address(ip.Unmap())
	}
	name := strings.ToLower(strings.TrimSuffix(text, "."))
	last := name[strings.LastIndex(name, ".")+1:]
	switch {
	case name == "":
		return "", errors.New("names no host")
	case len(name) > 253: // RFC 1035, 2.3.4
		return "", fmt.Errorf("is no host name: it has %d characters, 253 are possible", len(name))
	case strings.ContainsFunc(name, foreign):
		return "", errors.New("is no host name: it has a character that no name has")
	case last != name && strings.Trim(last, "0123456789") == "": // RFC 1123, 2.1
		return "", errors.New("is neither a name nor an IPv4 address")
	}
	return name, nil
}

// address refuses those that do not mean one machine.
func address(ip netip.Addr) (string, error) {
	switch {
	case strings.ContainsFunc(ip.Zone(), foreign):
		return "", errors.New("is no address: its zone has a character that no interface has")
	case ip.WithZone("").IsUnspecified():
		return "", errors.New("means every address of a machine, not one that others can reach")
	case ip.IsMulticast(), ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "", errors.New("is an address of many machines, not of one")
	}
	return ip.String(), nil
}

// foreign reports whether r is in no host name: blanks, control characters, and ASCII other than letters, digits and
// "-_." (an underscore is in names that people give to containers).
func foreign(r rune) bool {
	if r >= unicode.MaxASCII {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r)
	}
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.", r)
}
