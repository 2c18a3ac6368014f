package topology

// nvswitches are the switches between GPUs that this kernel shows: PCI bridges of NVIDIA's of class 0x0680. None does not mean that
// there are none: a virtual machine's host keeps them, and so does a machine of NVLink 5.
func (t tree) nvswitches(devices []PCI) (all []PCI) {
	for _, p := range devices {
		if p.Vendor == vendorNVIDIA && p.sub() == 0x0680 {
			all = append(all, t.complete(p))
		}
	}
	return all
}
