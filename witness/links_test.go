package witness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestLinks(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		// InfiniBand, as on a DGX H100
		"mlx5_0/ports/1/state": "4: ACTIVE", "mlx5_0/ports/1/phys_state": "5: LinkUp", "mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)",
		"mlx5_0/ports/1/link_layer": "InfiniBand", "mlx5_0/ports/1/counters/port_xmit_data": "1000", "mlx5_0/ports/1/counters/port_rcv_data": "2000",
		"mlx5_0/ports/1/counters/link_downed": "3", "mlx5_0/ports/1/counters/link_error_recovery": "1",
		"mlx5_0/ports/1/counters/symbol_error": "4", "mlx5_0/ports/1/counters/port_rcv_errors": "5",
		// its cable is out
		"mlx5_1/ports/1/state": "1: DOWN", "mlx5_1/ports/1/phys_state": "2: Polling", "mlx5_1/ports/1/link_layer": "InfiniBand",
		// an adapter that has no counters of the port
		"mlx4_0/ports/2/state": "4: ACTIVE", "mlx4_0/ports/2/counters/port_xmit_data": "N/A (no PMA)",
		// AWS EFA
		"rdmap79s0/ports/1/state": "4: ACTIVE", "rdmap79s0/ports/1/link_layer": "Unknown",
		"rdmap79s0/ports/1/hw_counters/tx_bytes": "100", "rdmap79s0/ports/1/hw_counters/rdma_write_bytes": "7",
		"rdmap79s0/ports/1/hw_counters/rx_bytes": "200", "rdmap79s0/ports/1/hw_counters/rdma_read_bytes": "9",
	} {
		path := filepath.Join(root, "sys/class/infiniband", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text+"\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want := []Link{
		{Name: "mlx4_0/2", State: "ACTIVE"},
		{"mlx5_0/1", "ACTIVE", "LinkUp", "400 Gb/sec (4X NDR)", "InfiniBand", 4000, 8000, 3, 1, 9},
		{Name: "mlx5_1/1", State: "DOWN", Phys: "Polling", Layer: "InfiniBand"},
		{Name: "rdmap79s0/1", State: "ACTIVE", Layer: "Unknown", Sent: 107, Got: 209},
	}
	links := Links(root)
	if !slices.Equal(links, want) {
		t.Errorf("got  %+v\nwant %+v", links, want)
	}
	if up := fmt.Sprint(links[1].Up(), links[2].Up()); up != "true false" {
		t.Error(up)
	}
	if none := Links(t.TempDir()); none != nil {
		t.Errorf("without adapters: %+v", none)
	}
}
