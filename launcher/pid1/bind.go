package pid1

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/proc"
)

// bind binds this thread as the next child is to be, which inherits that, and returns what undoes it. What the kernel does not
// let us do is told, and does no harm: the child then runs where we do.
func bind(b proc.Binding, tell func(string)) (undo func()) {
	undoCPUs, err := bindCPUs(b.CPUs)
	if err != nil {
		tell(fmt.Sprintf("no worker is bound to its CPUs: %v", err))
	}
	undoMemory, err := bindMemory(b.Memory, b.Prefer)
	if err != nil { // most often a container's seccomp profile, which needs CAP_SYS_NICE for it
		tell(fmt.Sprintf("no worker is bound to the memory of a NUMA node: %v", err))
	}
	return func() {
		undoMemory()
		undoCPUs()
	}
}

func bindCPUs(cpus []int) (undo func(), err error) {
	nothing := func() {}
	if len(cpus) == 0 {
		return nothing, nil
	}
	old, set := unix.NewCPUSet(maxCPU), unix.NewCPUSet(maxCPU)
	if err := unix.SchedGetaffinityDynamic(0, old); err != nil {
		return nothing, fmt.Errorf("sched_getaffinity: %w", err)
	}
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinityDynamic(0, set); err != nil {
		return nothing, fmt.Errorf("sched_setaffinity: %w", err)
	}
	return func() { _ = unix.SchedSetaffinityDynamic(0, old) }, nil
}

// What the kernel can have of both (include/linux/threads.h, include/linux/numa.h): more CPUs and nodes than these it is not built for.
const (
	maxCPU  = 1 << 13
	maxNode = 1 << 10
)

func bindMemory(nodes []int, prefer bool) (undo func(), err error) {
	nothing := func() {}
	if len(nodes) == 0 {
		return nothing, nil
	}
	mode, set := unix.MPOL_BIND, unix.NewCPUSet(maxNode)
	if prefer {
		mode = unix.MPOL_PREFERRED
	}
	for _, node := range nodes {
		set.Set(node)
	}
	oldMode, old := int32(0), unix.NewCPUSet(maxNode)
	if _, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&oldMode)), uintptr(unsafe.Pointer(&old[0])), maxNode, 0, 0, 0); errno != 0 {
		return nothing, fmt.Errorf("get_mempolicy: %w", errno)
	}
	if err := setMemory(mode, set); err != nil {
		return nothing, fmt.Errorf("set_mempolicy: %w", err)
	}
	return func() { _ = setMemory(int(oldMode), old) }, nil
}

// setMemory is set_mempolicy(2). It is told of one bit more than there is, for the kernel looks at one less (mm/mempolicy.c, get_nodes).
func setMemory(mode int, nodes unix.CPUSetDynamic) error {
	if _, _, errno := unix.Syscall(unix.SYS_SET_MEMPOLICY, uintptr(mode), uintptr(unsafe.Pointer(&nodes[0])), maxNode+1); errno != 0 {
		return errno
	}
	return nil
}
