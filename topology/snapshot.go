package topology

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A snapshot is being written: the description of a machine in the grammar of package fixture.
type snapshot struct {
	t    tree
	m    Machine
	w    *bufio.Writer
	done map[string]bool   // PCI functions and host bridges that are described
	mask map[string]string // what is put in place of numbers that tell one machine from all others; nil: nothing is
}

// Snapshot writes the machine under r as a text from which package fixture makes a tree in which the same is found. With mask, ids of GPUs,
// GUIDs, addresses and asset tags are replaced by invented ones.
func (r Root) Snapshot(w io.Writer, name string, mask bool) error {
	m, err := Probe(r)
	if err != nil {
		return err
	}
	s := snapshot{t: r.tree(), m: m, w: bufio.NewWriter(w), done: map[string]bool{}}
	if mask {
		s.mask = map[string]string{}
	}
	s.line("machine %s", name)
	s.line("source muster probe --snapshot")
	s.firmware()
	s.processors()
	s.devices()
	s.adapters()
	s.networks()
	s.kfd()
	s.files()
	s.expect()
	return s.w.Flush()
}

// line writes one line; errors stay in the writer until Flush.
func (s *snapshot) line(format string, args ...any) { fmt.Fprintf(s.w, format+"\n", args...) }

// quoted is a text as one word of the description.
func quoted(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\\n`).Replace(text) + `"`
}

// file writes a file of the tree, if the machine has it.
func (s *snapshot) file(name string) {
	if text := strings.TrimSpace(s.t.text(name)); text != "" {
		s.put(name, text)
	}
}

func (s *snapshot) put(name, text string) { s.line("file %s %s", name, quoted(text)) }

// hide is a text as it may be shown: the same one always becomes the same.
func (s *snapshot) hide(text string, invent func(n int) string) string {
	if s.mask == nil || text == "" {
		return text
	}
	if _, ok := s.mask[text]; !ok {
		s.mask[text] = invent(len(s.mask) + 1)
	}
	return s.mask[text]
}

func (s *snapshot) firmware() {
	d := s.m.DMI
	tag := d.ChassisTag
	if tag != azureTag && tag != "OracleCloud.com" && tag != "HUAWEICLOUD" { // those tell a cloud, others a machine
		tag = s.hide(tag, func(n int) string { return fmt.Sprintf("tag-%d", n) })
	}
	for _, f := range [][2]string{
		{"sys_vendor", d.Vendor}, {"product_name", d.Product}, {"product_family", d.Family}, {"product_version", d.Version}, {"board_vendor", d.BoardVendor},
		{"board_name", d.Board}, {"chassis_vendor", d.ChassisVendor}, {"chassis_asset_tag", tag}, {"bios_vendor", d.BIOS},
	} {
		if f[1] != "" {
			s.line("dmi %s %s", f[0], quoted(f[1]))
		}
	}
}

func (s *snapshot) processors() {
	p := s.m.Processor
	var pairs []string
	for _, c := range p.Cores {
		if len(c.CPUs) == 2 {
			pairs = append(pairs, fmt.Sprintf("%d,%d", c.CPUs[0], c.CPUs[1]))
		}
	}
	s.line("cpu online=%s smt_offset=0 smt_pairs=%s vendor=%s family=0 model=0 name=%s", p.Online, quoted(strings.Join(pairs, " ")), quoted(p.Vendor), quoted(p.Model))
	for _, n := range s.m.Nodes {
		cpus, far := n.CPUs.String(), []string{}
		if cpus == "" {
			cpus = "-"
		}
		for _, d := range n.Distance {
			far = append(far, strconv.Itoa(d))
		}
		s.line("node %d cpus=%s mem=%d dist=%s", n.ID, cpus, n.Memory>>20, quoted(strings.Join(far, " ")))
		if n.Memory%(1<<20) != 0 {
			s.put(nodeFile(n.ID, "meminfo"), fmt.Sprintf("Node %d MemTotal: %d kB", n.ID, n.Memory>>10))
		}
	}
	for _, c := range p.Cores {
		for _, n := range c.CPUs {
			s.file(fmt.Sprintf("%s/cpu%d/topology/physical_package_id", cpuDir, n))
			if len(c.CPUs) > 2 {
				s.file(fmt.Sprintf("%s/cpu%d/topology/thread_siblings_list", cpuDir, n))
			}
		}
	}
	if p.Virtual {
		s.put("proc/cpuinfo", fmt.Sprintf("vendor_id\t: %s\nmodel name\t: %s\nflags\t\t: hypervisor", p.Vendor, p.Model))
	}
}

// devices writes the PCI functions that matter, and the bridges above them.
func (s *snapshot) devices() {
	for _, g := range s.m.GPUs {
		s.pci(g.PCI.Address)
		s.gpu(g)
	}
	for i, p := range s.m.NVSwitches {
		s.pci(p.Address)
		if s.t.exists("proc/driver/nvidia-nvswitch/devices/" + p.Address.String()) {
			s.line("nvswitch %s n=%d", p.Address, i)
		}
	}
	for _, h := range s.m.HCAs {
		s.pci(h.PCI.Address)
	}
	for _, n := range s.m.Nets {
		s.pci(n.Address)
	}
}

// pci writes the function at an address, if there is one.
func (s *snapshot) pci(a Address) {
	if a != (Address{}) {
		s.function(a)
	}
}

// function writes a function after what is above it.
func (s *snapshot) function(a Address) {
	i := slices.IndexFunc(s.m.PCI, func(p PCI) bool { return p.Address == a })
	if i < 0 || s.done[s.m.PCI[i].name()] || !hostBridge(s.m.PCI[i].Path[0]) {
		return
	}
	p := s.t.complete(s.m.PCI[i])
	parent := strings.TrimPrefix(p.Path[0], "pci")
	if !s.done[parent] {
		s.line("root %s numa=%d", parent, p.NUMA)
		s.done[parent] = true
	}
	if above := p.Bridges(); len(above) > 0 {
		if b, err := ParseAddress(above[len(above)-1]); err == nil {
			s.function(b)
			parent = PCI{Address: b}.name()
		}
	}
	s.done[p.name()] = true
	dir := pciDevices + "/" + p.name()
	driver := ""
	if p.Driver != "" {
		driver = " driver=" + p.Driver
	}
	s.line("pci %s parent=%s class=0x%06x id=%04x:%04x sub=%04x:%04x cur=%s max=%s numa=%d%s%s", p.name(), parent, p.Class, p.Vendor, p.Device, p.SubVendor, p.SubType,
		attached(p.Link.Speed, p.Link.Width), attached(p.Link.MaxSpeed, p.Link.MaxWidth), p.NUMA, driver, s.drm(dir))
	s.file(dir + "/local_cpulist")
	s.file(dir + "/product_name")
	if p.Virtual {
		s.line("link %s/physfn %s", dir, s.t.link(dir+"/physfn"))
	}
}

func attached(speed float64, width int) string {
	if speed == 0 {
		return fmt.Sprintf("Unknown/%d", width)
	}
	return fmt.Sprintf("%.1f/%d", speed, width)
}

// drm are the device nodes of a GPU that are in this container.
func (s *snapshot) drm(dir string) string {
	nodes := slices.DeleteFunc(s.t.names(dir+"/drm"), func(name string) bool { return !s.t.exists("dev/dri/" + name) })
	if len(nodes) == 0 {
		return ""
	}
	return " drm=" + strings.Join(nodes, ",")
}

func (s *snapshot) gpu(g GPU) {
	information := path.Join(nvidiaGPUs, g.PCI.Address.String(), "information")
	c := parseCard(s.t.text(information))
	uuid := s.hide(g.UUID, func(n int) string { return fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", n) })
	switch {
	case g.Vendor == "nvidia" && c.minor >= 0 && g.Visible:
		s.line("gpu %s minor=%d uuid=%s model=%s", g.PCI.Address, c.minor, quoted(uuid), quoted(g.Model))
	case g.Vendor == "nvidia" && g.PCI.Address != (Address{}) && s.t.exists(information): // no node: what the line gpu makes would be too much
		s.put(information, fmt.Sprintf("Model: %s\nGPU UUID: %s\nDevice Minor: %d\nGPU Excluded: %s", c.model, uuid, c.minor, map[bool]string{true: "Yes", false: "No"}[c.excluded]))
		fallthrough
	default:
		if g.Device != "" && s.t.exists(g.Device[1:]) {
			s.put(g.Device[1:], "")
		}
	}
	for _, i := range g.MIG {
		s.file(fmt.Sprintf("proc/driver/nvidia/capabilities/gpu%d/mig/gi%d/ci%d/access", c.minor, i.GPUInstance, i.Compute))
		if i.Device != "" && s.t.exists(i.Device[1:]) {
			s.put(i.Device[1:], "")
		}
	}
}

func (s *snapshot) adapters() {
	for i, h := range s.m.HCAs {
		if !s.done[h.PCI.Address.String()] {
			s.line("# %s is at no PCI function that is known", h.Name)
			continue
		}
		number, absent := strings.TrimPrefix(h.Device, "/dev/infiniband/uverbs"), ""
		if number == "" {
			number = strconv.Itoa(maxPorts + i)
		}
		if h.Why != "" {
			absent = " node=absent"
		}
		dir := path.Join(rdma, h.Name)
		s.line("hca %s pci=%s hca_type=%s fw=%s board=%s node_guid=%s uverbs=%s node_type=%s%s", h.Name, h.PCI.Address, none(h.Type), none(h.Firmware), none(h.Board),
			s.hideGUID(none(h.GUID)), number, quoted(none(s.t.line(dir+"/node_type"))), absent)
		for _, p := range h.Ports {
			s.port(dir, h, p)
		}
	}
}

func (s *snapshot) port(dir string, h HCA, p Port) {
	dir = fmt.Sprintf("%s/ports/%d/", dir, p.Number)
	raw := func(name string) string { return quoted(s.t.line(dir + name)) }
	s.line("port %s %d state=%s phys=%s rate=%s layer=%s lid=%s sm_lid=%s cap=%s down=%s recov=%s sym=%s", h.Name, p.Number, raw("state"), raw("phys_state"), raw("rate"), raw("link_layer"),
		raw("lid"), raw("sm_lid"), raw("cap_mask"), raw("counters/link_downed"), raw("counters/link_error_recovery"), raw("counters/symbol_error"))
	for _, g := range p.GIDs {
		s.line("gid %s %d %d %s %s %s", h.Name, p.Number, g.Index, s.hideGID(g), quoted(none(g.Type)), none(g.Net))
	}
}

func none(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func (s *snapshot) hideGUID(text string) string {
	if strings.Trim(text, "0:-") == "" {
		return text
	}
	return s.hide(text, func(n int) string { return fmt.Sprintf("0000:0000:0000:%04x", n) })
}

// hideGID invents an address of the same kind.
func (s *snapshot) hideGID(g GID) string {
	return s.hide(g.Text(), func(n int) string {
		b := g.Addr.As16()
		if g.Addr.Is4In6() {
			binary.BigEndian.PutUint16(b[14:], uint16(n))
			if routed(g.Addr) {
				b[12], b[13] = 10, 0
			}
		} else {
			binary.BigEndian.PutUint64(b[8:], uint64(n))
		}
		return netip.AddrFrom16(b).StringExpanded()
	})
}

func (s *snapshot) networks() {
	for _, n := range s.m.Nets {
		at, master, speed := none(n.Address.String()), "", -1
		if !s.done[n.Address.String()] {
			at = "-"
		}
		if slices.ContainsFunc(s.m.Nets, func(o Net) bool { return o.Name == n.Master }) {
			master = " master=" + n.Master
		}
		if n.Speed > 0 {
			speed = n.Speed
		}
		hardware := s.hide(n.Hardware, func(i int) string { return fmt.Sprintf("02:00:00:00:%02x:%02x", i>>8&0xff, i&0xff) })
		s.line("net %s pci=%s type=%d state=%s speed=%d mtu=%d addr=%s dev_port=%d%s", n.Name, at, n.Type, none(n.State), speed, n.MTU, none(hardware), n.Port, master)
	}
}

// kfd writes AMD's compute driver's nodes and links.
func (s *snapshot) kfd() {
	for _, n := range s.t.numbered(kfdNodes, "") {
		dir := fmt.Sprintf("%s/%d", kfdNodes, n)
		var words []string
		for line := range strings.Lines(s.t.text(dir + "/properties")) {
			key, value, ok := strings.Cut(strings.TrimSpace(line), " ")
			if (key == "unique_id" || key == "hive_id") && value != "0" { // of a card, of those that xGMI joins
				value = s.hide(value, strconv.Itoa)
			}
			if ok {
				words = append(words, key+"="+quoted(value))
			}
		}
		s.line("kfd %d %s gpu_id=%s name=%s", n, strings.Join(words, " "), none(s.t.line(dir+"/gpu_id")), quoted(none(s.t.line(dir+"/name"))))
		for _, l := range s.t.numbered(dir+"/io_links", "") {
			p := parseProperties(s.t.text(fmt.Sprintf("%s/io_links/%d/properties", dir, l)))
			s.line("kfdlink %d %d type=%d to=%d weight=%d max_bandwidth=%d", n, l, p["type"], p["node_to"], p["weight"], p["max_bandwidth"])
		}
	}
}

// files writes what has no words of its own.
func (s *snapshot) files() {
	for _, name := range []string{
		"proc/driver/nvidia/version", "sys/module/nvidia_peermem/version", "sys/module/amdgpu/version", "sys/kernel/mm/memory_peers/nv_mem/version",
		"sys/kernel/mm/memory_peers/nvidia-peermem/version", "sys/kernel/mm/memory_peers/amdkfd/version", "proc/sys/kernel/numa_balancing",
	} {
		s.file(name)
	}
	if s.t.exists("dev/kfd") {
		s.put("dev/kfd", "")
	}
	for _, n := range s.m.NVIDIA.IMEX {
		s.put(fmt.Sprintf("dev/nvidia-caps-imex-channels/channel%d", n), "")
	}
	l := s.m.Limits
	if l.CPUs != nil {
		s.put("proc/self/status", fmt.Sprintf("Cpus_allowed_list:\t%s\nMems_allowed_list:\t%s", l.CPUs, l.Nodes))
	}
	if l.Set != nil {
		s.put("sys/fs/cgroup/cpuset.cpus.effective", l.Set.String())
	}
	if l.Quota > 0 {
		s.put("sys/fs/cgroup/cpu.max", fmt.Sprintf("%.0f 100000", l.Quota*100000))
	}
}

// expect writes what a test of this machine should find.
func (s *snapshot) expect() {
	compute := strings.Join(Names(s.m.Compute()), ",")
	if s.m.Transport() == "efa" {
		compute = ""
	}
	s.line("expect platform=%s compute_hcas=%s nvswitches=%d transport=%s", s.m.Platform(), quoted(compute), len(s.m.NVSwitches), s.m.Transport())
	for _, a := range s.m.Affinity() {
		p := s.m.GPUs[a.GPU].PCI
		s.line("expect gpu=%d bdf=%s numa=%d nics=%s rel=%s", a.GPU, p.Address, p.NUMA, quoted(strings.Join(Names(a.Rails), ",")), a.Relation)
	}
}
