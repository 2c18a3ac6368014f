package discovery

import (
	"strings"

	"github.com/muster-run/muster/job"
)

// machineNames are variables in which a container is told the name of its machine: what manifests by habit call spec.nodeName of the
// downward API, and Slurm's (slurmd sets it for each node of a step).
var machineNames = []string{"NODE_NAME", "K8S_NODE_NAME", "MY_NODE_NAME", "SLURMD_NODENAME"}

// Machine tells which machine this is. The host name is a machine's only outside containers; there machine-id(5) tells apart those that
// share a name, as images of virtual machines do.
func Machine(h job.Host) job.Machine {
	m := job.Machine{Boot: line(h, "/proc/sys/kernel/random/boot_id")}
	for _, name := range machineNames {
		if m.Name = short(h.Getenv(name)); m.Name != "" {
			return m
		}
	}
	if !contained(h) {
		m.Name, m.ID = short(h.Hostname), line(h, "/etc/machine-id")
	}
	return m
}

// contained reports whether this is a container whose name need not be its machine's.
func contained(h job.Host) bool {
	if h.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		return true
	}
	for _, path := range []string{"/.dockerenv", "/run/.containerenv"} { // Docker's and Podman's mark
		if _, err := h.ReadFile(path); err == nil {
			return true
		}
	}
	return false
}

// line is a file's only line.
func line(h job.Host, path string) string {
	b, _ := h.ReadFile(path) // a container without it has none
	return short(strings.TrimSpace(string(b)))
}

// short bounds a name that becomes a part of records; a name of a host has at most 253 bytes (RFC 1123).
func short(text string) string { return text[:min(len(text), 253)] }
