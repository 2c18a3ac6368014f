package nccl

import (
	"encoding/xml"
	"fmt"

	"github.com/muster-run/muster/topology"
)

// The topology that NCCL reads (NVIDIA/nccl, src/graph/xml.cc). What is not in it NCCL looks for itself: the CPUs of a node, and what a
// device is.
type topoSystem struct {
	XMLName xml.Name  `xml:"system"`
	Version int       `xml:"version,attr"`
	CPUs    []topoCPU `xml:"cpu"`
}

type topoCPU struct {
	NUMA    int       `xml:"numaid,attr"`
	Devices []topoPCI `xml:"pci"`
}

type topoPCI struct {
	Bus       string    `xml:"busid,attr"`
	Class     string    `xml:"class,attr"`
	Speed     string    `xml:"link_speed,attr"`
	Width     int       `xml:"link_width,attr"`
	Vendor    string    `xml:"vendor,attr,omitempty"`
	Device    string    `xml:"device,attr,omitempty"`
	SubVendor string    `xml:"subsystem_vendor,attr,omitempty"`
	SubDevice string    `xml:"subsystem_device,attr,omitempty"`
	Below     []topoPCI `xml:"pci"`
}

// Topology is the file for NCCL_TOPO_FILE on a virtual machine that hides its PCIe switches: for each pair of a GPU and an adapter a
// switch that is invented, below the NUMA node of both. It is nil on other machines.
func Topology(m topology.Machine) []byte {
	pairs := m.Veiled()
	if pairs == nil {
		return nil
	}
	s := topoSystem{Version: 1}
	for i, p := range pairs {
		gpu, hca := m.GPUs[p.GPU].PCI, adapter(m, p.HCA)
		speed := 32.0
		if gpu.Link.MaxSpeed > 0 {
			speed = gpu.Link.MaxSpeed
		}
		device := func(p topology.PCI) topoPCI {
			return topoPCI{Bus: p.Address.String(), Class: fmt.Sprintf("0x%06x", p.Class), Speed: gts(speed), Width: 16}
		}
		between := topoPCI{
			Bus: fmt.Sprintf("ffff:ff:%02x.0", i+1), Class: "0x060400", Speed: gts(speed), Width: 16,
			Vendor: "0x0000", Device: "0x0000", SubVendor: "0x0000", SubDevice: "0x0000",
			Below: []topoPCI{device(gpu), device(hca)},
		}
		s.below(p.Node, between)
	}
	text, _ := xml.MarshalIndent(s, "", "  ") // plain values: cannot fail
	return append(text, '\n')
}

// below adds a device to a NUMA node.
func (s *topoSystem) below(node int, d topoPCI) {
	for i := range s.CPUs {
		if s.CPUs[i].NUMA == node {
			s.CPUs[i].Devices = append(s.CPUs[i].Devices, d)
			return
		}
	}
	s.CPUs = append(s.CPUs, topoCPU{NUMA: node, Devices: []topoPCI{d}})
}

func adapter(m topology.Machine, name string) topology.PCI {
	for _, h := range m.HCAs {
		if h.Name == name {
			return h.PCI
		}
	}
	return topology.PCI{}
}

func gts(speed float64) string { return fmt.Sprintf("%.1f GT/s PCIe", speed) }
