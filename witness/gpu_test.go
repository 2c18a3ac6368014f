package witness

import (
	"slices"
	"strings"
	"testing"
)

func TestGPUs(t *testing.T) {
	for _, c := range []struct {
		output, err string
		want        []GPU
	}{
		{"0, GPU-5a1b, 412.53, 100, 71250\n1, GPU-77c0, 98.02, 100, 71250\n", "", []GPU{
			{0, "GPU-5a1b", 413, 100, 71250 << 20, ""}, {1, "GPU-77c0", 98, 100, 71250 << 20, ""},
		}},
		{"0, GPU-5a1b, [N/A], 0, 12\n", "", []GPU{{0, "GPU-5a1b", 0, 0, 12 << 20, ""}}}, // no sensor
		{"0, GPU-5a1b, 98.1, 0, 12\n7, [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]\n", "", []GPU{
			{0, "GPU-5a1b", 98, 0, 12 << 20, ""}, {7, "[GPU is lost]", 0, 0, 0, "[GPU is lost]"},
		}},
		{"Unable to determine the device handle for GPU0000:4F:00.0: Unknown Error\n0, GPU-5a1b, 98.1, 0, 12\n", "", []GPU{{0, "GPU-5a1b", 98, 0, 12 << 20, ""}}},
		{"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "nvidia-smi: NVIDIA-SMI has failed because", nil},
		{"0, GPU-1, 1e300, -5, NaN\n", "", []GPU{{0, "GPU-1", 0, 0, 0, "1e300"}}},
		{"", "", nil},
	} {
		got, err := GPUs([]byte(c.output))
		if !slices.Equal(got, c.want) || (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%q\ngot  %+v, %v\nwant %+v, %q", c.output, got, err, c.want, c.err)
		}
	}
}
