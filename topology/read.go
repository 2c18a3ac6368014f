package topology

// These read single files for the rooms that judge a machine, in the bounds and the manner of Probe: what is absent or cannot be
// read is "".

// Line is a file with one value.
func (r Root) Line(name string) string { return r.tree().line(name) }

// Text is a file of many lines.
func (r Root) Text(name string) string { return r.tree().text(name) }

// Names lists a directory, as people count.
func (r Root) Names(dir string) []string { return r.tree().names(dir) }

// Exists reports whether there is such a file.
func (r Root) Exists(name string) bool { return r.tree().exists(name) }

// Port is what a port's files say now; its addresses and its network device are those of before.
func (r Root) Port(h HCA, number int) Port {
	t, dir := r.tree(), portDir(h.Name, number)
	p := Port{Number: number}
	t.state(dir, &p)
	p.Why = unusable(h, p)
	p.Usable = p.Why == ""
	return p
}

// Width is how many lanes the PCIe link of a device has; 0: there is none, or nobody says.
func (r Root) Width(a Address) int {
	n, _ := r.tree().number("sys/bus/pci/devices/" + a.String() + "/current_link_width")
	return max(n, 0)
}

// CarrierDown is how often a network device lost its carrier since it is there (net-sysfs); nil: the kernel does not say, or name is "".
func (r Root) CarrierDown(name string) *int {
	if n, ok := r.tree().number("sys/class/net/" + name + "/carrier_down_count"); ok && name != "" {
		return &n
	}
	return nil
}

// Link is where a symbolic link leads, from the root; "" if it is none.
func (r Root) Link(name string) string { return r.tree().link(name) }

// Openable is "" if a process of this container can open a device node, else why not.
func (r Root) Openable(name string) string { return r.tree().device(name) }
