package worker_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/output"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/worker"
)

// program makes tasks that run this test binary as one of workers, with arguments.
func program(n int, role string, args ...string) []job.Task {
	var tasks []job.Task
	for i := range n {
		tasks = append(tasks, job.Task{
			Rank: i, LocalRank: i, Argv: append([]string{os.Args[0]}, args...), Env: job.Env{{Name: "MUSTER_TEST_WORKER", Value: role}},
		})
	}
	return tasks
}

func number(i int) int {
	n, err := strconv.Atoi(os.Args[i])
	if err != nil {
		panic(err)
	}
	return n
}

// writeLines writes numbered lines, one write each, to stdout and stderr in turn.
func writeLines() {
	for i := range number(1) {
		fmt.Fprintf([]*os.File{os.Stdout, os.Stderr}[i%2], "%d %s\n", i, strings.Repeat("abcdefghij", i%20))
	}
}

// writeFlood writes blocks of 64 KiB of lines, as many bytes as asked.
func writeFlood() {
	block := bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 655)
	for n := number(1); n > 0; n -= len(block) {
		if _, err := os.Stdout.Write(block); err != nil {
			panic(err)
		}
	}
}

// writeEach writes lines of 100 bytes, each with its own write.
func writeEach() {
	line := []byte(strings.Repeat("x", 99) + "\n")
	for range number(1) {
		if _, err := os.Stdout.Write(line); err != nil {
			panic(err)
		}
	}
}

// writeTimed writes 5,000 lines a second and tells in a file how long the worst write took.
func writeTimed() {
	line := []byte(strings.Repeat("x", 999) + "\n")
	var worst time.Duration
	tick := time.NewTicker(time.Millisecond)
	for range number(1) / 5 {
		<-tick.C
		for range 5 {
			began := time.Now()
			_, _ = os.Stdout.Write(line)
			worst = max(worst, time.Since(began))
		}
	}
	if err := os.WriteFile(os.Args[2], []byte(worst.String()), 0o644); err != nil {
		panic(err)
	}
}

// mixedLine is line i of a rank that writes mixed ones: most are short, few are longer than what is read at once.
func mixedLine(rank, i int) []byte {
	r := rand.New(rand.NewPCG(uint64(rank), uint64(i)))
	size := r.IntN(200)
	switch n := r.IntN(1000); {
	case n == 0:
		size = r.IntN(300 << 10)
	case n < 20:
		size = r.IntN(20 << 10)
	}
	line := fmt.Appendf(nil, "%d ", i)
	for len(line) < size {
		line = append(line, "größer als → 0123456789 \x1b[1mfett\x1b[0m "...)
	}
	return append(line, '\n')
}

// writeMixed writes such lines in pieces of mixed sizes, which know nothing of lines, until it has written as many bytes as
// asked.
func writeMixed() {
	rank, left := number(1), number(2)
	r := rand.New(rand.NewPCG(uint64(rank), 1<<40))
	var buf []byte
	for i := 0; left > 0; i++ {
		line := mixedLine(rank, i)
		buf, left = append(buf, line...), left-len(line)
		for n := 1 + r.IntN(1<<r.IntN(18)); n <= len(buf) || left <= 0 && len(buf) > 0; n = 1 + r.IntN(1<<r.IntN(18)) {
			n = min(n, len(buf))
			if _, err := os.Stdout.Write(buf[:n]); err != nil {
				panic(err)
			}
			buf = append(buf[:0], buf[n:]...)
		}
	}
}

// mixed makes tasks that write mixed lines, each as many bytes.
func mixed(n, size int) []job.Task {
	tasks := program(n, "mixed")
	for i := range tasks {
		tasks[i].Argv = append(tasks[i].Argv, fmt.Sprint(i), fmt.Sprint(size))
	}
	return tasks
}

// readMixed checks that r holds all lines of all ranks, whole and each rank's in order.
func readMixed(r io.Reader, ranks, size int) error {
	next, got := make([]int, ranks), make([]int, ranks)
	lines := bufio.NewReaderSize(r, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			break
		}
		var rank int
		text, ok := bytes.CutPrefix(line, []byte("[rank "))
		if ok {
			rank = int(text[0] - '0')
			text, ok = bytes.CutPrefix(text[1:], []byte("] "))
		}
		if !ok || rank >= ranks || !bytes.Equal(text, mixedLine(rank, next[rank])) {
			return fmt.Errorf("%.100q is not the next line of its rank", line)
		}
		next[rank]++
		got[rank] += len(text)
	}
	for rank, n := range got {
		if n < size {
			return fmt.Errorf("rank %d: %d of %d bytes", rank, n, size)
		}
	}
	return nil
}

func init() {
	workers["mixed"] = writeMixed
	workers["lines"], workers["flood"], workers["each"], workers["timed"] = writeLines, writeFlood, writeEach, writeTimed
}

// Eight workers flat out: every line whole, none missing, each in its order.
func TestNothingMixedOrLost(t *testing.T) {
	const n = 20000
	r := start(t, program(8, "lines", fmt.Sprint(n)))
	for _, e := range r.end() {
		if !e.Exit.OK() {
			t.Errorf("rank %d: %+v", e.Task.Rank, e.Exit)
		}
	}
	for stream, text := range []string{r.out.text(), r.err.text()} {
		next := [8]int{}
		for i := range next {
			next[i] = stream
		}
		for line := range strings.Lines(text) {
			var rank, i int
			if _, err := fmt.Sscanf(line, "[rank %d] %d ", &rank, &i); err != nil ||
				line != fmt.Sprintf("[rank %d] %d %s\n", rank, next[rank], strings.Repeat("abcdefghij", next[rank]%20)) {
				t.Fatalf("stream %d: %q, want line %d", stream, line, next[rank])
			}
			next[rank] += 2
		}
		for rank, i := range next {
			if i != n+stream {
				t.Errorf("stream %d of rank %d ends before %d", stream, rank, i)
			}
		}
	}
}

// Eight workers write lines of mixed sizes in pieces of mixed sizes, to the console and to files: all of it arrives.
func TestMixed(t *testing.T) {
	carryMixed(t, 8, 2<<20)
}

// BenchmarkMixed is TestMixed with 200 MB of each worker; what it takes is mostly the making and comparing of lines.
func BenchmarkMixed(b *testing.B) {
	const size = 200 << 20
	b.SetBytes(8 * size)
	for b.Loop() {
		carryMixed(b, 8, size)
	}
}

func carryMixed(t testing.TB, n, size int) {
	t.Helper()
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pw.Close()
	shown, err := os.Create(t.TempDir() + "/console")
	if err != nil {
		t.Fatal(err)
	}
	defer shown.Close()
	read := make(chan error, 1)
	go func() { // a reader that keeps up: what it read is looked at later
		_, err := io.Copy(shown, pr)
		pr.Close()
		read <- err
	}()
	console := newConsole(t, pw, pw)
	opt := options(console)
	opt.Output = output.Routes{Dir: t.TempDir(), Tee: output.AllStreams}
	g, err := worker.Start(t.Context(), mixed(n, size), opt)
	if err != nil {
		t.Fatal(err)
	}
	for e := range g.Exits() {
		if !e.Exit.OK() {
			t.Errorf("%+v", e.Exit)
		}
	}
	if err := console.Close(context.Background()); err != nil {
		t.Error(err)
	}
	pw.Close()
	if err := <-read; err != nil {
		t.Error(err)
	}
	if _, err := shown.Seek(0, io.SeekStart); err != nil {
		t.Error(err)
	}
	if err := readMixed(shown, n, size); err != nil {
		t.Error(err)
	}
	os.Remove(shown.Name())
	for rank := range n {
		path := fmt.Sprintf("%s/attempt_1/%d/stdout.log", opt.Output.Dir, rank)
		if err := sameMixed(path, rank, size); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		os.Remove(path)
	}
}

// sameMixed checks that a file holds all lines of one rank.
func sameMixed(path string, rank, size int) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	lines, got := bufio.NewReaderSize(f, 1<<20), 0
	for i := 0; ; i++ {
		line, err := lines.ReadBytes('\n')
		switch {
		case err == io.EOF && len(line) == 0 && got >= size:
			return nil
		case !bytes.Equal(line, mixedLine(rank, i)):
			return fmt.Errorf("line %d is %.100q", i, line)
		}
		got += len(line)
	}
}

// Nobody reads the console: the worker does not notice.
func TestNobodyReads(t *testing.T) {
	const n = 20000 // 20 MB in 4 s
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pw.Close()
	defer pr.Close()
	told := t.TempDir() + "/worst"
	console := newConsole(t, pw, pw)
	g, err := worker.Start(t.Context(), program(1, "timed", fmt.Sprint(n), told), options(console))
	if err != nil {
		t.Fatal(err)
	}
	e := <-g.Exits()
	if !e.Exit.OK() {
		t.Errorf("%+v", e.Exit)
	}
	b, _ := os.ReadFile(told)
	if worst, err := time.ParseDuration(string(b)); err != nil { // a write that waits for a reader would have no end
		t.Errorf("the worst write took %q", b)
	} else {
		t.Logf("the worst write took %s", worst)
	}
	got, dropped := make(chan int), 0
	go func() {
		n := 0
		for s := bufio.NewScanner(pr); s.Scan(); {
			if line := s.Text(); strings.HasPrefix(line, "[rank 0] x") {
				n++
			} else if _, err := fmt.Sscanf(line, "[rank 0] [muster: %d lines dropped", &dropped); err != nil {
				t.Errorf("strange line %.80q", line)
			}
		}
		got <- n
	}()
	for range g.Exits() {
	}
	_ = console.Close(context.Background())
	pw.Close()
	if came := <-got; came+dropped != n || dropped == 0 {
		t.Errorf("%d lines came and %d were dropped, of %d", came, dropped, n)
	}
}

func TestConsoleGoesAway(t *testing.T) {
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pw.Close()
	console := newConsole(t, pw, pw)
	pr.Close()
	g, err := worker.Start(t.Context(), program(2, "flood", "10000000"), options(console))
	if err != nil {
		t.Fatal(err)
	}
	for e := range g.Exits() {
		if !e.Exit.OK() || len(e.Tail) == 0 {
			t.Errorf("%+v, %d last lines", e.Exit, len(e.Tail))
		}
	}
	if err := console.Close(t.Context()); err == nil {
		t.Error("nothing was lost?")
	}
}

// What a worker left behind holds its pipe: the end is told all the same. It holds on where we cannot find it while another
// worker lives, with its environment wiped, its session left and its parent gone; in the end it is found.
func TestPipeHeldOpen(t *testing.T) {
	number := fmt.Sprintf("1007.%d", os.Getpid())
	r := start(t, shell(
		fmt.Sprintf(`setsid sh -c 'env -i sleep %s & exit'; echo bye; exit 4`, number),
		`trap 'exit 0' TERM; while :; do sleep 0.01; done`,
	))
	began := time.Now()
	e := <-r.Exits()
	if took := time.Since(began); e.Exit.Code != 4 || !slices.Equal(e.Tail, []string{"bye"}) || took > 10*time.Second {
		t.Errorf("%+v after %v", e, took)
	}
	if err := r.Stop(t.Context(), worker.Stopping{}); err != nil {
		t.Error(err)
	}
	r.end()
	all, _ := proc.Root("/proc").All()
	for _, p := range all {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		if bytes.Contains(line, []byte(number)) {
			t.Errorf("left over: %+v", p)
		}
	}
}

// A worker that ends by itself takes what it started with it.
func TestLeftovers(t *testing.T) {
	r := start(t, shell("sleep 1000 & setsid sleep 1000 & (setsid sh -c 'sleep 1000 & sleep 1000' &) ; exit 0"))
	r.end()
	nobody(t)
}

func TestBare(t *testing.T) {
	bare := func(o *worker.Options) { o.Bare = true }
	r := start(t, shell(`printf 'one\r 10%%\r 20%%'; printf 'err' >&2`), bare)
	r.end()
	if out, err := r.out.text(), r.err.text(); out != "one\r 10%\r 20%" || err != "err" {
		t.Errorf("%q, %q", out, err)
	}
	r = start(t, shell(`printf 'no end'`, `printf 'no end'`), bare)
	r.end()
	if out := r.out.text(); out != "no end\nno end\n" {
		t.Errorf("%q", out)
	}
}

// The variables of the task win; all others are the user's and stay, but for the tag of another worker.
func TestEnvironment(t *testing.T) {
	tasks := shell("env | grep -E '^(A=|GO[DGM]|MUSTER_W)' | sort")
	tasks[0].Env = job.Env{{Name: "A", Value: "task"}, {Name: "GOGC", Value: "50"}}
	r := start(t, tasks, func(o *worker.Options) {
		o.Environ = append(slices.Clone(o.Environ), "A=agent", "GOMAXPROCS=1", proc.TagName+"=outer/0/0/x")
	})
	r.end()
	lines := strings.Split(r.out.text(), "\n")
	if len(lines) != 5 || lines[0] != "[rank 0] A=task" || lines[1] != "[rank 0] GOGC=50" || lines[2] != "[rank 0] GOMAXPROCS=1" || !strings.HasPrefix(lines[3], "[rank 0] MUSTER_WORKER="+jobID()+"/0/1/") {
		t.Errorf("%q", lines)
	}
}

// Only those who have a handler get the signal.
func TestSignal(t *testing.T) {
	r := start(t, shell(
		"trap 'echo got USR1; exit 0' USR1; echo up; while :; do sleep 0.01; done",
		"echo up; exec sleep 1000",
	))
	r.await("up")
	if n := r.Signal(10); n != 1 {
		t.Errorf("%d workers were signalled", n)
	}
	if e := <-r.Exits(); e.Task.Rank != 0 || e.Exit.Code != 0 || e.Exit.Sent {
		t.Errorf("%+v", e)
	}
	if err := r.Stop(t.Context(), worker.Stopping{}); err != nil {
		t.Error(err)
	}
}

// BenchmarkOutput measures what a worker's lines cost on their way through the agent, and beside it what cat does.
// A worker's writes go through its pipe, the first process's work, to /dev/null; bytes per second and lines per second are
// those of the whole.
func BenchmarkOutput(b *testing.B) {
	const size = 1 << 30
	for _, c := range []struct {
		name    string
		workers int
		role    string
		bytes   int // of one worker
	}{
		{"blocks/1", 1, "flood", size},
		{"blocks/8", 8, "flood", size / 4},
		{"lines/1", 1, "each", size / 8},
		{"lines/8", 8, "each", size / 32},
	} {
		arg := c.bytes
		if c.role == "each" {
			arg /= 100
		}
		b.Run("muster/"+c.name, func(b *testing.B) {
			null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
			if err != nil {
				b.Fatal(err)
			}
			defer null.Close()
			b.SetBytes(int64(c.bytes * c.workers))
			before := cpuTime(b)
			for b.Loop() {
				console := newConsole(b, null, null)
				g, err := worker.Start(b.Context(), program(c.workers, c.role, fmt.Sprint(arg)), options(console))
				if err != nil {
					b.Fatal(err)
				}
				for e := range g.Exits() {
					if !e.Exit.OK() {
						b.Errorf("%+v", e.Exit)
					}
				}
				if err := console.Close(b.Context()); err != nil {
					b.Error(err)
				}
			}
			b.ReportMetric(float64(b.N)*float64(c.bytes*c.workers/100)/b.Elapsed().Seconds()/1e6, "Mlines/s")
			b.ReportMetric((cpuTime(b)-before).Seconds()/(float64(b.N)*float64(c.bytes*c.workers)/1e9), "first-CPU-s/GB")
		})
		b.Run("cat/"+c.name, func(b *testing.B) {
			script := strings.Repeat(fmt.Sprintf("MUSTER_TEST_WORKER=%s %s %d & ", c.role, os.Args[0], arg), c.workers) + "wait"
			b.SetBytes(int64(c.bytes * c.workers))
			for b.Loop() {
				child, err := first.Start(b.Context(), proc.Spec{Argv: []string{"sh", "-c", "(" + script + ") | cat >/dev/null"}, Env: os.Environ()})
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, child.Stdout)
				<-child.Exit
			}
			b.ReportMetric(float64(b.N)*float64(c.bytes*c.workers/100)/b.Elapsed().Seconds()/1e6, "Mlines/s")
		})
	}
}

// cpuTime is what the first process has used (proc_pid_stat(5), in ticks of 10 ms).
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", os.Getppid()))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	var user, system int
	if _, err := fmt.Sscan(strings.Join(strings.Fields(rest)[11:13], " "), &user, &system); err != nil {
		b.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}
