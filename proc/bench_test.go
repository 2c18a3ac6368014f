package proc

import "testing"

// BenchmarkAll reads the machine's process table.
func BenchmarkAll(b *testing.B) {
	n := 0
	for b.Loop() {
		all, err := Root("/proc").All()
		if err != nil {
			b.Fatal(err)
		}
		n = len(all)
	}
	b.ReportMetric(float64(n), "processes")
}
