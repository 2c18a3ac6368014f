package topology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// CPUs is a set of CPUs, or of NUMA nodes, in order.
type CPUs []int

// maxCPU bounds numbers of CPUs; the kernel's own limit is 8192 (arch/x86/Kconfig, NR_CPUS).
const maxCPU = 1<<16 - 1

// ParseCPUs reads the kernel's list format, "0-55,112-167" (Documentation/admin-guide/cputopology.rst). An empty list is an empty set.
func ParseCPUs(list string) (CPUs, error) {
	var set CPUs
	list = strings.TrimSpace(list)
	if list == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		a, err := strconv.ParseUint(first, 10, 16)
		b := a
		if err == nil && isRange {
			b, err = strconv.ParseUint(last, 10, 16)
		}
		if err != nil || b < a || len(set)+int(b-a) > maxCPU {
			return nil, fmt.Errorf("%.80q is no list of CPUs such as 0-3,8", list)
		}
		for n := a; n <= b; n++ {
			set = append(set, int(n))
		}
	}
	slices.Sort(set)
	return slices.Compact(set), nil
}

// String is the kernel's list format.
func (c CPUs) String() string {
	var parts []string
	for i := 0; i < len(c); {
		j := i
		for j+1 < len(c) && c[j+1] == c[j]+1 {
			j++
		}
		part := strconv.Itoa(c[i])
		if j > i {
			part += "-" + strconv.Itoa(c[j])
		}
		parts, i = append(parts, part), j+1
	}
	return strings.Join(parts, ",")
}

// And is the set of those that are in both.
func (c CPUs) And(d CPUs) CPUs {
	var both CPUs
	for _, n := range c {
		if _, ok := slices.BinarySearch(d, n); ok {
			both = append(both, n)
		}
	}
	return both
}
