package witness

import (
	"math"
	"strconv"
	"strings"
)

// NVLinkSMI is the command whose output NVLinks reads: for each link what it carried of data, without what the protocol adds. Such counters
// stand in no file of the kernel's. SMILimit counts for it, too.
func NVLinkSMI() []string { return []string{"nvidia-smi", "nvlink", "-gt", "d"} }

// NVLinks reads the output of NVLinkSMI: the bytes that all links of each GPU have carried both ways, by UUID. Where there are no links, or
// no counters of them, it is empty: no error, for many machines are such.
//
//	GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5a1b…)
//		 Link 0: Data Tx: 19241022 KiB
//		 Link 0: Data Rx: 19255516 KiB
func NVLinks(output []byte) map[string]uint64 {
	carried, gpu := map[string]uint64{}, ""
	for line := range strings.Lines(string(output)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "GPU ") {
			gpu = uuidIn(line)
		}
		if n, ok := linkBytes(line); ok && gpu != "" && (len(carried) < maxGPUs || carried[gpu] > 0) {
			carried[gpu] = plus(carried[gpu], n)
		}
	}
	return carried
}

// uuidIn is the UUID in a GPU's line; "": it says none.
func uuidIn(line string) string {
	_, uuid, _ := strings.Cut(line, "(UUID: ")
	uuid, _, closed := strings.Cut(uuid, ")")
	if !closed {
		return ""
	}
	return uuid
}

// linkBytes reads a line such as "Link 0: Data Tx: 19241022 KiB".
func linkBytes(line string) (uint64, bool) {
	link, rest, _ := strings.Cut(line, ": Data ")
	way, figure, _ := strings.Cut(rest, ": ")
	digits, kib := strings.CutSuffix(figure, " KiB")
	n, err := strconv.ParseUint(digits, 10, 64)
	return min(n, math.MaxUint64>>10) << 10, strings.HasPrefix(link, "Link ") && (way == "Tx" || way == "Rx") && kib && err == nil
}

// plus is a sum that ends at the greatest number.
func plus(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}
