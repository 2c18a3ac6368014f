package topology

import (
	"strconv"
	"strings"
)

// PortCounters are the files of a port that are counters of interest while a job runs: counters/ of all drivers of InfiniBand, hw_counters/ of mlx5 and
// efa. Each file that is there has a name of its own.
var PortCounters = []string{
	"counters/port_xmit_data", "counters/port_rcv_data", "counters/port_xmit_packets", "counters/port_rcv_packets", "counters/port_xmit_wait",
	"counters/link_downed", "counters/link_error_recovery", "counters/symbol_error", "counters/local_link_integrity_errors", "counters/excessive_buffer_overrun_errors",
	"counters/port_rcv_errors", "counters/port_rcv_remote_physical_errors", "counters/port_rcv_constraint_errors",
	"counters/port_xmit_discards", "counters/port_xmit_constraint_errors",
	"hw_counters/out_of_sequence", "hw_counters/packet_seq_err", "hw_counters/implied_nak_seq_err", "hw_counters/duplicate_request",
	"hw_counters/local_ack_timeout_err", "hw_counters/rnr_nak_retry_err", "hw_counters/out_of_buffer", "hw_counters/rx_icrc_encapsulated",
	"hw_counters/roce_adp_retrans", "hw_counters/roce_slow_restart",
	"hw_counters/np_cnp_sent", "hw_counters/np_ecn_marked_roce_packets", "hw_counters/rp_cnp_handled", "hw_counters/rp_cnp_ignored",
	"hw_counters/tx_bytes", "hw_counters/rx_bytes", "hw_counters/tx_pkts", "hw_counters/rx_pkts", "hw_counters/rx_drops", // of EFA
	"hw_counters/retrans_pkts", "hw_counters/retrans_timeout_events", "hw_counters/unresponsive_remote_events", "hw_counters/impaired_remote_conn_events",
}

// words4 are counters in words of four bytes (InfiniBand specification, PortCountersExtended).
var words4 = map[string]bool{"port_xmit_data": true, "port_rcv_data": true}

// PortCounts reads these files of a port, and returns them by their names, and which of them can be read: on some adapters each read of one that cannot
// leaves a line in the host's kernel log (prometheus/node_exporter, issue 3434), so nobody should try again.
func (r Root) PortCounts(hca string, port int, files []string) (counts map[string]uint64, readable []string) {
	counts = map[string]uint64{}
	for _, file := range files {
		n, err := strconv.ParseUint(r.Line(portDir(hca, port)+"/"+file), 10, 64)
		if err != nil { // "N/A (no PMA)", or it is not there
			continue
		}
		_, name, _ := strings.Cut(file, "/")
		if words4[name] {
			n *= 4
		}
		counts[name], readable = n, append(readable, file)
	}
	return counts, readable
}

// PCIeLink is how a device is attached now.
func (r Root) PCIeLink(a Address) Link { return r.tree().pcieLink(pciDevices + "/" + a.String()) }

// PCIeErrors are what PCIe counts of a device (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats), by how bad they are; empty: nothing counts.
func (r Root) PCIeErrors(a Address) map[string]uint64 {
	counts := map[string]uint64{}
	for kind, sum := range map[string]string{"correctable": "COR", "nonfatal": "NONFATAL", "fatal": "FATAL"} {
		for line := range strings.Lines(r.Text(pciDevices + "/" + a.String() + "/aer_dev_" + kind)) {
			if text, ok := strings.CutPrefix(line, "TOTAL_ERR_"+sum+" "); ok {
				if n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64); err == nil {
					counts[kind] = n
				}
			}
		}
	}
	return counts
}
