// Package nccl chooses the environment of NCCL, and of what else finds its networks by itself, for a machine and a world. Every choice has its
// reason and its source, and what a user or an administrator has set stays.
package nccl

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/topology"
)

// Given is all that a choice rests on.
type Given struct {
	Machine   topology.Machine
	Getenv    func(name string) (string, bool) // of the environment that workers will get
	Container Container
	World     World
	TopoFile  string // where a topology is, or will be, written for NCCL to read; "": nowhere
	Logs      string // the directory of this run's log files; "": there are none
	Sealed    bool   // the container's seccomp filter denies calls that place memory on NUMA nodes
}

// A World is what is known of the nodes that train together.
type World struct {
	Nodes    int
	Route    string     // the network interface by which this node reaches the one that all others reach, too; "": not known
	Unrouted string     // why not
	Own      string     // why Gloo would announce an address of the loopback device, going by this machine's own name; "": it would not
	Peers    []job.Node // all of them, with their rails; nil: all are taken to be like this one
	Rails    string     // what is done where they differ
}

// A Setting is one variable for workers.
type Setting struct {
	Name, Value string
	Why         string // a sentence for people
	Source      string // where that is known from
}

// A Kept variable is one that a user or an administrator has set, and that stays as it is.
type Kept struct {
	Name, Value string
	From        string // the environment, or a file
	Would       string // what would have been set; "": nothing, or the same
}

// A Choice is what workers get.
type Choice struct {
	Set   []Setting
	Kept  []Kept
	Left  []string // what was left alone though it may matter, and why
	Notes []string // what a person should know: what is broken, and what others have set that hurts
}

// Choose asks each rule in turn.
func Choose(g Given) Choice {
	f := newFacts(g)
	var c Choice
	left := map[string][]string{} // reason → names
	for _, r := range rules {
		if !f.fits(r.needs) {
			continue
		}
		value, why := r.choose(f)
		old, from, set := f.set(r.name)
		switch {
		case set && value != old:
			c.Kept = append(c.Kept, Kept{r.name, old, from, value})
		case set:
			c.Kept = append(c.Kept, Kept{r.name, old, from, ""})
		case value != "":
			c.Set = append(c.Set, Setting{r.name, value, why, r.source})
		case why != "":
			left[why] = append(left[why], r.name)
		}
	}
	for _, why := range slices.Sorted(maps.Keys(left)) {
		c.Left = append(c.Left, strings.Join(left[why], ", ")+": not set, for "+why)
	}
	switch {
	case f.vendor == "":
	case f.alarm:
		c.Notes = append(c.Notes, f.vendor)
	default:
		c.Left = append(c.Left, f.vendor)
	}
	if _, _, set := f.set("NCCL_MNNVL_ENABLE"); !set && f.fits(sockets) && f.unchanneled() {
		c.Notes = append(c.Notes, "training goes by the adapters, and not by NVLink, to the machines of this rack: the container has no channel of IMEX (/dev/nvidia-caps-imex-channels/channel0); on Kubernetes a ComputeDomain gives it one")
	}
	c.Notes = append(c.Notes, f.broken()...)
	c.Notes = append(c.Notes, f.lint()...)
	return c
}

// facts are what rules ask for, found once.
type facts struct {
	Given
	gpus      []topology.GPU // that this container may use
	rails     []topology.Rail
	transport string
	platform  string
	vendor    string // who chooses for the fabric in our place, as a sentence; "": nobody
	alarm     bool   // that sentence asks for something
}

func newFacts(g Given) *facts {
	f := &facts{Given: g, gpus: g.Machine.Slots(), rails: g.Machine.Compute(), transport: g.Machine.Transport(), platform: g.Machine.Platform()}
	sortRails(f.rails)
	f.vendor, f.alarm = f.handsOff()
	return f
}

// set is a variable's value and who set it, as NCCL will see it. An empty one counts: NCCL, too, takes it for set.
func (f *facts) set(name string) (value, from string, ok bool) {
	if value, ok = f.Getenv(name); ok {
		return value, "the environment", true
	}
	for _, file := range f.Container.Files {
		if value, ok = file.Values[name]; ok {
			return value, file.Name, true
		}
	}
	return "", "", false
}

// A need is where a rule has anything to say.
type need int

const (
	several need = iota // nodes
	gpus                // that NCCL or RCCL uses
	sockets             // GPUs on several nodes
	fabric              // the same, with adapters for RDMA that NCCL's own transport uses
)

func (f *facts) fits(n need) bool {
	switch n {
	case several:
		return f.World.Nodes > 1
	case gpus:
		return f.collective()
	case sockets:
		return f.collective() && f.World.Nodes > 1
	}
	return f.collective() && f.World.Nodes > 1 && f.vendor == "" && (f.transport == "ib" || f.transport == "roce")
}

// collective reports whether workers train by NCCL, or AMD's RCCL, which reads the same variables.
func (f *facts) collective() bool {
	return len(f.gpus) > 0 && (f.gpus[0].Vendor == "nvidia" || f.gpus[0].Vendor == "amd")
}

// cloud reports whether the machine is of a platform, or of a family of it.
func (f *facts) cloud(name string) bool {
	return f.platform == name || strings.HasPrefix(f.platform, name+"-")
}

// before reports whether the library is known to be NCCL and older than a version. One that is not known counts as new, for what old ones
// need hurts new ones.
func (f *facts) before(major, minor, patch int) bool {
	return f.gpus[0].Vendor == "nvidia" && f.Container.Version != Version{} && f.Container.Version.Compare(Version{major, minor, patch}) < 0
}

// list is some of many names.
func list(names []string) string {
	const most = 4
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
