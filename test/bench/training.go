package main

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/muster-run/muster/heartbeat/page"
)

//go:embed testdata/train.py
var trainSource string

// A size is that of a step: linear layers, their width, and the samples of a batch.
type size struct{ layers, width, batch int }

// A training is a real one, whose ranks wait until they are told which steps to do.
type training struct {
	ranks []trainee
	pages []*page.Page // with the hook, of each rank
}

type trainee struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// A slice is some steps one after the other, of which each took its time, and CPU time of all ranks together.
type slice struct{ time, cpu []float64 } // nanoseconds

// A gym is where trainings are started.
type gym struct {
	dir, python, script, hook string
	made                      int
}

func openGym(dir, which string) (g gym, version string, err error) {
	g = gym{dir: dir, script: filepath.Join(dir, "train.py")}
	if g.python, err = pythonOf(which); err != nil {
		return g, "", err
	}
	if version, err = versionOf(g.python, "torch"); err != nil {
		return g, "", err
	}
	if g.hook, err = page.Unpack(dir); err != nil {
		return g, "", err
	}
	return g, version, os.WriteFile(g.script, []byte(trainSource), 0o600)
}

// play starts some trainings, the first of them with the hook, and ends them when something has been done with them.
func (g *gym) play(z size, ranks, trainings int, do func([]*training) error) (err error) {
	all := make([]*training, trainings)
	defer func() {
		for _, t := range all {
			err = errors.Join(err, t.end())
		}
	}()
	for _, i := range rand.Perm(trainings) {
		if all[i], err = g.begin(z, ranks, i == 0); err != nil {
			return err
		}
	}
	for _, t := range all {
		if err := t.ready(); err != nil {
			return err
		}
	}
	return do(all)
}

// begin starts a training, with the hook or without anything of muster's.
func (g *gym) begin(z size, ranks int, hooked bool) (*training, error) {
	t := &training{}
	port, err := freePort()
	for rank := 0; rank < ranks && err == nil; rank++ {
		env := append(os.Environ(), fmt.Sprint("RANK=", rank), fmt.Sprint("WORLD_SIZE=", ranks), "MASTER_ADDR=127.0.0.1", fmt.Sprint("MASTER_PORT=", port),
			"USE_LIBUV=0", "OMP_NUM_THREADS=1", "GLOO_SOCKET_IFNAME=lo", "PYTHONWARNINGS=ignore")
		if hooked {
			env, err = g.hooked(t, env)
		}
		if err == nil {
			err = t.start(env, g.python, g.script, fmt.Sprint(z.layers), fmt.Sprint(z.width), fmt.Sprint(z.batch))
		}
	}
	if err != nil {
		return nil, errors.Join(err, t.end())
	}
	return t, nil
}

// hooked adds to the environment of t's next rank what gives it a page and the hook.
func (g *gym) hooked(t *training, env []string) ([]string, error) {
	g.made++
	p, err := page.Create(filepath.Join("/dev/shm", fmt.Sprintf("muster-bench-%d-%d", os.Getpid(), g.made)))
	if err != nil {
		return nil, err
	}
	t.pages = append(t.pages, p)
	for _, v := range page.Env(g.hook, p.Path(), os.LookupEnv) {
		env = append(env, v.Name+"="+v.Value)
	}
	return env, nil
}

func (t *training) start(env []string, argv ...string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Stderr = env, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		t.ranks = append(t.ranks, trainee{cmd, in, bufio.NewReader(out)})
	}
	return err
}

// ready waits until all ranks train. With the hook it is in place in each of them, without it in none.
func (t *training) ready() error {
	for i, r := range t.ranks {
		line, err := r.out.ReadString('\n')
		if err != nil {
			return fmt.Errorf("rank %d does not train: %w", i, err)
		}
		if places := strings.TrimSpace(line); (places != "0") != (t.pages != nil) {
			return fmt.Errorf("the hook is called from %s places of PyTorch in rank %d; hooked: %v", places, i, t.pages != nil)
		}
	}
	return nil
}

// steps has steps done, a letter each.
func (t *training) steps(letters string) (s slice, err error) {
	for _, r := range t.ranks {
		if _, err := io.WriteString(r.in, letters+"\n"); err != nil {
			return s, err
		}
	}
	n := len(letters)
	s = slice{make([]float64, n), make([]float64, n)}
	for i, r := range t.ranks {
		line, err := r.out.ReadString('\n')
		if err != nil {
			return s, fmt.Errorf("rank %d: %w", i, err)
		}
		numbers := strings.Fields(line)
		if len(numbers) != 2*n {
			return s, fmt.Errorf("rank %d answers %d steps with %d numbers", i, n, len(numbers))
		}
		for k := range n {
			time, _ := strconv.ParseFloat(numbers[k], 64) // of Python's integers
			cpu, _ := strconv.ParseFloat(numbers[n+k], 64)
			s.time[k] += time / float64(len(t.ranks))
			s.cpu[k] += cpu
		}
	}
	return s, nil
}

// spent is the CPU time of the hook's threads until now, and the time that they are there.
func (t *training) spent() (cpu, all time.Duration) {
	for _, p := range t.pages {
		if s, err := p.Read(); err == nil {
			cpu, all = cpu+s.Spent, all+s.Helper
		}
	}
	return cpu, all
}

// end is that of all ranks. Of a training that was not begun there is none.
func (t *training) end() error {
	if t == nil {
		return nil
	}
	var errs []error
	for _, r := range t.ranks {
		r.in.Close()
	}
	for _, r := range t.ranks {
		errs = append(errs, r.cmd.Wait())
	}
	for _, p := range t.pages {
		p.Remove()
		p.Close()
	}
	return errors.Join(errs...)
}
