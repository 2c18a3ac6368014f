package job

// Meters are what a machine counts of itself, as far as it does, of what one job trains with. What is counted grows since the adapter or the driver was
// set up, which may be long before the job.
type Meters struct {
	Ports   []PortMeter
	Devices []DeviceMeter
}

// A PortMeter is one port by which GPUs of several machines reach each other.
type PortMeter struct {
	Device string // the adapter: mlx5_0
	Port   int
	Up     bool    // it can be used
	Rate   float64 // bytes a second; 0: it is not known

	Counters map[string]uint64 // by the kernel's names; of data, in bytes
}

// A DeviceMeter is a GPU or an adapter as PCIe sees it.
type DeviceMeter struct {
	Name  string // GPU0, mlx5_0
	Place string // its address on the bus

	Speed, MaxSpeed float64           // transfers a second on each lane; 0: it is not known
	Lanes, MaxLanes int               // the same
	Errors          map[string]uint64 // by how bad they are: correctable, nonfatal, fatal

	Uncorrected *int // errors of a GPU's memory, since its driver was loaded; nil: nobody says
}
