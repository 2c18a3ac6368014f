// Package affinity chooses for each worker of a machine the CPUs on which it runs, and the NUMA node of which it has its memory first: those near its
// GPU. It binds nobody.
package affinity

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/muster-run/muster/topology"
)

// What --bind says.
const (
	Auto   = "auto"   // the GPU's NUMA node, where that costs nothing
	None   = "none"   // anywhere
	Socket = "socket" // the CPUs of the socket that the GPU is at
	NUMA   = "numa"   // those of the GPU's NUMA node, which workers at the same node share
	Core   = "core"   // a share of these for each worker alone
)

// A Given is what the choice rests on.
type Given struct {
	Machine topology.Machine
	Mode    string
	Workers int // by their local ranks each has the GPU of that number among those that the environment shows
	Getenv  func(string) (string, bool)
	Sealed  bool // the kernel does not let this container say where memory is to be
}

// A Worker is where one of them runs.
type Worker struct {
	GPU     int           // its number on the machine; -1: none
	CPUs    topology.CPUs // nil: wherever muster itself may run
	Memory  int           // the NUMA node that it has its memory of, as long as there is some; -1: where it runs
	Threads int           // how many it may compute with beside the others
	Why     string        // it is bound so, or not at all
}

// A Choice is for all workers of a machine, by their local ranks.
type Choice struct {
	Workers []Worker
	Why     string // none of them is bound; "": some may be
	Sealed  bool   // their memory would have had a node, if the kernel let us say so
}

// Bound reports whether any worker is.
func (c Choice) Bound() bool {
	return slices.ContainsFunc(c.Workers, func(w Worker) bool { return w.CPUs != nil })
}

// Lines say who runs where, one line for those who run together.
func (c Choice) Lines() (lines []string) {
	for i := 0; i < len(c.Workers); {
		first := i
		for i++; i < len(c.Workers) && c.Workers[i].alike(c.Workers[first]); i++ {
		}
		who, whose := fmt.Sprintf("worker %d", first), ""
		if w := c.Workers[first]; w.GPU >= 0 {
			whose = fmt.Sprintf(" (GPU%d)", w.GPU)
		}
		if i-1 > first {
			var gpus topology.CPUs
			for _, w := range c.Workers[first:i] {
				gpus = append(gpus, w.GPU)
			}
			slices.Sort(gpus)
			if who = fmt.Sprintf("workers %d-%d", first, i-1); whose != "" {
				whose = fmt.Sprintf(" (GPUs %v)", gpus)
			}
		}
		lines = append(lines, who+whose+" "+c.Workers[first].String())
	}
	return lines
}

func (w Worker) alike(o Worker) bool {
	return slices.Equal(w.CPUs, o.CPUs) && w.Memory == o.Memory && w.Why == o.Why && (w.GPU < 0) == (o.GPU < 0)
}

// String is where it runs, and why.
func (w Worker) String() string {
	text := "anywhere"
	if w.CPUs != nil {
		text = fmt.Sprintf("on CPUs %v", w.CPUs)
	}
	if w.Memory >= 0 {
		text += fmt.Sprintf(", memory of NUMA node %d first", w.Memory)
	}
	return text + ": " + w.Why
}

// Choose chooses for all workers.
func Choose(g Given) Choice {
	c := chooser{Given: g, usable: g.Machine.Limits.Usable(g.Machine.Processor.Online)}
	for _, n := range g.Machine.Nodes {
		if len(n.CPUs) > 0 { // else it is memory alone: a GPU's on Grace, or a CXL device's
			c.nodes = append(c.nodes, n)
		}
	}
	seats, why := c.seats()
	choice := Choice{Why: why}
	for i := range g.Workers {
		w := Worker{GPU: -1, Memory: -1, Why: why}
		if why == "" {
			w = c.place(seats, i)
		}
		if w.Memory >= 0 && g.Sealed {
			w.Memory, choice.Sealed = -1, true
		}
		choice.Workers = append(choice.Workers, w)
	}
	c.threads(choice.Workers)
	return choice
}

type chooser struct {
	Given
	usable topology.CPUs
	nodes  []topology.Node // that have CPUs
}

// A seat is what a worker is to be near to.
type seat struct{ gpu, node int }

// Rival is a variable by which the user, or who starts workers, has their threads bound already; "": there is none.
func Rival(getenv func(string) (string, bool)) string {
	for _, name := range []string{"KMP_AFFINITY", "GOMP_CPU_AFFINITY"} {
		if value, set := getenv(name); set {
			return name + "=" + value
		}
	}
	return ""
}

// seats are what the workers are near to, or why none is bound.
func (c chooser) seats() (seats []seat, why string) {
	gpus := c.Machine.Seen(c.Getenv)
	switch rival := Rival(c.Getenv); {
	case c.Mode == None:
		return nil, "--bind none"
	case len(c.usable) == 0:
		return nil, "the kernel does not say on which CPUs they may run"
	case rival != "":
		return nil, rival + " says where threads run"
	}
	if c.Mode == Auto {
		if why := c.leave(gpus); why != "" {
			return nil, why
		}
	}
	if len(gpus) == 0 {
		return c.spread(), ""
	}
	if why := c.unpaired(gpus); why != "" {
		return nil, why
	}
	for _, g := range gpus {
		seats = append(seats, seat{g.Index, g.PCI.NUMA})
	}
	return seats, ""
}

// leave is why nobody is bound who did not ask for it.
func (c chooser) leave(gpus []topology.GPU) string {
	if value, set := c.Getenv("ACCELERATE_CPU_AFFINITY"); set && value != "0" {
		return "ACCELERATE_CPU_AFFINITY has each worker bind itself"
	}
	all := c.Machine.Processor.Online
	if s := c.Machine.Limits.Set; s != nil {
		all = s.And(all)
	}
	switch {
	case len(gpus) == 0:
		return "they have no GPUs"
	case len(c.nodes) < 2:
		return "all CPUs are of one NUMA node"
	case len(gpus) == 1:
		return "there is one GPU, and nobody to make room for"
	case slices.ContainsFunc(gpus, func(g topology.GPU) bool { return len(g.MIG) > 0 }):
		return "GPUs are cut up (MIG)"
	case len(c.usable) < len(all):
		return fmt.Sprintf("muster was bound to CPUs %v already", c.usable)
	case c.Workers != len(gpus):
		return fmt.Sprintf("%d workers have %d GPUs, and nobody knows which is whose", c.Workers, len(gpus))
	}
	return ""
}

// unpaired is why it is not known which GPU is which worker's; "": it is. Runtimes count GPUs by their place where all are of one kind.
func (c chooser) unpaired(gpus []topology.GPU) string {
	order, _ := c.Getenv("CUDA_DEVICE_ORDER")
	for _, g := range gpus {
		switch {
		case g.Vendor != "nvidia" && g.Vendor != "amd":
			return fmt.Sprintf("which GPU is whose is the choice of %s's driver, which muster does not know", g.Vendor)
		case g.PCI.Address == (topology.Address{}):
			return "the kernel does not show at which place each GPU is"
		case g.Model != gpus[0].Model && (g.Vendor != "nvidia" || order != "PCI_BUS_ID"):
			return "GPUs are of several kinds, and which is whose is their driver's choice without CUDA_DEVICE_ORDER=PCI_BUS_ID"
		}
	}
	if c.Workers > len(gpus) || c.Workers == 1 && len(gpus) > 1 {
		return fmt.Sprintf("%d workers have %d GPUs, and nobody knows which is whose", c.Workers, len(gpus))
	}
	return ""
}

// spread has workers without GPUs sit at the NUMA nodes in turn, neighbours together.
func (c chooser) spread() (seats []seat) {
	var nodes []int
	for _, n := range c.nodes {
		if len(c.usable.And(n.CPUs)) > 0 {
			nodes = append(nodes, n.ID)
		}
	}
	for i := range c.Workers {
		s := seat{-1, -1}
		if len(nodes) > 0 {
			s.node = nodes[i*len(nodes)/c.Workers]
		}
		seats = append(seats, s)
	}
	return seats
}

// place is where the worker of a local rank runs.
func (c chooser) place(seats []seat, local int) Worker {
	s := seats[local]
	w := Worker{GPU: s.gpu, Memory: -1}
	near := c.usable.And(c.Machine.CPUs(s.node))
	at := fmt.Sprintf("NUMA node %d", s.node)
	switch {
	case s.node < 0 && s.gpu < 0 && len(c.nodes) == 0 && c.Mode == Core: // a kernel without NUMA
		near, at = c.usable, "this machine"
	case s.node < 0 && s.gpu >= 0:
		w.Why = fmt.Sprintf("the kernel does not say which NUMA node GPU%d is near", s.gpu)
		return w
	case s.node < 0:
		w.Why = "the kernel does not say which CPUs are of which NUMA node"
		return w
	case len(near) == 0:
		w.Why = c.none(s.node)
		return w
	}
	w.CPUs, w.Why = c.choose(seats, local, near, at)
	if w.CPUs != nil && s.node >= 0 && c.holds(s.node) {
		w.Memory = s.node
	}
	return w
}

// none is why a node has no CPUs for us.
func (c chooser) none(node int) string {
	switch {
	case len(c.Machine.CPUs(node)) > 0:
		return fmt.Sprintf("this container may use none of the CPUs of NUMA node %d", node)
	case slices.ContainsFunc(c.Machine.Nodes, func(n topology.Node) bool { return n.ID == node }):
		return fmt.Sprintf("NUMA node %d has no CPUs", node)
	}
	return fmt.Sprintf("the kernel does not show a NUMA node %d", node)
}

// choose are the CPUs of the worker of a local rank, of those near it.
func (c chooser) choose(seats []seat, local int, near topology.CPUs, at string) (cpus topology.CPUs, why string) {
	if c.Mode == Core {
		if l := c.Machine.Limits; l.Quota > 0 && (l.Set == nil || len(l.Set) == len(c.Machine.Processor.Online)) {
			return near, fmt.Sprintf("%s; with a quota of time (%s) and no cpuset of their own, workers share CPUs", at, l.From)
		}
		return c.share(seats, local, near, at)
	}
	cpus, why = near, at
	all := rivals(seats, seats[local].node, c.Workers)
	switch idle := c.idle(seats, seats[local].node); {
	case c.Mode == Socket:
		cpus, why = c.socket(seats[local].node, func(topology.Node) bool { return true }), "the socket of "+at
	case c.Mode == Auto && idle != nil && 2*c.cores(near)*c.Workers <= c.cores(c.usable)*all:
		cpus, why = idle, at+", and those of its socket that no GPU is near"
	}
	switch n, whole := c.cores(cpus), c.cores(c.usable); {
	case n < 2 && len(cpus) < len(c.usable):
		return nil, fmt.Sprintf("this container may use %s of %s, which is too few", plural(n, "core"), at)
	case c.Mode == Auto && 2*n*c.Workers < whole*all: // near the GPU, and short of time
		return nil, fmt.Sprintf("%s of %s for %s are less than half of their part of all %d", plural(n, "core"), why, plural(all, "worker"), whole)
	}
	return cpus, why
}

// idle are the CPUs of a node and of those in its socket that no GPU is near; nil: there are none of these.
func (c chooser) idle(seats []seat, node int) topology.CPUs {
	cpus := c.socket(node, func(n topology.Node) bool {
		return n.ID == node || !slices.ContainsFunc(seats, func(s seat) bool { return s.node == n.ID })
	})
	if len(cpus) == len(c.usable.And(c.Machine.CPUs(node))) {
		return nil
	}
	return cpus
}

// socket are the usable CPUs of some nodes in the socket of one.
func (c chooser) socket(node int, of func(topology.Node) bool) (cpus topology.CPUs) {
	i := slices.IndexFunc(c.nodes, func(n topology.Node) bool { return n.ID == node })
	for _, n := range c.nodes {
		if n.ID == node || n.Package >= 0 && n.Package == c.nodes[i].Package && of(n) {
			cpus = append(cpus, n.CPUs...)
		}
	}
	slices.Sort(cpus)
	return c.usable.And(slices.Compact(cpus))
}

// rivals is how many workers sit at a node.
func rivals(seats []seat, node, workers int) (n int) {
	for _, s := range seats[:workers] {
		if s.node == node {
			n++
		}
	}
	return n
}

// roomy is from how many cores on a share leaves one of them to whatever else runs: interrupts, muster, the fabric's daemons.
const roomy = 6

// share are the CPUs of a worker alone: an equal part of the cores, with all their threads. What does not come out even is nobody's.
func (c chooser) share(seats []seat, local int, near topology.CPUs, at string) (topology.CPUs, string) {
	node := seats[local].node
	cores, all := c.split(near), rivals(seats, node, c.Workers)
	each := len(cores) / all
	if each == 0 {
		return nil, fmt.Sprintf("%s would share %s of %s", plural(all, "worker"), plural(len(cores), "core"), at)
	}
	first := each * rivals(seats[:local+1], node, local)
	mine := cores[first : first+each]
	if each >= roomy {
		mine = mine[1:]
	}
	cpus := topology.CPUs(slices.Concat(mine...))
	slices.Sort(cpus)
	return cpus, fmt.Sprintf("%d of the %d cores of %s", len(mine), len(cores), at)
}

// split are CPUs by the cores whose threads they are.
func (c chooser) split(cpus topology.CPUs) (cores [][]int) {
	rest := cpus
	for _, core := range c.Machine.Processor.Cores {
		if those := cpus.And(core.CPUs); len(those) > 0 {
			cores = append(cores, those)
			rest = slices.DeleteFunc(slices.Clone(rest), func(n int) bool { return slices.Contains(those, n) })
		}
	}
	for _, cpu := range rest { // of which the kernel does not say whose threads they are
		cores = append(cores, []int{cpu})
	}
	return cores
}

func (c chooser) cores(cpus topology.CPUs) int { return len(c.split(cpus)) }

// holds reports whether workers may have memory of a node.
func (c chooser) holds(node int) bool {
	allowed := c.Machine.Limits.Nodes
	return len(allowed) == 0 || slices.Contains(allowed, node)
}

// A worker computes with this many threads at most, and where it has room for so many leaves one to its loaders.
const (
	maxThreads  = 16
	spareThread = 8
)

// threads fills in with how many each worker may compute beside those who share its CPUs.
func (c chooser) threads(workers []Worker) {
	quota := math.MaxInt
	if q := c.Machine.Limits.Quota; q > 0 {
		quota = int(math.Ceil(q)) / max(len(workers), 1)
	}
	for i := range workers {
		mine, sharing := workers[i].CPUs, 0
		for _, o := range workers {
			if mine == nil || o.CPUs == nil || len(mine.And(o.CPUs)) > 0 {
				sharing++
			}
		}
		if mine == nil {
			mine = c.usable
		}
		n := min(c.cores(mine)/sharing, quota)
		if n >= spareThread {
			n--
		}
		workers[i].Threads = max(1, min(n, maxThreads))
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Modes are what --bind knows.
func Modes() string { return strings.Join([]string{Auto, None, Socket, NUMA, Core}, " ") }
