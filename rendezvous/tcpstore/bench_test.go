package tcpstore

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// askAdd adds to a counter of each client's own; askGet reads one value of 64 bytes.
func askAdd(i int) ([]byte, int) {
	r := request{verb: add, key: fmt.Appendf(nil, "/bench/counter/%d", i), n: 1}
	return r.encode(nil, numbersV), 8
}

func askGet(int) ([]byte, int) {
	r := request{verb: get, key: []byte("/bench/value")}
	return r.encode(nil, numbersV), 8 + 64
}

func setValue(i int) ([]byte, int) {
	put := request{verb: set, key: []byte("/bench/value"), value: make([]byte, 64)}
	ask := request{verb: ping}
	return ask.encode(put.encode(nil, numbersV), numbersV), 4
}

// bareServer builds the server that only takes requests apart and answers constants: what epoll itself costs.
func bareServer(b *testing.B) string {
	bin := filepath.Join(b.TempDir(), "bare")
	if out, err := exec.Command("cc", "-O2", "-o", bin, "testdata/bare.c").CombinedOutput(); err != nil {
		b.Fatalf("cc: %v\n%s", err, out)
	}
	return bin
}

// BenchmarkServer reports, beside the time of one request, the CPU time that the server process spends on it. With two
// processors or more, load and server each have their own. "bare" is a C program that answers each request with
// constant bytes: the bar. test/bench has this beside PyTorch's servers.
func BenchmarkServer(b *testing.B) {
	bare := bareServer(b)
	for _, op := range []struct {
		name string
		ask  func(int) ([]byte, int)
	}{{"get", askGet}, {"add", askAdd}} {
		for _, n := range []int{1, 64, 1024, 4096} {
			b.Run(fmt.Sprintf("%s/clients=%d/muster", op.name, n), func(b *testing.B) { benchServer(b, n, op.ask) })
			b.Run(fmt.Sprintf("%s/clients=%d/bare", op.name, n), func(b *testing.B) {
				benchServer(b, n, op.ask, bare)
			})
		}
	}
}

func benchServer(b *testing.B, clients int, ask func(int) ([]byte, int), command ...string) {
	cpu := -1
	if runtime.NumCPU() > 1 {
		cpu = 0
		pinSelf(b, 1)
	}
	p := startServer(b, cpu, command...)
	if len(command) == 0 {
		newLoad(b, p.addr, 1, setValue).run(b, 1)
	}
	l := newLoad(b, p.addr, clients, ask)
	l.run(b, 2*clients)
	before := p.cpuTime(b)
	b.ResetTimer()
	l.run(b, b.N)
	b.StopTimer()
	b.ReportMetric(float64(p.cpuTime(b)-before)/float64(b.N), "server-ns/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

// pinSelf keeps this process off the server's CPU.
func pinSelf(b *testing.B, cpu int) {
	var set unix.CPUSet
	set.Set(cpu)
	tasks, _ := filepath.Glob("/proc/self/task/*")
	for _, t := range tasks {
		var tid int
		_, _ = fmt.Sscan(filepath.Base(t), &tid)
		_ = unix.SchedSetaffinity(tid, &set)
	}
}

// BenchmarkIdle reports the resident memory of a server process with 10,000 idle connections.
func BenchmarkIdle(b *testing.B) {
	for b.Loop() {
		p := startServer(b, -1)
		before := p.resident(b)
		l := newLoad(b, p.addr, 10_000, askAdd)
		l.run(b, 10_000)
		after := p.resident(b)
		b.ReportMetric(float64(after)/(1<<20), "MiB")
		b.ReportMetric(float64(after-before)/10_000, "B/conn")
		l.close()
	}
}
