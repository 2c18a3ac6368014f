package topology

import (
	"slices"
	"strconv"
)

// A Rail is a port through which GPUs reach other machines.
type Rail struct {
	HCA  HCA
	Port Port
}

// Name is the adapter's name, with the port where the adapter has several.
func (r Rail) Name() string {
	if len(r.HCA.Ports) > 1 {
		return r.HCA.Name + ":" + strconv.Itoa(r.Port.Number)
	}
	return r.HCA.Name
}

// Rails are all ports of all adapters, by name.
func (m Machine) Rails() (all []Rail) {
	for _, h := range m.HCAs {
		for _, p := range h.Ports {
			all = append(all, Rail{HCA: h, Port: p})
		}
	}
	return all
}

// Compute is the ports that are for training, without those for storage and management: of the usable ones the fastest, InfiniBand before
// Ethernet; of these, where some GPU has one behind its own PCIe switches, those that are the nearest to a GPU. Ports behind GPUs' switches that carry
// more together than the fastest ones, which no GPU has there, come before these: storage may have newer adapters than training has.
func (m Machine) Compute() []Rail {
	usable := slices.DeleteFunc(m.Rails(), func(r Rail) bool { return !r.Port.Usable })
	fast := m.fastest(usable)
	if !m.local(fast) {
		behind := slices.DeleteFunc(m.Rails(), func(r Rail) bool { return !m.local([]Rail{r}) })
		if own := m.fastest(slices.DeleteFunc(slices.Clone(behind), func(r Rail) bool { return !r.Port.Usable })); carry(own, behind) > carry(fast, fast) {
			fast = own
		}
	}
	var near []Rail
	local := false
	for _, g := range m.GPUs {
		nearest, relation := nearestTo(g, fast)
		if m.lost(g, relation, fast) {
			continue // it borrows another GPU's, or storage's
		}
		local = local || relation <= PXB
		near = append(near, nearest...)
	}
	if !local {
		return fast
	}
	return slices.DeleteFunc(fast, func(r Rail) bool {
		return !slices.ContainsFunc(near, func(n Rail) bool { return n.Name() == r.Name() })
	})
}

// carry is what ports would bring together, in Gb/s, with those of all that are of the same cards, and may be down.
func carry(ports, all []Rail) (sum float64) {
	var best float64
	for _, r := range ports {
		best = max(best, r.Port.Rate)
	}
	for _, r := range all {
		if slices.ContainsFunc(ports, func(p Rail) bool { return sameCard(p.HCA, r.HCA) }) {
			sum += best
		}
	}
	return sum
}

// fastest are the ports of the best rate; one of the same card whose link has lost lanes or speed counts as the others do. Without InfiniBand
// and Ethernet it is all ports of EFA, whose rate says nothing.
func (m Machine) fastest(ports []Rail) []Rail {
	efa := func(r Rail) bool { return r.HCA.EFA() }
	verbs := slices.DeleteFunc(slices.Clone(ports), func(r Rail) bool {
		return efa(r) || r.Port.Layer != "InfiniBand" && r.Port.Layer != "Ethernet"
	})
	if len(verbs) == 0 {
		return slices.DeleteFunc(slices.Clone(ports), func(r Rail) bool { return !efa(r) })
	}
	var best float64
	for _, r := range verbs {
		best = max(best, r.Port.Rate)
	}
	top := slices.DeleteFunc(slices.Clone(verbs), func(r Rail) bool { return r.Port.Rate < best*0.9 && !r.untold() })
	if i := slices.IndexFunc(top, func(r Rail) bool { return r.Port.Layer == "InfiniBand" }); i >= 0 {
		top = slices.DeleteFunc(top, func(r Rail) bool { return r.Port.Layer != "InfiniBand" })
	}
	local := m.local(top)
	return slices.DeleteFunc(verbs, func(r Rail) bool {
		return !slices.ContainsFunc(top, func(t Rail) bool { return t.Name() == r.Name() || narrowed(r, t) }) && !(local && m.slowed(r, top))
	})
}

// untold reports whether nobody knows a port's rate: a kernel that is older than the card's speed calls it SDR, which no card of today has of its own.
func (r Rail) untold() bool { return r.Port.Layer == "InfiniBand" && r.Port.Speed == "SDR" }

// narrowed reports whether r is what t is, but for fewer lanes: 200 Gb/sec (2X NDR) beside 400 Gb/sec (4X NDR).
func narrowed(r, t Rail) bool {
	return sameCard(r.HCA, t.HCA) && r.Port.Layer == t.Port.Layer && r.Port.Speed != "" && r.Port.Speed == t.Port.Speed && r.Port.Lanes < t.Port.Lanes
}

// slowed reports whether r is a GPU's own as those of top are others', and its link came up slower: 200 Gb/sec (4X HDR) beside 400 Gb/sec (4X NDR).
func (m Machine) slowed(r Rail, top []Rail) bool {
	if !slices.ContainsFunc(top, func(t Rail) bool { return sameCard(r.HCA, t.HCA) && r.Port.Layer == t.Port.Layer }) {
		return false
	}
	return slices.ContainsFunc(m.GPUs, func(g GPU) bool {
		relation := Relate(g.PCI, r.HCA.PCI)
		nearest, left := nearestTo(g, top)
		return relation <= PXB && (relation < left || relation == left && slices.ContainsFunc(nearest, func(n Rail) bool { return sameSlot(n.HCA, r.HCA) }))
	})
}

func sameCard(a, b HCA) bool {
	return a.PCI.Vendor == b.PCI.Vendor && a.PCI.Device == b.PCI.Device && a.PCI.SubType == b.PCI.SubType && a.Board == b.Board
}

// lost reports whether a GPU's own adapter, of the kind that others train through, cannot be used: one is behind its PCIe switches, nearer
// than what is left to it.
func (m Machine) lost(g GPU, left Relation, fast []Rail) bool {
	return slices.ContainsFunc(m.Rails(), func(r Rail) bool {
		relation := Relate(g.PCI, r.HCA.PCI)
		return !r.Port.Usable && relation <= PXB && relation < left && slices.ContainsFunc(fast, func(f Rail) bool { return sameCard(f.HCA, r.HCA) })
	})
}

// ForTraining reports whether a port that cannot be used is missed by a GPU of this container: one that is like those for training, where
// that GPU has none left that is as near, or shares those that are with others. An adapter of other containers is missed only in the first
// case. The second port of a card through which GPUs train is not missed.
func (m Machine) ForTraining(r Rail) bool {
	compute := m.Compute()
	if len(compute) == 0 {
		return slices.ContainsFunc(m.GPUs, func(g GPU) bool { return g.Visible && Relate(g.PCI, r.HCA.PCI) <= PXB })
	}
	alike := slices.ContainsFunc(compute, func(c Rail) bool { return sameCard(c.HCA, r.HCA) })
	if !m.local(compute) && m.cutOff(compute, r) {
		return true
	}
	if !alike || slices.ContainsFunc(compute, func(c Rail) bool { return sameSlot(c.HCA, r.HCA) }) {
		return false
	}
	farthest := SYS
	if m.local(compute) {
		farthest = PXB
	}
	var users []GPU
	for _, g := range m.GPUs {
		if relation := Relate(g.PCI, r.HCA.PCI); g.Visible && relation <= farthest {
			switch _, left := nearestTo(g, compute); {
			case relation < left:
				return true
			case relation == left:
				users = append(users, g)
			}
		}
	}
	if r.HCA.Why != "" && m.shared() {
		return false
	}
	left := slices.DeleteFunc(slices.Clone(compute), func(c Rail) bool {
		return !slices.ContainsFunc(users, func(g GPU) bool { return Relate(g.PCI, c.HCA.PCI) <= Relate(g.PCI, r.HCA.PCI) })
	})
	return len(left) < len(users) && (farthest == PXB || r.Port.Layer == "InfiniBand") // Ethernet that nobody uses is common
}

// cutOff reports whether a port that cannot be used is one of those that most GPUs of this container have behind their switches, while none that can be
// used is there: their fabric is down, and what is left is storage's.
func (m Machine) cutOff(compute []Rail, r Rail) bool {
	if r.Port.Layer == "Ethernet" && compute[0].Port.Layer == "InfiniBand" { // that nobody uses is common
		return false
	}
	gpus, cut, own := 0, 0, false
	for _, g := range m.GPUs {
		if !g.Visible {
			continue
		}
		gpus++
		if slices.ContainsFunc(m.Rails(), func(o Rail) bool { return sameCard(o.HCA, r.HCA) && Relate(g.PCI, o.HCA.PCI) <= PXB }) {
			cut++
			own = own || Relate(g.PCI, r.HCA.PCI) <= PXB
		}
	}
	return own && 2*cut > gpus
}

// Bare are the GPUs of this container that have no port for training behind their PCIe switches, where most have one.
func (m Machine) Bare() (gpus []GPU) {
	compute, all := m.Compute(), 0
	for _, g := range m.GPUs {
		if !g.Visible {
			continue
		}
		all++
		if _, relation := nearestTo(g, compute); relation > PXB {
			gpus = append(gpus, g)
		}
	}
	if 2*len(gpus) >= all {
		return nil
	}
	return gpus
}

// Spare reports whether a port that cannot be used is like those for training, and yet no GPU misses it; of a machine without any that can
// be used, whether one could. Adapters of other containers, and second ports that nobody uses, are not meant.
func (m Machine) Spare(r Rail) bool {
	compute := m.Compute()
	switch {
	case r.HCA.Why != "" || m.ForTraining(r):
		return false
	case len(compute) == 0:
		return true
	}
	alike := func(c Rail) bool { return sameCard(c.HCA, r.HCA) && !sameSlot(c.HCA, r.HCA) }
	return slices.ContainsFunc(compute, alike) && (!m.local(compute) || m.local([]Rail{r}))
}

// local reports whether some GPU has one of these behind its own PCIe switches.
func (m Machine) local(rails []Rail) bool {
	return slices.ContainsFunc(m.GPUs, func(g GPU) bool {
		_, relation := nearestTo(g, rails)
		return relation <= PXB
	})
}

// shared reports whether others have some of the machine's GPUs.
func (m Machine) shared() bool {
	return slices.ContainsFunc(m.GPUs, func(g GPU) bool { return !g.Visible })
}

// sameSlot reports whether two adapters are one card's.
func sameSlot(a, b HCA) bool {
	x, y := a.PCI.Address, b.PCI.Address
	x.Fun, y.Fun = 0, 0
	return a.Name == b.Name || x == y && x != Address{}
}

// nearestTo are those of rails that are the nearest to a GPU, by name.
func nearestTo(g GPU, rails []Rail) (nearest []Rail, relation Relation) {
	relation = None
	for _, r := range rails {
		switch d := Relate(g.PCI, r.HCA.PCI); {
		case d < relation:
			nearest, relation = []Rail{r}, d
		case d == relation:
			nearest = append(nearest, r)
		}
	}
	return nearest, relation
}

// An Affinity is which adapters are the nearest to a GPU among those for training.
type Affinity struct {
	GPU      int // its index
	Rails    []Rail
	Relation Relation // None: there is no adapter
}

// Affinity pairs each GPU with its nearest adapters.
func (m Machine) Affinity() (all []Affinity) {
	compute := m.Compute()
	for _, g := range m.GPUs {
		near, relation := nearestTo(g, compute)
		all = append(all, Affinity{GPU: g.Index, Rails: near, Relation: relation})
	}
	return all
}

// Names are the rails' names.
func Names(rails []Rail) []string {
	names := []string{}
	for _, r := range rails {
		names = append(names, r.Name())
	}
	return names
}

// Transport is how data gets to other machines past the CPU: ib, roce, efa, or none.
func (m Machine) Transport() string {
	compute := m.Compute()
	switch {
	case len(compute) == 0:
		return "none"
	case compute[0].HCA.EFA():
		return "efa"
	case compute[0].Port.Layer == "InfiniBand":
		return "ib"
	}
	return "roce"
}

// GIDIndex is where all adapters for training have the GID by which RoCE v2 reaches others, if they agree.
func (m Machine) GIDIndex() (index int, ok bool) {
	if m.Transport() != "roce" {
		return 0, false
	}
	for i, r := range m.Compute() {
		g, found := r.Port.RoCE(m.Nets)
		if !found || i > 0 && g.Index != index {
			return 0, false
		}
		index = g.Index
	}
	return index, true
}

// MNNVL reports whether GPUs may reach those of other machines by NVLink: this container has a channel of IMEX.
func (m Machine) MNNVL() bool { return len(m.NVIDIA.IMEX) > 0 }
