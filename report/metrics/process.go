package metrics

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-run/muster/proc"
)

// This file is what is told of muster's own two processes, by the names that Prometheus' libraries use. (Their collectors bring a client of SQL along,
// and the traffic of the whole machine as if it were the process's.)

// A process is the names of one of them.
type process struct {
	pid                        func() int
	cpu, memory, open, mayOpen metric
}

func own(name string, kind prometheus.ValueType, help string) metric {
	m := metric{prometheus.NewDesc(name, help, nil, nil), kind}
	all = append(all, m)
	return m
}

func processOf(prefix, who string, pid func() int) process {
	return process{
		pid:     pid,
		cpu:     own(prefix+"process_cpu_seconds_total", prometheus.CounterValue, "CPU time of "+who+", in seconds."),
		memory:  own(prefix+"process_resident_memory_bytes", prometheus.GaugeValue, "Resident memory of "+who+", in bytes."),
		open:    own(prefix+"process_open_fds", prometheus.GaugeValue, "File descriptors that "+who+" has."),
		mayOpen: own(prefix+"process_max_fds", prometheus.GaugeValue, "File descriptors that "+who+" may have."),
	}
}

var (
	processes  = []process{processOf("", "the agent", os.Getpid), processOf("muster_first_", "the first process, which started the agent", os.Getppid)}
	goroutines = own("go_goroutines", prometheus.GaugeValue, "Goroutines of the agent.")
	heap       = own("go_memstats_heap_alloc_bytes", prometheus.GaugeValue, "Memory of the agent's heap that is in use, in bytes.")
	fromSystem = own("go_memstats_sys_bytes", prometheus.GaugeValue, "Memory that the agent's Go runtime has of the system, in bytes.")
)

// ours tells of muster's own processes.
func (t teller) ours() {
	for _, p := range processes {
		pid := p.pid()
		if u, err := proc.Root("/proc").Usage(pid); err == nil {
			t.tell(p.cpu, u.CPU.Seconds())
			t.tell(p.memory, float64(u.Memory))
		}
		if open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
			t.tell(p.open, float64(len(open)))
		}
		if most, known := mayOpen(pid); known {
			t.tell(p.mayOpen, most)
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.tell(goroutines, float64(runtime.NumGoroutine()))
	t.tell(heap, float64(m.HeapAlloc))
	t.tell(fromSystem, float64(m.Sys))
}

// mayOpen is the soft limit of a process's file descriptors.
func mayOpen(pid int) (most float64, known bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		return 0, false
	}
	_, rest, found := strings.Cut(string(text), "Max open files")
	if !found {
		return 0, false
	}
	n, _ := fmt.Sscan(rest, &most)
	return most, n == 1
}
