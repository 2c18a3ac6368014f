package metrics

import (
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report"
)

// Names of what this node has counted.
var (
	clients  = gauge("store_clients", "Connections to the store that this node hosts.")
	keys     = gauge("store_keys", "Keys in the store that this node hosts.")
	crowded  = counter("store_crowded_connections_total", "Connections that the store that this node hosts closed for want of room.")
	requests = histogram("store_request_duration_seconds", "How long requests to the store that this node hosts took, from the moment that they were there until the answer was written, in seconds.", "command")

	written = counter("output_bytes_total", "What the workers of this node wrote, in bytes.", "stream")
	wrote   = counter("output_lines_total", "Lines that the workers of this node wrote.", "stream")
	dropped = counter("output_dropped_lines_total", "Lines that the console, or log files, did not take.", "to")

	before = gauge("preflight_findings", "What was found of this node before the job, by check and by how bad it is.", "check", "result")
	during = counter("machine_findings_total", "What was found of this node's machine during the job, by check and by how bad it is.", "check", "result")

	beatAge = gauge("worker_heartbeat_age_seconds", "Since when the thread that tells of a worker had no turn, in seconds.", "rank", "local_rank")

	portUp     = gauge("port_up", "1 while a port by which the job trains can be used.", "device", "port")
	portRate   = gauge("port_rate_bytes_per_second", "The rate of a port, in bytes a second.", "device", "port")
	received   = counter("port_received_bytes_total", "What a port received, in bytes.", "device", "port")
	sent       = counter("port_transmitted_bytes_total", "What a port sent, in bytes.", "device", "port")
	receivedIn = counter("port_received_packets_total", "Packets that a port received.", "device", "port")
	sentIn     = counter("port_transmitted_packets_total", "Packets that a port sent.", "device", "port")
	waits      = counter("port_transmit_wait_ticks_total", "Ticks of a port's clock at which it had something to send, and could not.", "device", "port")
	portErrors = counter("port_errors_total", "Errors of a port, by the kernel's names.", "device", "port", "error")
	congestion = counter("port_congestion_total", "Marks and notices of congestion at a port, by the kernel's names.", "device", "port", "event")

	pcieErrors = counter("pcie_errors_total", "Errors that PCIe counts of a GPU or an adapter.", "device", "address", "severity")
	pcieSpeed  = gauge("pcie_link_transfers_per_second", "Speed of the PCIe link of a GPU or an adapter on each lane, in transfers a second; an idle GPU slows it down.", "device", "address")
	pcieMost   = gauge("pcie_link_max_transfers_per_second", "What the device could do.", "device", "address")
	pcieLanes  = gauge("pcie_link_lanes", "Lanes of the PCIe link of a GPU or an adapter.", "device", "address")
	pcieWidest = gauge("pcie_link_max_lanes", "What the device could use.", "device", "address")
	gpuMemory  = counter("gpu_uncorrected_memory_errors_total", "Errors of a GPU's memory that were not corrected, since its driver was loaded.", "device", "address")
)

// A flow is what a counter of a port is told as. What is not here is an error.
type flow struct {
	metric
	event bool // its own name is a label
}

var flows = map[string]flow{
	"port_rcv_data": {received, false}, "port_xmit_data": {sent, false}, "port_rcv_packets": {receivedIn, false}, "port_xmit_packets": {sentIn, false},
	"rx_bytes": {received, false}, "tx_bytes": {sent, false}, "rx_pkts": {receivedIn, false}, "tx_pkts": {sentIn, false}, // EFA
	"port_xmit_wait": {waits, false},
	"np_cnp_sent":    {congestion, true}, "np_ecn_marked_roce_packets": {congestion, true}, "rp_cnp_handled": {congestion, true}, "rp_cnp_ignored": {congestion, true},
	"roce_slow_restart": {congestion, true},
}

// counted tells what a node has counted.
func (t teller) counted(c report.Counts) {
	t.store(c.Store)
	t.output(c.Output)
	for _, f := range c.Preflight {
		t.tell(before, float64(f.Count), f.Check, f.Result)
	}
	for _, f := range c.Broke {
		t.tell(during, float64(f.Count), f.Check, f.Result)
	}
	for _, b := range c.Beating {
		t.tell(beatAge, b.Age.Seconds(), strconv.Itoa(b.Rank), strconv.Itoa(b.LocalRank))
	}
	for _, p := range c.Meters.Ports {
		t.port(p)
	}
	for _, d := range c.Meters.Devices {
		t.device(d)
	}
}

func (t teller) store(s *report.StoreCounts) {
	if s == nil {
		return
	}
	t.tell(clients, float64(s.Clients))
	t.tell(keys, float64(s.Keys))
	t.tell(crowded, float64(s.Crowded))
	for command, times := range s.Commands {
		t.times(requests, times, strings.ToLower(command))
	}
}

func (t teller) output(o *report.OutputCounts) {
	if o == nil {
		return
	}
	for i, stream := range []string{"stdout", "stderr"} {
		t.tell(written, float64(o.Bytes[i]), stream)
		t.tell(wrote, float64(o.Lines[i]), stream)
	}
	t.tell(dropped, float64(o.Unshown), "console")
	t.tell(dropped, float64(o.Unfiled), "files")
}

func (t teller) port(p job.PortMeter) {
	at := []string{p.Device, strconv.Itoa(p.Port)}
	t.tell(portUp, is(p.Up), at...)
	if p.Rate > 0 {
		t.tell(portRate, p.Rate, at...)
	}
	told := map[metric]bool{}
	for name, n := range p.Counters {
		f, known := flows[name]
		switch {
		case !known:
			t.tell(portErrors, float64(n), slices.Concat(at, []string{name})...)
		case f.event:
			t.tell(f.metric, float64(n), slices.Concat(at, []string{name})...)
		case !told[f.metric]: // no driver has two for one
			told[f.metric] = true
			t.tell(f.metric, float64(n), at...)
		}
	}
}

func (t teller) device(d job.DeviceMeter) {
	at := []string{d.Name, d.Place}
	for severity, n := range d.Errors {
		t.tell(pcieErrors, float64(n), slices.Concat(at, []string{severity})...)
	}
	for _, of := range []struct {
		metric
		value float64
	}{{pcieSpeed, d.Speed}, {pcieMost, d.MaxSpeed}, {pcieWidest, float64(d.MaxLanes)}} {
		if of.value > 0 {
			t.tell(of.metric, of.value, at...)
		}
	}
	if d.MaxLanes > 0 { // then none are a link that is gone
		t.tell(pcieLanes, float64(d.Lanes), at...)
	}
	if d.Uncorrected != nil {
		t.tell(gpuMemory, float64(*d.Uncorrected), at...)
	}
}

// times tells a histogram.
func (t teller) times(m metric, of report.Times, labels ...string) {
	t <- prometheus.MustNewConstHistogram(m.Desc, of.Count, of.Seconds, of.Within, labels...)
}

func ofTurns(of job.Times) report.Times {
	return report.Times{Count: of.Count, Seconds: of.Seconds, Within: report.Upto(job.TimesBounds[:], of.Within[:])}
}
