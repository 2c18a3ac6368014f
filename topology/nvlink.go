package topology

// boards are NVIDIA's GPUs that are soldered to a board on which each of them has NVLink to all others. Which links a PCIe card has, and
// those of V100, in which not all are neighbours, only nvidia-smi knows.
var boards = map[uint16]bool{
	0x20b0: true, 0x20b2: true, 0x20bd: true, 0x20f3: true, // A100, A800 SXM4
	0x2330: true, 0x2324: true, 0x2329: true, 0x232c: true, 0x2335: true, // H100, H800, H20, H200 SXM5
	0x2901: true, 0x2941: true, // B200, GB200
}

// nvlinked joins the GPUs that are on such a board. No file says so; what nvidia-smi says takes its place.
func nvlinked(gpus []GPU) {
	on := func(g GPU) bool {
		return g.Vendor == "nvidia" && g.PCI.Vendor == vendorNVIDIA && boards[g.PCI.Device] && len(g.MIG) == 0 // an instance has no NVLink
	}
	for i := range gpus {
		for _, to := range gpus {
			if on(gpus[i]) && on(to) && to.Index != gpus[i].Index && to.PCI.Device == gpus[i].PCI.Device {
				gpus[i].Links = append(gpus[i].Links, Peer{Index: to.Index, Kind: "nvlink"})
			}
		}
	}
}
