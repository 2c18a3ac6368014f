// Package topology reads a machine's accelerators, adapters, NUMA nodes and the PCI tree between them from what its kernel says.
// It describes; what follows from that is for others to say.
package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// A Machine is what a node brings. That it has none of something is an ordinary answer.
type Machine struct {
	DMI        DMI
	Processor  Processor
	Nodes      []Node
	Limits     Limits
	NVIDIA     NVIDIA
	GPUs       []GPU // by PCI address; those that this container may not use, too
	NVSwitches []PCI
	HCAs       []HCA // by name; all of the machine
	Nets       []Net // of this network namespace
	PCI        []PCI // every function, with its class and place alone
	// Hidden says why a machine that has an accelerator's driver shows no accelerator to this container; else "".
	Hidden string
	// Unknown says what could not be read, and why.
	Unknown []string
}

// Probe reads the machine under r. Only a root that is none is an error: files that are missing or unreadable make for a machine
// of which less is known.
func Probe(r Root) (Machine, error) {
	if info, err := os.Stat(string(r)); err != nil {
		return Machine{}, err
	} else if !info.IsDir() {
		return Machine{}, &fs.PathError{Op: "read a machine from", Path: string(r), Err: syscall.ENOTDIR}
	}
	return probe(r.tree()), nil
}

func probe(t tree) Machine {
	m := Machine{DMI: t.dmi(), Processor: t.processor(), Nodes: t.nodes(), Limits: t.limits(), NVIDIA: t.driverNVIDIA(), Nets: t.nets(), PCI: t.pci()}
	m.GPUs = t.gpus(m.PCI)
	m.NVSwitches = t.nvswitches(m.PCI)
	m.HCAs = t.hcas(m.PCI, m.Nets)
	m.Hidden = hidden(m.GPUs)
	m.Unknown = *t.notes
	return m
}

// Slots are the places for workers: each GPU that this container may use, or each instance of it where it is cut up.
func (m Machine) Slots() (slots []GPU) {
	for _, g := range m.GPUs {
		if !g.Visible {
			continue
		}
		if len(g.MIG) == 0 {
			slots = append(slots, g)
			continue
		}
		for _, i := range g.MIG {
			if i.Visible {
				one := g
				one.MIG, one.UUID = []MIG{i}, i.UUID
				slots = append(slots, one)
			}
		}
	}
	return slots
}

// CPUs are those of a NUMA node; nil if it has none or is not known.
func (m Machine) CPUs(node int) CPUs {
	for _, n := range m.Nodes {
		if n.ID == node {
			return n.CPUs
		}
	}
	return nil
}

// Near are the CPUs near a device, as the kernel lists them for it, else as its NUMA node has them.
func (m Machine) Near(p PCI) CPUs {
	if len(p.CPUs) > 0 {
		return p.CPUs
	}
	return m.CPUs(p.NUMA)
}

// errEmpty is for answers of programs that say nothing.
var errEmpty = errors.New("it said nothing")

// quote shortens a text of others for a message.
func quote(text string) string { return fmt.Sprintf("%.120q", strings.TrimSpace(text)) }
