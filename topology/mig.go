package topology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A MIG is one compute instance of a GPU that is cut up. Its UUID only nvidia-smi knows.
type MIG struct {
	GPUInstance, Compute int    // /proc/driver/nvidia/capabilities/gpu<minor>/mig/gi<GPUInstance>/ci<Compute>
	Device               string // /dev/nvidia-caps/nvidia-cap<minor>
	Visible              bool
	UUID                 string
}

// mig reads the instances of the GPU with a minor number. Capability nodes are made when they are first needed: where
// there is none of an instance, that they are missing says nothing.
func (t tree) mig(minor int) (all []MIG) {
	base := fmt.Sprintf("proc/driver/nvidia/capabilities/gpu%d/mig", minor)
	some := slices.ContainsFunc(t.numbered("dev/nvidia-caps", "nvidia-cap"), func(n int) bool { return n > migMonitor })
	for _, gi := range t.numbered(base, "gi") {
		dir := fmt.Sprintf("%s/gi%d", base, gi)
		for _, ci := range t.numbered(dir, "ci") {
			m := MIG{GPUInstance: gi, Compute: ci, Visible: !some}
			if n, ok := capability(t.text(fmt.Sprintf("%s/ci%d/access", dir, ci))); ok {
				node := "dev/nvidia-caps/nvidia-cap" + strconv.Itoa(n)
				m.Device, m.Visible = "/"+node, !some || t.device(node) == ""
			}
			all = append(all, m)
		}
	}
	return all
}

// migMonitor is the last node that is no instance's: 1 configures MIG, 2 watches it (/proc/driver/nvidia-caps/mig-minors). The driver's
// installation makes both on any machine.
const migMonitor = 2

// capability reads "DeviceFileMinor: 30".
func capability(access string) (minor int, ok bool) {
	for line := range strings.Lines(access) {
		if value, found := strings.CutPrefix(line, "DeviceFileMinor:"); found {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			return n, err == nil && n >= 0 && n <= maxMinor
		}
	}
	return 0, false
}
