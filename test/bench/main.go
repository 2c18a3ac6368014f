// Command bench starts the same jobs under muster and under torchrun and prints what both take, side by side.
//
// The worker is a small C program that stamps the clock in its main, so that nothing of a framework is in the figures.
// The launchers take turns, so that a noisy machine is noisy for all of them. docs/performance.md says what each row means.
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/pprof"
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
	hooked int
	turns  int

	pictures string
}

func main() {
	var o options
	only := ""
	flag.StringVar(&o.muster, "muster", "bin/muster", "`file` to measure")
	flag.IntVar(&o.runs, "n", 9, "`runs` of each row under muster")
	flag.IntVar(&o.peers, "peers", 3, "`runs` of each row under torchrun; 0: muster alone")
	flag.StringVar(&only, "only", ".", "`regexp` that the names of scenes must match")
	flag.BoolVar(&o.full, "full", false, "32 agents of torchrun too, which takes minutes")
	flag.IntVar(&o.hooked, "trainings", 6, "`plays` of what the hook costs a training, with each PyTorch; 0: none")
	flag.IntVar(&o.turns, "turns", 20, "`turns` of each store for each kind of request")
	flag.StringVar(&o.pictures, "pictures", "", "`directory` for pictures of the curves")
	var w world
	flag.Var(&w, "world", "only make a world of so many `agents`, or agents+token, once")
	var b beating
	flag.Var(&b, "beats", "only have a world of so many `agents`, or agents x workers, tell their leader how they train, once")
	profile := flag.String("cpuprofile", "", "`file` for where the CPU time of the leader goes with -world and -beats")
	flag.Parse()
	if w.Size > 0 {
		exit(profiled(*profile, w.play))
	}
	if b.Size > 0 {
		exit(profiled(*profile, b.play))
	}
	o.only = regexp.MustCompile(only)
	exit(bench(o))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// profiled runs f and leaves a profile of it in a file, if one is named.
func profiled(name string, f func() error) error {
	if name == "" {
		return f()
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return err
	}
	err = f()
	pprof.StopCPUProfile()
	return errors.Join(err, file.Close())
}

func bench(o options) error {
	dir, err := os.MkdirTemp("", "muster-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// What a launcher keeps for the length of a job is in memory: to make a file on this machine's disk takes the longer the more were deleted there in the
	// last half minute, where a play before has deleted hundreds (ext4 without a journal).
	memory, err := os.MkdirTemp("/dev/shm", "muster-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(memory)
	os.Setenv("TMPDIR", memory)
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
	if len(t.rows) > 0 {
		fmt.Print("\n", t.String())
	}
	if o.only.MatchString("world") {
		table, panels := curve()
		fmt.Print("\n", table)
		if err := draw(o.pictures, "performance-world.svg", panels); err != nil {
			return err
		}
	}
	if o.only.MatchString("beats") {
		fmt.Print("\n", pulseTable())
	}
	if o.only.MatchString("store") {
		stores, err := measureStores(o, dir)
		if err != nil {
			return err
		}
		fmt.Printf("\n%s\nload average at the end: %s\n", stores, load())
		if err := draw(o.pictures, "performance-store.svg", stores.panels()); err != nil {
			return err
		}
	}
	if o.hooked > 0 && o.only.MatchString("hook") {
		table, err := hookTable(dir, o.hooked)
		if err != nil {
			return err
		}
		fmt.Printf("\n%s\nload average at the end: %s\n", table, load())
	}
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
