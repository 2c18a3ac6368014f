package topology

// Counters are how often a port's link failed since the adapter was reset; nil: the kernel does not say.
type Counters struct {
	LinkDowned *int // counters/link_downed, in eight bits
	Recovered  *int // counters/link_error_recovery, in eight bits
	Symbols    *int // counters/symbol_error, in sixteen bits
}

// Counters reads those of one port. It is no part of Probe: on some adapters each read leaves a line in the host's kernel log
// (prometheus/node_exporter, issue 3434), so they are for the one who judges them, once.
func (r Root) Counters(hca string, port int) Counters { return r.tree().counters(hca, port) }

func (t tree) counters(hca string, port int) Counters {
	var c Counters
	for _, f := range []struct {
		name string
		into **int
	}{
		{"link_downed", &c.LinkDowned}, {"link_error_recovery", &c.Recovered}, {"symbol_error", &c.Symbols},
	} {
		if n, ok := t.number(portDir(hca, port) + "/counters/" + f.name); ok && n >= 0 { // else "N/A (no PMA)"
			*f.into = &n
		}
	}
	return c
}

// Saturated reports whether a counter stands at its end, so that it no longer shows what happens.
func (c Counters) Saturated() bool {
	at := func(n *int, end int) bool { return n != nil && *n == end }
	return at(c.LinkDowned, 255) || at(c.Recovered, 255) || at(c.Symbols, 65535)
}
