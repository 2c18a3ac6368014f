// Command bench starts the same jobs under muster and under torchrun and prints what both take, side by side.
//
// The worker is a small C program that stamps the clock in its main, so that nothing of a framework is in the figures.
// The launchers take turns, so that a noisy machine is noisy for all of them. docs/performance.md says what each row means.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

//go:embed testdata/worker.c
var workerSource string

type options struct {
	muster string
	runs   int
	peers  int
	only   *regexp.Regexp
	full   bool
}

func main() {
	var o options
	only := ""
	flag.StringVar(&o.muster, "muster", "bin/muster", "`file` to measure")
	flag.IntVar(&o.runs, "n", 9, "`runs` of each row under muster")
	flag.IntVar(&o.peers, "peers", 3, "`runs` of each row under torchrun; 0: muster alone")
	flag.StringVar(&only, "only", ".", "`regexp` that the names of scenes must match")
	flag.BoolVar(&o.full, "full", false, "32 agents of torchrun too, which takes minutes")
	flag.Parse()
	o.only = regexp.MustCompile(only)
	if err := bench(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(o options) error {
	dir, err := os.MkdirTemp("", "muster-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	worker := filepath.Join(dir, "worker")
	cc := exec.Command("cc", "-O2", "-o", worker, "-x", "c", "-")
	cc.Stdin, cc.Stderr = strings.NewReader(workerSource), os.Stderr
	if err := cc.Run(); err != nil {
		return fmt.Errorf("compile the worker: %w", err)
	}
	all, err := launchers(o)
	if err != nil {
		return err
	}
	fmt.Println(machine())
	t := table{launchers: all}
	for _, s := range scenes {
		if o.only.MatchString(s.name) {
			if err := t.measure(o, s, dir, worker); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	fmt.Print("\n", t.String())
	return nil
}

// machine describes where the figures are from.
func machine() string {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%d CPUs, %s, Linux %s, load average %s, %s", runtime.NumCPU(), model(), strings.TrimSpace(string(kernel)),
		load(), runtime.Version())
}

func model() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, ok := strings.CutPrefix(line, "model name\t: "); ok {
			return strings.TrimSpace(name)
		}
	}
	return runtime.GOARCH
}

func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	return strings.Join(strings.Fields(string(text))[:1], "")
}
