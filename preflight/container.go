package preflight

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"errors"
	"io/fs"

	"github.com/muster-run/muster/topology"
)

const (
	tmpfs = 0x01021994 // TMPFS_MAGIC, include/uapi/linux/magic.h
	ramfs = 0x858458f6
)

const (
	fatalSHM  = 64 << 20 // what Docker and Kubernetes give where nobody asked for more
	smallSHM  = 1 << 30
	workerSHM = 256 << 20
)

// shm looks at /dev/shm, through which NCCL connects GPUs of a machine and PyTorch's DataLoader hands batches over.
func shm(h Host, n Need) []Finding {
	if h.Space == nil {
		return unknown("/dev/shm: this is another machine's tree")
	}
	const more = "docker: --shm-size=16g or --ipc=host; Kubernetes: an emptyDir {medium: Memory, sizeLimit: 64Gi} mounted at /dev/shm"
	const dies = "NCCL fails with \"No space left on device\", workers of DataLoader with \"bus error\""
	s, err := h.Space("/dev/shm")
	switch want := max(smallSHM, int64(n.Workers)*workerSHM); {
	case errors.Is(err, fs.ErrNotExist):
		return found(Fail, dies, more, "there is no /dev/shm")
	case err != nil:
		return unknown("%v", err)
	case s.ReadOnly:
		return found(Fail, dies, more, "/dev/shm is mounted read-only")
	case s.Type != tmpfs && s.Type != ramfs:
		return found(Warn, "memory shared between processes goes to a disk", more, "/dev/shm is no tmpfs (statfs says 0x%x)", s.Type)
	case s.Size <= fatalSHM && n.Workers > 1:
		return found(Fail, dies, more, "/dev/shm has %s, for %s", size(s.Size), plural(n.Workers, "worker"))
	case s.Size < want:
		return found(Warn, dies, more, "/dev/shm has %s, for %s", size(s.Size), plural(n.Workers, "worker"))
	case s.Free < s.Size/2:
		return found(Warn, dies, "see what is left in it: ls -l /dev/shm", "of /dev/shm's %s %s are free", size(s.Size), size(s.Free))
	default:
		return pass("/dev/shm has %s, %s free", size(s.Size), size(s.Free))
	}
}

// leftovers are files that killed jobs left in /dev/shm.
func leftovers(h Host, _ Need) []Finding {
	count := 0
	for _, name := range h.Root.Names("dev/shm") {
		for _, of := range []string{"nccl-", "torch_", "sem.mp-", "psm_"} {
			if strings.HasPrefix(name, of) {
				count++
			}
		}
	}
	if count == 0 {
		return nil
	}
	return found(Warn, "those of jobs that were killed take room until somebody deletes them", "delete those that no process has open: fuser /dev/shm/*",
		"/dev/shm holds %s of NCCL's, PyTorch's or Python's", plural(count, "file"))
}

const lowMemlock = 64 << 20

// memlock is how much memory adapters may be given access to.
func memlock(h Host, n Need) []Finding {
	if len(h.Machine.HCAs) == 0 {
		return nil
	}
	l, ok := h.limit("Max locked memory")
	const more = "docker: --ulimit memlock=-1:-1 or --cap-add=IPC_LOCK; Kubernetes: securityContext.capabilities.add: [IPC_LOCK]; Slurm: PropagateResourceLimitsExcept=MEMLOCK"
	const dies = "RDMA fails with \"Cannot allocate memory\" (ibv_reg_mr, ibv_create_cq)"
	switch {
	case !ok:
		return unknown("no line \"Max locked memory\" in /proc/self/limits")
	case l.hard == -1:
		return pass("memory may be locked without limit")
	case h.capable(ipcLock):
		return pass("memory may be locked without limit: this process has CAP_IPC_LOCK")
	case l.hard < lowMemlock:
		return found(needed(n.network(h)), dies, more, "%s of memory may be locked (ulimit -l)", size(l.hard))
	default:
		return found(Warn, "large buffers of RDMA may fail with \"Cannot allocate memory\"", more, "%s of memory may be locked (ulimit -l)", size(l.hard))
	}
}

const (
	fewFiles   = 65536
	fatalFiles = 4096
	manyNodes  = 32
)

// nofile is how many files and connections a worker may open. muster raises the soft limit to the hard one.
func nofile(h Host, n Need) []Finding {
	l, ok := h.limit("Max open files")
	const dies = "at scale NCCL fails with \"Too many open files\""
	const more = "docker: --ulimit nofile=1048576:1048576; containerd: LimitNOFILE of its service"
	switch {
	case !ok:
		return unknown("no line \"Max open files\" in /proc/self/limits")
	case l.hard != -1 && l.hard < fatalFiles && n.Nodes > manyNodes:
		return found(Fail, dies, more, "a process may open %d files, and the job has %d nodes (ulimit -Hn)", l.hard, n.Nodes)
	case l.hard != -1 && l.hard < fewFiles:
		return found(Warn, dies, more, "a process may open %d files (ulimit -Hn)", l.hard)
	case l.hard == -1:
		return pass("a process may open any number of files")
	default:
		return pass("a process may open %d files", l.hard)
	}
}

// tasks are the processes and threads that may be started.
func tasks(h Host, n Need) []Finding {
	want := int64(4096 + 512*n.Workers)
	limits := h.Machine.Limits
	most, from := limits.Tasks, limits.TasksFrom
	if l, ok := h.limit("Max processes"); ok && l.hard != -1 && (most == 0 || l.hard < most) && !h.capable(sysResource) {
		most, from = l.hard, "ulimit -u, of all this user's processes"
	}
	switch {
	case most == 0:
		return pass("no limit of processes and threads is seen")
	case most < want:
		return found(Warn, "libraries fail with \"Resource temporarily unavailable\", \"pthread_create failed\"", "Kubernetes: podPidsLimit of the kubelet; docker: --pids-limit",
			"%d processes and threads may be started (%s); %s need about %d", most, from, plural(n.Workers, "worker"), want)
	}
	return pass("%d processes and threads may be started", most)
}

const sysResource = 24 // CAP_SYS_RESOURCE, which the limit of processes does not bind

// stack is about versions of NCCL older than 2.28, which gave their threads 2 MB where it is unlimited.
func stack(h Host, _ Need) []Finding {
	if l, ok := h.limit("Max stack size"); ok && l.soft == -1 && len(h.Machine.Slots()) > 0 {
		return found(Warn, "threads of NCCL before 2.28 get stacks of 2 MB then, and may crash", "ulimit -s 8192", "the stack is unlimited")
	}
	return nil
}

const gpuRAM = 32 << 30 // a rule of thumb

// memory is what the container may take.
func memory(h Host, n Need) []Finding {
	limits := h.Machine.Limits
	if limits.Memory == 0 {
		return pass("no limit of memory is seen")
	}
	if slots := len(h.Machine.Slots()); slots > 0 && limits.Memory < int64(n.Workers)*gpuRAM {
		return found(Warn, "a checkpoint that is loaded may have the container killed (exit code 137)", "raise resources.limits.memory; /dev/shm counts, too",
			"%s of memory for %s with a GPU each (%s)", size(limits.Memory), plural(n.Workers, "worker"), limits.MemoryFrom)
	}
	return pass("%s of memory (%s)", size(limits.Memory), limits.MemoryFrom)
}

// quota is the CPU time that the container may take.
func quota(h Host, n Need) []Finding {
	limits := h.Machine.Limits
	cpus := limits.Usable(h.Machine.Processor.Online)
	const halts = "workers stand still for up to 100 ms at a time once the quota is used up, and all others wait for them"
	const more = "Kubernetes: whole CPUs with requests equal to limits, or no limit of CPU"
	each := limits.Quota / float64(n.Workers)
	switch {
	case limits.Quota == 0 && len(cpus) > 0 && len(cpus) < n.Workers:
		return found(Warn, "workers take turns", "give the container as many CPUs as workers", "%s for %s", plural(len(cpus), "CPU"), plural(n.Workers, "worker"))
	case limits.Quota == 0:
		return pass("no quota of CPU time; %s", plural(len(cpus), "CPU"))
	case each < 1:
		return found(needed(len(h.Machine.Slots()) > 0), halts, more, "the time of %.4g CPUs for %s (%s)", limits.Quota, plural(n.Workers, "worker"), limits.From)
	case each < 4 && len(h.Machine.Slots()) > 0:
		return found(Warn, halts, more, "the time of %.4g CPUs for %s (%s)", limits.Quota, plural(n.Workers, "worker"), limits.From)
	default:
		return pass("the time of %.4g CPUs (%s)", math.Floor(limits.Quota*100)/100, limits.From)
	}
}

// cpuset compares the CPUs that this container may use with those near its GPUs.
func cpuset(h Host, _ Need) []Finding {
	m := h.Machine
	usable := m.Limits.Usable(m.Processor.Online)
	gpus := slices.DeleteFunc(slices.Clone(m.GPUs), func(g topology.GPU) bool { return !g.Visible })
	if len(gpus) > 0 && len(usable) == 0 {
		return unknown("which CPUs this container may use is not shown")
	}
	var all []Finding
	var nowhere []string
	for _, g := range gpus {
		near := m.Near(g.PCI)
		if g.PCI.NUMA < 0 || len(near) == 0 {
			nowhere = append(nowhere, gpuName(g.Index))
			continue
		}
		have, share := near.And(usable), ""
		if len(near) < 2 || len(have) >= 2 && !scant(m, near, usable, atNode(gpus, g.PCI.NUMA), len(gpus)) {
			continue
		}
		if len(have) >= 2 {
			share = fmt.Sprintf(", for %s: less than half of their part", plural(atNode(gpus, g.PCI.NUMA), "GPU"))
		}
		all = append(all, found(Warn, "its worker runs on the other socket, and every copy crosses between them",
			"Kubernetes: Topology Manager's policy best-effort or restricted with the whole machine",
			"%s is on NUMA node %d, of whose CPUs this container may use %s%s", gpuName(g.Index), g.PCI.NUMA, none(have.String()), share)...)
	}
	switch {
	case len(nowhere) > 0 && len(m.Nodes) != 1: // on a machine of one node the kernel need not say
		all = append(all, unknown("the NUMA node of %s, or its CPUs, are not shown", some(nowhere))...)
	case len(nowhere) > 0 && len(all) == 0:
		return pass("the machine has one NUMA node")
	case len(all) == 0 && len(m.Slots()) > 0:
		return pass("each GPU has CPUs of its own NUMA node")
	}
	return all
}

// scant reports whether the usable ones of the CPUs near some of all GPUs are less than half of those GPUs' part, and it is the cpuset that makes them
// so, not the machine.
func scant(m topology.Machine, near, usable topology.CPUs, some, all int) bool {
	have := len(near.And(usable))
	return 2*have*all < len(usable)*some && 2*have*len(m.Processor.Online) < len(near)*len(usable)
}

// atNode is how many GPUs are.
func atNode(gpus []topology.GPU, node int) (n int) {
	for _, g := range gpus {
		if g.PCI.NUMA == node {
			n++
		}
	}
	return n
}

func none(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

func gpuName(index int) string { return fmt.Sprintf("GPU%d", index) }

// numaBalancing moves pages after the threads that use them, by taking them away for a moment.
func numaBalancing(h Host, _ Need) []Finding {
	switch h.Root.Line("proc/sys/kernel/numa_balancing") {
	case "1":
		if len(h.Machine.Nodes) < 2 {
			return nil
		}
		return found(Warn, "the kernel takes pages away for a moment to see who uses them: ranks stutter, most of all on Grace",
			"on the host: sysctl kernel.numa_balancing=0", "kernel.numa_balancing is 1 on a machine of %d NUMA nodes", len(h.Machine.Nodes))
	case "":
		return unknown("kernel.numa_balancing is not shown")
	}
	return pass("kernel.numa_balancing is off")
}

const lowDisk = 1 << 30

// disk is room where the job will write.
func disk(h Host, n Need) (all []Finding) {
	if h.Space == nil {
		return nil
	}
	for _, dir := range append([]string{os.TempDir()}, n.Dirs...) {
		at := dir
		s, err := h.Space(at)
		for errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at) { // it will be made
			at = filepath.Dir(at)
			s, err = h.Space(at)
		}
		switch {
		case err != nil:
			all = append(all, unknown("%v", err)...)
		case s.ReadOnly:
			all = append(all, found(needed(dir != os.TempDir()), "nothing can be written there", "mount a volume there", "%s is read-only", dir)...)
		case s.Free < lowDisk:
			all = append(all, found(Warn, "writing fails once that is full", "make room, or name another directory", "%s has %s free", dir, size(s.Free))...)
		default:
			all = append(all, pass("%s has %s free", dir, size(s.Free))...)
		}
	}
	return all
}
