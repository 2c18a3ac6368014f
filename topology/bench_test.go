package topology

import "testing"

// Reading a machine is to take less than 50 ms, without nvidia-smi.
func BenchmarkProbe(b *testing.B) {
	for _, name := range []string{"dgx-h100", "dgx-a100", "aws-p5.48xlarge"} {
		b.Run(name, func(b *testing.B) {
			r := machineRoot(b, name)
			for b.Loop() {
				probed(b, r)
			}
		})
	}
}
