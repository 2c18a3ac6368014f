package preflight

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-run/muster/topology"
	"github.com/muster-run/muster/topology/fixture"
)

// What a machine counts of itself is read in bytes where the kernel has words of four, and of each device once; what cannot be read at first is not
// asked for again.
func TestMeters(t *testing.T) {
	dir := fixture.Tree(t, described(t, "dgx-h100"))
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m, err := topology.Probe(topology.Root(dir))
	if err != nil {
		t.Fatal(err)
	}
	gpu := "sys/bus/pci/devices/" + m.GPUs[0].PCI.Address.String()
	const port = "sys/class/infiniband/mlx5_0/ports/1/"
	write(port+"counters/port_xmit_data", "1000\n")
	write(port+"counters/link_downed", "N/A (no PMA)\n")
	write(port+"hw_counters/np_cnp_sent", "18446744073709551615\n")
	write(gpu+"/aer_dev_correctable", "RxErr 3\nBadTLP 0\nTOTAL_ERR_COR 3\n")
	write(gpu+"/aer_dev_nonfatal", "Undefined 0\nTOTAL_ERR_NONFATAL 1\n")
	w := NewMonitor(topology.Root(dir), m)
	defer w.Close()
	all := w.Meters()
	if len(all.Ports) != len(m.Compute()) || len(all.Devices) != len(m.GPUs)+len(m.Compute()) {
		t.Fatalf("%d ports, %d devices", len(all.Ports), len(all.Devices))
	}
	p, g := all.Ports[0], all.Devices[0]
	if _, some := p.Counters["link_downed"]; p.Device != "mlx5_0" || !p.Up || p.Rate != 50e9 || p.Counters["port_xmit_data"] != 4000 || p.Counters["np_cnp_sent"] != 1<<64-1 || some {
		t.Errorf("%+v", p)
	}
	if g.Name != "GPU0" || g.Speed != 32e9 || g.MaxSpeed != 32e9 || g.Lanes != 16 || g.MaxLanes != 16 || g.Errors["correctable"] != 3 || g.Errors["nonfatal"] != 1 || g.Uncorrected != nil {
		t.Errorf("%+v", g)
	}
	write(port+"counters/port_xmit_data", "1001\n")
	write(port+"counters/link_downed", "7\n")
	write(gpu+"/current_link_width", "8\n")
	again := w.Meters()
	if _, some := again.Ports[0].Counters["link_downed"]; again.Ports[0].Counters["port_xmit_data"] != 4004 || some || again.Devices[0].Lanes != 8 || again.Devices[0].MaxLanes != 16 {
		t.Errorf("%+v", again.Ports[0])
	}
	errors := 2
	w.host.Machine.GPUs[0].Told.Uncorrected = &errors
	if n := w.Meters().Devices[0].Uncorrected; n == nil || *n != 2 {
		t.Error("nvidia-smi's word of memory is lost")
	}
}
