package main

import (
	"bufio"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// This file is the store beside PyTorch's two, and beside the least that any could do. All speak one protocol, one load asks them all, server
// and load have a CPU each, and the servers take turns.

//go:embed testdata/load.c
var loadSource string

// storeClients are how many clients a store is asked by; storeOps what they ask, and for how many replies in each turn.
var (
	storeClients = []int{1, 16, 256, 1024, 4096, 16384}
	storeOps     = []storeOp{
		{"get", 10_000, false}, {"set", 10_000, false}, {"add", 10_000, false}, {"multi_get", 5_000, false}, {"wait", 10_000, true}, {"barrier", 10_000, true},
	}
)

// mostAlone is up to how many clients are measured that ask each for itself.
const mostAlone = 4096

// mostClassic is how many clients PyTorch's older store is asked by: it looks at all of them before each reply.
const mostClassic = 4096

// A storeOp is one kind of request.
type storeOp struct {
	name     string
	replies  int
	together bool // of all clients at once: a time is that of the last one's reply
}

// times is how often the load is told to do it in one turn.
func (o storeOp) times(clients int) int {
	if o.together {
		return max(1, min(500, o.replies/clients))
	}
	return min(o.replies, 2000*clients) // one client alone mostly waits
}

// A storeServer is a store in a process of its own.
type storeServer struct {
	name    string
	command []string
	waits   bool // it can make clients wait
	most    int  // clients that can be waited for; 0: any

	process *exec.Cmd
	stdin   io.Closer
	port    string
}

// serves reports whether so many clients can ask it for that.
func (s *storeServer) serves(op storeOp, clients int) bool {
	return (s.waits || !op.together) && (s.most == 0 || clients <= s.most)
}

// A sample is what one turn has shown.
type sample struct {
	wall, median, late time.Duration // of the whole turn, and of replies: half, and 99 of 100, came earlier
	cpu                time.Duration // of the server
}

// pythonStore serves as PyTorch's users have it, until its input ends.
const pythonStore = `
import sys
from datetime import timedelta
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", 0, None, True, timedelta(hours=1), wait_for_workers=False, use_libuv=sys.argv[1] == "libuv")
print("127.0.0.1:%d" % store.port, flush=True)
sys.stdin.read()
`

// storeServers are those that this machine has.
func storeServers(o options, dir string) ([]*storeServer, error) {
	bare := filepath.Join(dir, "bare")
	source := "rendezvous/tcpstore/testdata/bare.c"
	if out, err := exec.Command("cc", "-O2", "-o", bare, source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile %s: %w\n%s", source, err, out)
	}
	muster, err := filepath.Abs(o.muster)
	if err != nil {
		return nil, err
	}
	all := []*storeServer{{name: "muster", command: []string{muster, "store", "serve", "--host", "127.0.0.1", "--port", "0"}, waits: true}}
	if o.peers > 0 {
		python, err := pythonOf("newest")
		if err != nil {
			return nil, err
		}
		number, err := versionOf(python, "torch")
		if err != nil {
			return nil, err
		}
		for _, kind := range []string{"libuv", "classic"} {
			s := &storeServer{name: kind + " " + number, command: []string{python, "-c", pythonStore, kind}, waits: true}
			if kind == "classic" {
				s.most = mostClassic
			}
			all = append(all, s)
		}
	}
	return append(all, &storeServer{name: "bare", command: []string{bare}}), nil
}

// start runs the server on the first CPU, and waits for its port.
func (s *storeServer) start() error {
	s.process = exec.Command("taskset", append([]string{"-c", "0"}, s.command...)...)
	s.process.Env = append(os.Environ(), "GOMAXPROCS=2") // as on this machine when nothing is pinned
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	s.process.Stdout, s.process.Stderr = w, w // muster says where it is on the one, PyTorch on the other
	s.stdin, err = s.process.StdinPipe()
	if err == nil {
		err = s.process.Start()
	}
	w.Close()
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	said := bufio.NewScanner(r)
	for said.Scan() {
		if _, port, ok := strings.Cut(said.Text(), "127.0.0.1:"); ok {
			s.port = strings.TrimSpace(port)
			return nil
		}
	}
	return fmt.Errorf("%s says no port", s.name)
}

func (s *storeServer) stop() {
	s.stdin.Close()
	s.process.Process.Signal(unix.SIGTERM)
	s.process.Wait()
}

// cpu is the time that all threads of the server have had.
func (s *storeServer) cpu() (sum time.Duration) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", s.process.Process.Pid))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		if words := strings.Fields(string(text)); len(words) > 0 {
			ns, _ := strconv.ParseInt(words[0], 10, 64)
			sum += time.Duration(ns)
		}
	}
	return sum
}

// A loader is the clients of one server.
type loader struct {
	server  *storeServer
	process *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
	storm   time.Duration // until all connections had their first answer
}

func (s *storeServer) load(path string, clients int) (*loader, error) {
	l := &loader{server: s, process: exec.Command("taskset", "-c", "1", path, s.port, strconv.Itoa(clients))}
	l.process.Stderr = os.Stderr
	out, err := l.process.StdoutPipe()
	if err == nil {
		l.in, err = l.process.StdinPipe()
	}
	if err == nil {
		err = l.process.Start()
	}
	if err != nil {
		return nil, err
	}
	l.out = bufio.NewScanner(out)
	first, err := l.hear()
	l.storm = first.wall
	return l, err
}

// do has the clients do what the load is told.
func (l *loader) do(op string, times int) (sample, error) {
	before := l.server.cpu()
	fmt.Fprintln(l.in, op, times)
	s, err := l.hear()
	s.cpu = l.server.cpu() - before
	return s, err
}

func (l *loader) hear() (s sample, err error) {
	if !l.out.Scan() {
		return s, fmt.Errorf("the load of %s ended: %w", l.server.name, cmp.Or(l.out.Err(), l.process.Wait(), io.EOF))
	}
	_, err = fmt.Sscan(l.out.Text(), &s.wall, &s.median, &s.late)
	return s, err
}

func (l *loader) close() {
	l.in.Close()
	l.process.Wait()
}

// A storeRow is what all servers have shown of one op by so many clients.
type storeRow struct {
	op      string
	clients int
	plays   int // of the op in each turn
	samples [][]sample
}

// stores measures all servers, turn by turn.
type stores struct {
	servers []*storeServer
	rows    []storeRow
}

func measureStores(o options, dir string) (*stores, error) {
	if runtime.NumCPU() < 2 {
		return nil, errors.New("server and load need a CPU each, and there is one")
	}
	path := filepath.Join(dir, "load")
	cc := exec.Command("cc", "-O2", "-o", path, "-x", "c", "-")
	cc.Stdin, cc.Stderr = strings.NewReader(loadSource), os.Stderr
	if err := cc.Run(); err != nil {
		return nil, fmt.Errorf("compile the load: %w", err)
	}
	var m stores
	var err error
	if m.servers, err = storeServers(o, dir); err != nil {
		return nil, err
	}
	for _, s := range m.servers {
		if err := s.start(); err != nil {
			return nil, err
		}
		defer s.stop()
	}
	for _, clients := range storeClients {
		if !roomFor(clients, 1) {
			continue
		}
		if err := m.measure(path, clients, o.turns); err != nil {
			return nil, err
		}
	}
	return &m, nil
}

// measure plays all ops by so many clients, and each time they connect.
func (m *stores) measure(path string, clients, turns int) error {
	connect := storeRow{op: "connect", clients: clients, plays: 1, samples: make([][]sample, len(m.servers))}
	for range turns / 4 {
		for i, s := range m.servers {
			if !s.serves(storeOp{}, clients) {
				continue
			}
			before := s.cpu()
			l, err := s.load(path, clients)
			if err != nil {
				return err
			}
			connect.samples[i] = append(connect.samples[i], sample{wall: l.storm, cpu: s.cpu() - before})
			l.close()
		}
	}
	m.rows = append(m.rows, connect)
	loads := make([]*loader, len(m.servers))
	for i, s := range m.servers {
		if !s.serves(storeOp{}, clients) {
			continue
		}
		l, err := s.load(path, clients)
		if err != nil {
			return err
		}
		defer l.close()
		loads[i] = l
	}
	for _, op := range storeOps {
		if clients > mostAlone && !op.together {
			continue
		}
		row := storeRow{op: op.name, clients: clients, plays: op.times(clients), samples: make([][]sample, len(m.servers))}
		for turn := range turns + 1 { // the first finds the caches cold
			for k := range loads {
				i := (k + turn) % len(loads)
				if !m.servers[i].serves(op, clients) {
					continue
				}
				fmt.Fprintf(os.Stderr, "%-10s %-16s %-6d %-12s %d\r", "store", op.name, clients, m.servers[i].name, turn)
				s, err := loads[i].do(op.name, row.plays)
				if err != nil {
					return err
				}
				if turn > 0 {
					row.samples[i] = append(row.samples[i], s)
				}
			}
		}
		m.rows = append(m.rows, row)
	}
	return nil
}

// String is a table: for what each client does for itself, replies each second; for what all do together, the time of one.
func (m *stores) String() string {
	lines := [][]string{{"what", "clients"}}
	for _, s := range m.servers {
		lines[0] = append(lines[0], s.name)
	}
	for _, s := range m.servers[1:] {
		lines[0] = append(lines[0], "muster ÷ "+s.name)
	}
	lines[0] = append(lines[0], "the server's CPU for each reply, in this order")
	for _, row := range m.rows {
		line := []string{row.op, strconv.Itoa(row.clients)}
		var cpu []string
		for i := range m.servers {
			line = append(line, row.speed(i))
			cpu = append(cpu, row.cpu(i))
		}
		for i := range m.servers[1:] {
			line = append(line, row.ratio(i+1))
		}
		lines = append(lines, append(line, strings.Join(cpu, ", ")+" µs"))
	}
	return aligned(lines)
}

// together reports whether a row's time is that of all clients.
func (r storeRow) together() bool { return r.op == "wait" || r.op == "barrier" || r.op == "connect" }

func (r storeRow) speed(i int) string {
	if len(r.samples[i]) == 0 {
		return "–"
	}
	figure := digits(median(r.each(i, r.figure)))
	late := func(unit float64) string {
		return digits(median(r.each(i, func(s sample) float64 { return s.late.Seconds() / unit })))
	}
	switch {
	case r.op == "connect":
		return figure + " ms"
	case r.together():
		return figure + " ms, p99 " + late(1e-3)
	}
	return figure + "/s, p99 " + late(1e-6) + " µs"
}

// figure is replies each second, or, of all clients together, the milliseconds that one takes.
func (r storeRow) figure(s sample) float64 {
	if r.together() {
		return s.wall.Seconds() * 1e3 / float64(r.plays)
	}
	return float64(r.plays) / s.wall.Seconds()
}

// ratio is how much faster muster was, by turns: 95 % of the mean of the logarithms.
func (r storeRow) ratio(i int) string {
	if len(r.samples[i]) < 2 {
		return "–"
	}
	var logs []float64
	for n, other := range r.samples[i] {
		logs = append(logs, math.Log(other.wall.Seconds()/r.samples[0][n].wall.Seconds()))
	}
	m, half := mean(logs), spread(logs)
	return fmt.Sprintf("%.2f (%.2f–%.2f)", math.Exp(m), math.Exp(m-half), math.Exp(m+half))
}

func (r storeRow) cpu(i int) string {
	if len(r.samples[i]) == 0 {
		return "–"
	}
	n := float64(r.plays)
	if r.together() {
		n *= float64(r.clients)
	}
	return digits(median(r.each(i, func(s sample) float64 { return s.cpu.Seconds() * 1e6 / n })))
}

func (r storeRow) each(i int, f func(sample) float64) (all []float64) {
	for _, s := range r.samples[i] {
		all = append(all, f(s))
	}
	return all
}

// panels are the curves of each op over clients.
func (m *stores) panels() (all []panel) {
	for _, op := range append(slices.Clone(storeOps), storeOp{name: "connect", together: true}) {
		p := panel{title: op.name, x: "clients", y: "replies/s"}
		if op.together {
			p.y = "ms until the last has its reply"
		}
		for i, s := range m.servers {
			l := line{name: s.name}
			for _, row := range m.rows {
				if row.op == op.name && len(row.samples[i]) > 0 {
					l.points = append(l.points, point{float64(row.clients), median(row.each(i, row.figure))})
				}
			}
			if len(l.points) > 0 {
				p.curves = append(p.curves, l)
			}
		}
		all = append(all, p)
	}
	return all
}
