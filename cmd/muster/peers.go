package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/preflight"
	"github.com/muster-run/muster/preflight/peers"
	"github.com/muster-run/muster/rendezvous/tcpstore"
	"github.com/muster-run/muster/topology"
)

// checkPeers is muster check --peers as a job with one worker a node, which is the hidden command below: nodes find each other as they do to train. What follows
// --peers are flags of muster run. It returns nil if that is not what was asked for.
func checkPeers(args []string) []string {
	i := slices.IndexFunc(args, func(a string) bool { return a == "--peers" || a == "--peers=true" || a == "-peers" })
	if i < 0 {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		self = args[0]
	}
	worker := []string{"--", self, "peers"}
	rest := slices.Delete(slices.Clone(args), i, i+1)
	if j := slices.Index(rest, "--json"); j >= 0 {
		rest = slices.Delete(rest, j, j+1)
		worker = append(worker, "--json")
	}
	return slices.Concat([]string{"run", "--nproc-per-node", "1", "--framework", "torch", "--worker-store", "agent", "--max-restarts", "0", "--ranks", "0", "--bare"}, rest, worker)
}

// peersCommand is a worker of that job.
func peersCommand() *cli.Command {
	var asJSON bool
	plan := peers.Plan{Rounds: 15, Each: time.Second}
	return &cli.Command{
		Name: "peers", Hidden: true, Usage: "measure the way to the other nodes; muster check --peers starts it", ArgsUsage: "[--json]",
		Flags:  []cli.Flag{&cli.BoolFlag{Name: "json", Destination: &asJSON, Usage: "as one JSON object"}},
		Action: func(x *cli.Context) error { return measurePeers(x.Context, plan, asJSON) },
	}
}

// measurePeers takes this node's part; rank 0 tells what came of it.
func measurePeers(ctx context.Context, plan peers.Plan, asJSON bool) error {
	rank, err1 := strconv.Atoi(os.Getenv("RANK"))
	size, err2 := strconv.Atoi(os.Getenv("WORLD_SIZE"))
	master := net.JoinHostPort(os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT"))
	if err1 != nil || err2 != nil || rank < 0 || rank >= size {
		return wrong("peers: RANK=%s and WORLD_SIZE=%s are none of a job; muster check --peers starts this", os.Getenv("RANK"), os.Getenv("WORLD_SIZE"))
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	self, err := ownNode(ctx, rank, size, master)
	if err != nil {
		return fmt.Errorf("peers: %w", err)
	}
	store := tcpstore.New(master, tcpstore.Options{})
	defer store.Close()
	table := peersTable{w: os.Stdout, rounds: len(peers.Rounds(size, plan.Rounds))}
	if asJSON {
		table.w = io.Discard
	}
	plan.Seen = table.pairs
	measured, err := peers.Measure(ctx, store, self, size, plan)
	if err != nil {
		return err
	}
	nodes := measured.Nodes
	reduced, err := allReduced(ctx, store, nodes, rank, plan.Each, func(round []peers.Reduced) { table.reduced(nodes, round) })
	if err != nil || rank != 0 {
		return err
	}
	faults, differences := peers.Judge(measured)
	slow, doubts := peers.JudgeReduced(nodes, reduced.Rounds)
	faults, doubts = append(faults, slow...), append(measured.Doubts, doubts...)
	if asJSON {
		err = peersJSON(os.Stdout, measured, reduced, faults, doubts, differences)
	} else {
		peersVerdict(os.Stdout, nodes, reduced, faults, append(doubts, differences...))
	}
	if err == nil && len(faults) > 0 {
		leaveWord(faults[0])
		err = exit(job.ExitRefused)
	}
	return err
}

// allReduces are those of the user's own PyTorch.
type allReduces struct {
	Rounds  [][]peers.Reduced `json:"rounds"`
	Skipped string            `json:"skipped,omitempty"` // why there are none
}

// allReduced makes them, where all nodes have PyTorch: by NCCL where all have as many GPUs. Rank 0 learns what came of them.
func allReduced(ctx context.Context, store peers.Store, nodes []peers.Node, rank int, each time.Duration, seen func([]peers.Reduced)) (all allReduces, err error) {
	gpus := nodes[0].GPUs
	for _, n := range nodes {
		if !n.Torch {
			return allReduces{Skipped: fmt.Sprintf("no all-reduce was made: %v has no PyTorch (PYTHON_EXEC says which Python)", n)}, nil
		}
		if n.GPUs != gpus {
			gpus = 0
		}
	}
	python, err := launcher.Interpreter(os.Environ())
	if err != nil {
		return all, err // which this node would have told the others
	}
	port, err := strconv.Atoi(os.Getenv("MASTER_PORT"))
	if err != nil {
		return all, err
	}
	torch := peers.Torch{Python: python, Env: append(os.Environ(), "MUSTER_HOOK=off"), Host: os.Getenv("MASTER_ADDR"), Port: port, GPUs: gpus, Each: each}
	all.Rounds, err = peers.Reduce(ctx, store, rank, len(nodes), torch.Reduce, seen)
	return all, err
}

// wholeGPUs is how many a script of PyTorch would find; parts of GPUs make no communicator of NCCL's.
func wholeGPUs(m topology.Machine) int {
	gpus := m.Seen(os.LookupEnv)
	if slices.ContainsFunc(gpus, func(g topology.GPU) bool { return g.Vendor != "nvidia" && g.Vendor != "amd" || len(g.MIG) > 0 }) {
		return 0
	}
	return len(gpus)
}

// ownNode is what this node says of itself to the others.
func ownNode(ctx context.Context, rank, size int, master string) (peers.Node, error) {
	m, err := machineAt(ctx, "/", "", true)
	if err != nil {
		return peers.Node{}, err
	}
	host, err := os.Hostname()
	if err != nil {
		return peers.Node{}, err
	}
	n := peers.Node{Rank: rank, Name: host, Facts: facts(m), GPUs: wholeGPUs(m)}
	if python, err := launcher.Interpreter(os.Environ()); err == nil {
		_, version, ok := strings.Cut(installed(ctx, python, "torch"), " ")
		n.Torch, n.Facts["PyTorch"] = ok, version
	}
	for _, f := range preflight.Check(preflight.Measure("/", m), preflight.Need{Nodes: size}) {
		if f.Result == preflight.Fail {
			n.Faults = append(n.Faults, f.String())
		}
	}
	n.Addresses = []string{os.Getenv("MASTER_ADDR")}
	if rank != 0 { // the one from which the store is reached, as workers have it
		c, err := new(net.Dialer).DialContext(ctx, "udp", master)
		if err != nil {
			return n, err
		}
		defer c.Close()
		n.Addresses = []string{c.LocalAddr().(*net.UDPAddr).IP.String()}
	}
	return n, nil
}

// facts are what should be equal on all nodes of a job, whatever its devices are called there.
func facts(m topology.Machine) map[string]string {
	compute := m.Compute()
	f := map[string]string{
		"muster": version(), "Linux": topology.Root("/").Line("proc/sys/kernel/osrelease"), "NVIDIA's driver": m.NVIDIA.Driver,
		"the number of GPUs": strconv.Itoa(len(m.Slots())), "the number of adapters for training": strconv.Itoa(len(compute)),
	}
	for _, g := range m.Slots() {
		f["the GPU"] = g.Model
	}
	var rates, mtus []string
	for _, r := range compute {
		f["the firmware of "+r.HCA.Board] = r.HCA.Firmware
		rates = append(rates, strconv.FormatFloat(r.Port.Rate, 'g', -1, 64))
		for _, n := range m.Nets {
			if n.Name == r.Port.Net {
				mtus = append(mtus, strconv.Itoa(n.MTU))
			}
		}
	}
	for name, all := range map[string][]string{"the rate of the adapters, in Gb/s,": rates, "the MTU of the adapters": mtus} {
		slices.Sort(all)
		f[name] = strings.Join(slices.Compact(all), ", ")
	}
	return f
}

// leaveWord puts a sentence where the agent looks for why a worker failed.
func leaveWord(sentence string) {
	if file := os.Getenv("TORCHELASTIC_ERROR_FILE"); file != "" {
		text, _ := json.Marshal(map[string]any{"message": map[string]any{"message": sentence, "extraInfo": map[string]string{}}})
		_ = os.WriteFile(filepath.Clean(file), text, 0o600) // it only helps
	}
}

func peersJSON(w io.Writer, m peers.Measured, reduced allReduces, faults, doubts, differences []string) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(struct {
		Nodes       []peers.Node `json:"nodes"`
		Pairs       []peers.Pair `json:"pairs"`
		AllReduces  allReduces   `json:"all_reduces"`
		Faults      []string     `json:"faults"`
		Doubts      []string     `json:"doubts"`
		Differences []string     `json:"differences"`
	}{m.Nodes, m.Pairs, reduced, append([]string{}, faults...), append([]string{}, doubts...), append([]string{}, differences...)})
}

// A peersTable shows what was measured as it comes, each round's slowest first: so many rounds may take minutes.
type peersTable struct {
	w      io.Writer
	rounds int // of pairs
	begun  bool
	width  int // of a node's name
	turn   int // of all-reduces
}

// peersRows is how many rows are of interest, of pairs and of a round of all-reduces.
const peersRows = 20

// pairs shows a round of pairs.
func (t *peersTable) pairs(nodes []peers.Node, round []peers.Pair) {
	if !t.begun {
		t.begun = true
		for _, n := range nodes {
			t.width = max(t.width, utf8.RuneCountInString(n.String()))
		}
		fmt.Fprintf(t.w, "%-*s  %-*s  %-7s  %-7s  %s\n", t.width, "FROM", t.width, "TO", "Mb/s", "BACK", "LATENCY")
	}
	round = slices.SortedStableFunc(slices.Values(round), func(a, b peers.Pair) int { return cmp.Compare(min(a.Forth, a.Back), min(b.Forth, b.Back)) })
	shown := round[:min(len(round), max(1, peersRows/t.rounds))]
	for _, p := range shown {
		fmt.Fprintf(t.w, "%-*v  %-*v  ", t.width, nodes[p.A].String(), t.width, nodes[p.B].String())
		if p.Error != "" {
			fmt.Fprintln(t.w, p.Error)
			continue
		}
		again := ""
		if p.Times > 1 {
			again = ", again"
		}
		fmt.Fprintf(t.w, "%-7.0f  %-7.0f  %v%s\n", p.Forth, p.Back, p.Latency.Round(time.Microsecond), again)
	}
	t.more(len(round) - len(shown))
}

func (t *peersTable) more(n int) {
	if n > 0 {
		fmt.Fprintf(t.w, "and %d faster\n", n)
	}
}

// reduced shows a round of all-reduces.
func (t *peersTable) reduced(nodes []peers.Node, round []peers.Reduced) {
	t.turn++
	fmt.Fprintf(t.w, "\n%-7s  ALL-REDUCE %d\n", "Mb/s", t.turn)
	round = slices.SortedStableFunc(slices.Values(round), func(a, b peers.Reduced) int { return cmp.Compare(a.Speed(), b.Speed()) })
	shown := round[:min(len(round), peersRows)]
	for _, r := range shown {
		var names []string
		for _, n := range r.Nodes {
			names = append(names, nodes[n].String())
		}
		if why := r.Failed(); why != "" {
			fmt.Fprintf(t.w, "%-7s  %s: %s\n", "-", strings.Join(names, ", "), why)
			continue
		}
		fmt.Fprintf(t.w, "%-7.0f  %s\n", r.Speed(), strings.Join(names, ", "))
	}
	t.more(len(round) - len(shown))
}

// peersVerdict says what all of that comes to.
func peersVerdict(w io.Writer, nodes []peers.Node, reduced allReduces, faults, warnings []string) {
	if reduced.Skipped != "" {
		fmt.Fprintln(w, reduced.Skipped)
	}
	for _, f := range faults {
		fmt.Fprintf(w, "FAIL  %s\n", f)
	}
	for _, d := range warnings {
		fmt.Fprintf(w, "warn  %s\n", d)
	}
	switch untold := peers.Untold(len(nodes), reduced.Rounds); {
	case untold != "":
		fmt.Fprintf(w, "%d nodes: %s\n", len(nodes), untold)
	case len(faults) == 0 && len(nodes) == 1:
		fmt.Fprintln(w, "1 node: there is no other to compare it with")
	case len(faults) == 0:
		fmt.Fprintf(w, "%d nodes: no node and no link is slower than the others\n", len(nodes))
	}
}
