package witness

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A Link is a port of an RDMA adapter, InfiniBand or RoCE, as the kernel tells it. Its counters are of all that use the port, and only
// ever grow, until the driver is loaded anew. (docs.kernel.org, ABI/stable/sysfs-class-infiniband.)
type Link struct {
	Name  string `json:"name"`            // "mlx5_0/1": adapter and port
	State string `json:"state"`           // ACTIVE, DOWN, INIT, …
	Phys  string `json:"phys,omitempty"`  // LinkUp, Polling, Disabled, …
	Rate  string `json:"rate,omitempty"`  // "400 Gb/sec (4X NDR)"
	Layer string `json:"layer,omitempty"` // InfiniBand, Ethernet; of other adapters something else
	Sent  uint64 `json:"sent"`            // bytes
	Got   uint64 `json:"got"`             // bytes
	Downs uint64 `json:"downs,omitempty"` // times that the link went down
	Fixes uint64 `json:"fixes,omitempty"` // times that it recovered from errors
	Bad   uint64 `json:"bad,omitempty"`   // symbols and packets that arrived damaged
}

// Up reports whether the link carries data.
func (l Link) Up() bool { return l.State == "ACTIVE" }

// Links reads all ports of the machine's RDMA adapters. root is that of the file system, "/" outside tests. A counter that an adapter
// does not have is 0. The adapter's firmware is asked, and if it has died that can take a minute: let nobody wait for it.
func Links(root string) (links []Link) {
	ports, _ := filepath.Glob(filepath.Join(root, "sys/class/infiniband/*/ports/*")) // an error is a bad pattern
	for _, dir := range ports {
		read := func(name string) string {
			text, _ := os.ReadFile(filepath.Join(dir, name))
			return strings.TrimSpace(string(text))
		}
		count := func(names ...string) (sum uint64) {
			for _, name := range names {
				n, _ := strconv.ParseUint(read(name), 10, 64) // "N/A (no PMA)" is none
				sum += n
			}
			return sum
		}
		links = append(links, Link{
			Name:  filepath.Base(filepath.Dir(filepath.Dir(dir))) + "/" + filepath.Base(dir),
			State: word(read("state")), Phys: word(read("phys_state")), Rate: read("rate"), Layer: read("link_layer"),
			// The first are words of four bytes, at least one lane of them; EFA has bytes, and counts what others write and read apart.
			Sent:  max(4*count("counters/port_xmit_data"), count("hw_counters/tx_bytes", "hw_counters/rdma_write_bytes", "hw_counters/rdma_read_resp_bytes")),
			Got:   max(4*count("counters/port_rcv_data"), count("hw_counters/rx_bytes", "hw_counters/rdma_read_bytes", "hw_counters/rdma_write_recv_bytes")),
			Downs: count("counters/link_downed"), Fixes: count("counters/link_error_recovery"),
			Bad: count("counters/symbol_error", "counters/port_rcv_errors"),
		})
	}
	return links
}

// word is what "4: ACTIVE" says.
func word(numbered string) string {
	_, text, ok := strings.Cut(numbered, ": ")
	if !ok {
		return numbered
	}
	return text
}
