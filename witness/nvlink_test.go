package witness

import (
	"maps"
	"math"
	"testing"
)

func TestNVLinks(t *testing.T) {
	for _, c := range []struct {
		output string
		want   map[string]uint64
	}{
		{`GPU 0: NVIDIA H800 (UUID: GPU-34bf)
	 Link 0: Data Tx: 5863784 KiB
	 Link 0: Data Rx: 5863677 KiB
	 Link 1: Data Tx: 4 KiB
GPU 1: Tesla V100-SXM3-32GB (UUID: GPU-2957)
	 Link 0: Data Tx: 1 KiB
	 Link 0: Data Rx: 0 KiB
`, map[string]uint64{"GPU-34bf": (5863784 + 5863677 + 4) << 10, "GPU-2957": 1 << 10}},
		{"GPU 0: NVIDIA A100-PCIE-40GB (UUID: GPU-a)\n", nil}, // a bridge that is not there
		{"GPU 0: NVIDIA H100 (UUID: GPU-a)\n\t Link 0: Data Tx: N/A\n\t Link 1: <inactive>\n\t Link 2: Raw Tx: 7 KiB\n\t Link 3: Data Tx: -1 KiB\n", nil},
		{"GPU 0: NVIDIA H100 (UUID: GPU-a)\nUnable to retrieve NVLink information as all links are inActive\nGPU 1: lost\n\t Link 0: Data Tx: 7 KiB\n", nil},
		{"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", nil},
		{"\t Link 0: Data Tx: 7 KiB\n", nil}, // of nobody
		{"GPU 0: X (UUID: GPU-a)\nLink 0: Data Tx: 18446744073709551615 KiB\nLink 0: Data Rx: 18446744073709551615 KiB\n", map[string]uint64{"GPU-a": math.MaxUint64}},
		{"", nil},
	} {
		if got := NVLinks([]byte(c.output)); !maps.Equal(got, c.want) {
			t.Errorf("%q: %v, want %v", c.output, got, c.want)
		}
	}
}

func FuzzNVLinks(f *testing.F) {
	f.Add([]byte("GPU 0: NVIDIA H800 (UUID: GPU-34bf)\n\t Link 0: Data Tx: 5863784 KiB\n\t Link 0: Data Rx: 5863677 KiB\n"), []byte("GPU 1: (UUID: )\nLink 9: Data Rx: 1 KiB\n"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		alone, both := NVLinks(a), NVLinks(append(append(a[:len(a):len(a)], '\n'), b...))
		if len(both) > maxGPUs || both[""] != 0 {
			t.Errorf("%d GPUs, %d bytes of one without a name", len(both), both[""])
		}
		for gpu, n := range alone {
			if both[gpu] < n {
				t.Errorf("%s carried %d, with more lines %d", gpu, n, both[gpu])
			}
		}
	})
}
