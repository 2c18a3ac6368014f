package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/muster-run/muster/dialect"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/launcher/pid1/early"
	"github.com/muster-run/muster/remote"
	"github.com/muster-run/muster/timerslack"
)

// This file is a launcher's node 0 where the other nodes are sshd: it tells them to run the same command line.

// noSSH is the variable that says whether other nodes are told what to run: on, off, or auto, which looks.
const noSSH = "MUSTER_NO_SSH"

// carriedVariable names the directory with the files of who told this node what to run.
const carriedVariable = "MUSTER_FILES"

// readCarried is a file of who told this node what to run, or else its own.
func readCarried(path string) ([]byte, error) {
	if dir := os.Getenv(carriedVariable); dir != "" {
		if abs, err := filepath.Abs(path); err == nil {
			if text, err := readSmall(filepath.Join(dir, abs)); !errors.Is(err, os.ErrNotExist) {
				return text, err
			}
		}
	}
	return readSmall(path)
}

// maxRead bounds files that are read to understand what is to be run, in bytes.
const maxRead = 16 << 20

// readSmall reads a regular file that is no program: a FIFO may take for ever, standard input is the program's, and some devices have no end.
func readSmall(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || strings.HasPrefix(path, "/dev/"):
		return nil, fmt.Errorf("%s is no regular file", path)
	case info.Size() > maxRead:
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxRead)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var first [4]byte
	if _, err := f.ReadAt(first[:], 0); err == nil && string(first[:]) == "\x7fELF" {
		return nil, fmt.Errorf("%s is a program", path)
	}
	return io.ReadAll(io.LimitReader(f, maxRead))
}

// mustTell reports whether this process is to start the job's other nodes: the launcher whose words these are would.
func mustTell(r dialect.Request) bool {
	return len(r.Others) > 0 && !pid1.Agent() && os.Getenv(noSSH) != "off"
}

// tell runs the job on this node, and the same command line on the others.
func tell(args []string, words understood) error {
	how := cmp.Or(os.Getenv(noSSH), "auto")
	if how != "on" && how != "auto" {
		return wrong("%s=%q: on, off or auto can be", noSSH, how)
	}
	if os.Getpid() == 1 {
		return status(pid1.Init(again("run", args...), pid1.InitOptions{}))
	}
	t := teller{args: args, words: words}
	var err error
	if t.keys, err = secrets(false); err != nil && (how == "on" || operated()) {
		return wrong("%s: %s are to be told what to run, and there is %v; or, if somebody starts muster on each of them: %s=off",
			words.call.As, strings.Join(some(words.request.Others), ", "), err, noSSH)
	}
	if how == "auto" && !operated() && (err != nil || !t.anybody()) {
		os.Setenv(noSSH, "off")
		return dispatch(runCommand(), args)
	}
	return t.run()
}

// some is a list for people: a few of it.
func some(names []string) []string {
	if len(names) > 3 {
		return append(slices.Clone(names[:3]), fmt.Sprintf("%d more", len(names)-3))
	}
	return names
}

// operated reports whether an operator runs this node's container that runs sshd in the others: mpi-operator, or T9k's for DeepSpeed.
func operated() bool {
	_, err := os.Stat("/t9k/hostfile")
	return err == nil || os.Getenv("K_MPI_JOB_ROLE") == "launcher"
}

// A teller is who starts a job on all nodes.
type teller struct {
	args  []string // of muster run
	words understood
	keys  []remote.Key
}

// lookTime is how long it takes at most to find out whether anybody waits to be told.
const lookTime = 3 * time.Second

// anybody reports whether muster is sshd on one of the other nodes.
func (t teller) anybody() bool {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	codes := eachHost(t.words.request.Others, 64, func(_ int, host string) int {
		to, err := destination(options{}, host)
		if err != nil {
			return 0
		}
		c, err := remote.Dial(ctx, to.addr, t.keys)
		if err != nil {
			return 0
		}
		c.Close()
		return 1
	})
	return slices.Contains(codes, 1)
}

// command is what the other nodes are told to run: the same, from the same directory, with the files that its words
// name, and the variables that DeepSpeed takes along (deepspeed/launcher/runner.py, EXPORT_ENVS).
func (t teller) command() (remote.Command, error) {
	dir, err := os.Getwd()
	if err != nil {
		return remote.Command{}, err
	}
	env := []string{noSSH + "=off", "PWD=" + dir}
	for _, kv := range os.Environ() {
		if slices.ContainsFunc([]string{"MLFLOW", "PYTHON", "MV2", "UCX", "NCCL", "DS_ENV_FILE="}, func(p string) bool { return strings.HasPrefix(kv, p) }) {
			env = append(env, kv)
		}
	}
	c := remote.Again(append([]string{"run"}, t.args...), env)
	c.Dir, c.Files = []byte(dir), t.files()
	return c, nil
}

// files are those that were read to understand the command line, but for what is each machine's own.
func (t teller) files() map[string][]byte {
	all := map[string][]byte{}
	h := thisHost()
	h.ReadFile = func(path string) ([]byte, error) {
		text, err := readCarried(path)
		if abs, absErr := filepath.Abs(path); err == nil && absErr == nil && abs != "/etc/hosts" && !strings.HasPrefix(abs, "/proc/") {
			all[abs] = text
		}
		return text, err
	}
	_, _ = t.words.call.Parse(h) // it was understood before
	return all
}

// An outcome is how the job ended on a node.
type outcome struct {
	host string // "": this one
	code int
	err  error
}

const (
	othersGrace = 30 * time.Second // for the other nodes to end when this one has, and for this one when one of those has
)

// run starts the job everywhere, and ends as it ends here.
func (t teller) run() error {
	c, err := t.command()
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	early.HandOver(signals)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	others := t.words.request.Others
	ends := make(chan outcome, len(others)+1)
	for _, host := range others {
		all.Go(func() { ends <- t.on(ctx, host, c) })
	}
	here, err := t.here(ends, &all)
	if err != nil {
		return err
	}
	return t.wait(ends, signals, here, len(others))
}

// on runs the job on another node.
func (t teller) on(ctx context.Context, host string, c remote.Command) outcome {
	to, err := destination(options{}, host)
	if err != nil {
		return outcome{host, job.ExitUsage, err}
	}
	out, errput := &labelled{w: os.Stdout}, &labelled{w: os.Stderr}
	defer errput.flush()
	defer out.flush()
	code, err := reach(ctx, t.words.call.As, to, t.keys, c, remote.Streams{Out: out, Err: errput})
	if err != nil {
		code = job.ExitPeers
	}
	return outcome{host, code, err}
}

// here starts the job on this node. A node that has no part in it waits for the others.
func (t teller) here(ends chan<- outcome, all *sync.WaitGroup) (*exec.Cmd, error) {
	if t.words.request.Idle != "" {
		fmt.Fprintln(os.Stderr, "muster: "+t.words.request.Idle)
		return nil, nil
	}
	argv := again("run", t.args...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), noSSH+"=off")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM} // a terminal's signals come from us, once
	if err := timerslack.Given(cmd.Start); err != nil {
		return nil, err
	}
	all.Go(func() {
		_ = cmd.Wait() // its state says more
		w := cmd.ProcessState.Sys().(syscall.WaitStatus)
		code := w.ExitStatus()
		if w.Signaled() {
			code = 128 + int(w.Signal())
		}
		ends <- outcome{code: code}
	})
	return cmd, nil
}

// wait waits until the job has ended on all nodes, or the time is over that the others have when it has ended on one.
// Signals go to this node, which tells the others.
func (t teller) wait(ends <-chan outcome, signals <-chan os.Signal, here *exec.Cmd, left int) error {
	var late <-chan time.Time
	code, first := 0, 0 // of this node; of the first of the others that failed
	for left > 0 || here != nil {
		select {
		case s := <-signals:
			if here == nil {
				return exit(128 + int(s.(syscall.Signal)))
			}
			_ = here.Process.Signal(s) // it may have ended
		case e := <-ends:
			if e.host == "" {
				code, here, late = cmp.Or(code, e.code), nil, time.After(othersGrace)
				continue
			}
			if left--; e.err != nil && here != nil {
				fmt.Fprintf(os.Stderr, "muster: %s: %s: %v\n", t.words.call.As, e.host, e.err)
			}
			first = cmp.Or(first, e.code)
			if first != 0 && here != nil && late == nil && !t.elastic() { // this node finds out itself if it knows that one
				late = time.After(othersGrace)
			}
		case <-late:
			if here == nil {
				return status(code)
			}
			fmt.Fprintf(os.Stderr, "muster: %s: another node ended with exit code %d; this one is stopped\n", t.words.call.As, first)
			code, late = first, nil
			_ = here.Process.Signal(syscall.SIGTERM)
		}
	}
	if t.words.request.Idle != "" {
		code = first
	}
	return status(code)
}

// elastic reports whether the job can do without some of its nodes.
func (t teller) elastic() bool {
	return slices.ContainsFunc(t.words.request.Flags, func(f dialect.Flag) bool { return f.Name == "nnodes" && strings.Contains(f.Value, ":") })
}
