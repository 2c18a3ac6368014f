package launcher

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"

	"github.com/muster-run/muster/discovery"
	"github.com/muster-run/muster/framework"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/topology"
)

// DefaultPort is where nodes meet when nobody says otherwise; torchrun's c10d rendezvous has the same.
const DefaultPort = 29400

// maxNodes bounds --nnodes: beyond the largest clusters, and a typing error is caught early.
const maxNodes = 1 << 17

// A Setting is one thing that was decided, and who decided it.
type Setting struct{ Name, Value, From string }

// A Plan is what this node will do: flags, environment and platform settled against each other.
type Plan struct {
	Spec      job.Spec
	Endpoint  job.Addr // where the nodes meet; "" when this node is the whole world
	Serve     bool     // this node hosts the meeting point
	MayServe  bool     // it may, where the endpoint turns out to be this machine
	Command   []string // what each worker runs
	Framework framework.Framework
	Settings  []Setting // for `muster env`
	Notes     []string  // what a person should know
}

// NewPlan settles c. It asks the machine and the platform but opens nothing.
func NewPlan(c Config) (Plan, error) {
	var p Plan
	found, err := find(c)
	if err != nil {
		return p, err
	}
	p.Notes = found.Warnings
	for _, step := range []func(Config, discovery.Finding, *Plan) error{
		planCommand, planNodes, planSelf, planSlots, planEndpoint, planID, planFramework,
	} {
		if err := step(c, found, &p); err != nil {
			return p, err
		}
	}
	return p, nil
}

// find asks the platform, unless the user said that it does not matter.
func find(c Config) (discovery.Finding, error) {
	if c.Standalone {
		return discovery.Finding{Rule: "standalone", Nodes: 1, Rank: -1}, nil
	}
	found := discovery.Detect(c.Host)
	if found.Problem != nil && !c.settles() {
		return found, &Error{Code: job.ExitUsage, Err: found.Problem}
	}
	if found.Problem != nil { // half of a platform's word is no word
		found = discovery.Finding{Rule: found.Rule, Rank: -1, Warnings: append(found.Warnings, found.Problem.Error()+" (flags decide)")}
	}
	if len(found.Leftover) > 0 && c.Nodes == 0 {
		return found, fail(job.ExitUsage, "say --nnodes N --rdzv-endpoint HOST:PORT, or --nnodes 1 for a run of this node alone",
			"%s: this looks like one of several nodes, but nothing says where they meet", strings.Join(found.Leftover, ", "))
	}
	return found, nil
}

// settles reports whether flags alone say how many nodes there are and where they meet.
func (c Config) settles() bool {
	return c.Nodes == 1 || c.Nodes > 1 && (c.Endpoint != "" || c.MasterAddr != "")
}

// set notes a setting and its source: the flag or variable if there was one, else otherwise.
func (p *Plan) set(c Config, flag, value, otherwise string) {
	from, ok := c.From[flag]
	if !ok {
		from = otherwise
	}
	p.Settings = append(p.Settings, Setting{Name: flag, Value: value, From: from})
}

func planCommand(c Config, _ discovery.Finding, p *Plan) (err error) {
	p.Command, err = command(c)
	return err
}

func planNodes(c Config, found discovery.Finding, p *Plan) error {
	switch {
	case c.Standalone && c.Nodes > 1:
		return fail(job.ExitUsage, "drop one of them", "--standalone means one node, %s means %d", c.From["nnodes"], c.Nodes)
	case c.Nodes != 0:
		p.Spec.Nodes = c.Nodes
	case found.Nodes != 0:
		p.Spec.Nodes = found.Nodes
	default:
		return fail(job.ExitUsage, "say --nnodes N", "%s says where to meet, but nothing says how many nodes there are", found.Host)
	}
	if p.Spec.Nodes < 1 || p.Spec.Nodes > maxNodes {
		return fail(job.ExitUsage, "", "%d nodes: the number must be from 1 to %d", p.Spec.Nodes, maxNodes)
	}
	p.set(c, "nnodes", strconv.Itoa(p.Spec.Nodes), found.Rule)
	return nil
}

func planSelf(c Config, found discovery.Finding, p *Plan) error {
	p.Spec.Self = job.Node{Name: c.Host.Hostname, Index: found.Rank, Incarnation: newID(), Version: c.Version}
	if c.NodeRank >= 0 {
		p.Spec.Self.Index = c.NodeRank
	}
	if i := p.Spec.Self.Index; i >= p.Spec.Nodes {
		return fail(job.ExitUsage, "", "node rank %d, but there are %d nodes, numbered from 0", i, p.Spec.Nodes)
	}
	value := "by arrival"
	if p.Spec.Self.Index >= 0 {
		value = strconv.Itoa(p.Spec.Self.Index)
	}
	p.set(c, "node-rank", value, found.Rule)
	return nil
}

// planSlots decides the number of workers: one per GPU unless told otherwise. Asking for GPUs where there are none
// is refused: a training that fell back to the CPU would look like success.
func planSlots(c Config, found discovery.Finding, p *Plan) error {
	asked, from := c.NProc, found.Rule
	if asked == "" {
		asked = found.NProc
	}
	if asked == "" {
		asked, from = "auto", "default"
	}
	machine, err := topology.Probe(c.Root)
	if err != nil {
		return fail(job.ExitSystem, "", "count the GPUs: %w", err)
	}
	slots, err := slots(asked, machine, c.getenv)
	if err != nil {
		return err
	}
	p.Spec.Self.Slots = slots
	if asked == "auto" && len(machine.GPUs) == 0 {
		p.Notes = append(p.Notes, "no GPU on this node: one worker on the CPU (--nproc-per-node says otherwise)")
	}
	p.set(c, "nproc-per-node", fmt.Sprintf("%d (%s)", slots, asked), from)
	return nil
}

// maxSlots bounds the workers of one node.
const maxSlots = 4096

func slots(asked string, m topology.Machine, getenv func(string) (string, bool)) (int, error) {
	gpus, why := topology.Visible(m.GPUs, getenv)
	switch asked {
	case "gpu", "auto":
		if gpus > 0 {
			return gpus, nil
		}
		if asked == "auto" && len(m.GPUs) == 0 && m.Hidden == "" {
			return 1, nil
		}
		return 0, noGPU(m, why)
	case "cpu":
		return runtime.NumCPU(), nil
	}
	n, err := strconv.Atoi(asked)
	if err != nil || n < 1 || n > maxSlots {
		return 0, fail(job.ExitUsage, "", "--nproc-per-node %s: give a number from 1 to %d, or gpu, cpu, auto", asked, maxSlots)
	}
	return n, nil
}

func noGPU(m topology.Machine, why string) error {
	const hint = "give the container GPUs, or say --nproc-per-node N to run on the CPU"
	switch {
	case m.Hidden != "":
		return fail(job.ExitRefused, hint, "no GPU for the workers: %s", m.Hidden)
	case why != "":
		return fail(job.ExitRefused, hint, "no GPU for the workers: %s hides all %d", why, len(m.GPUs))
	default:
		return fail(job.ExitRefused, hint, "no GPU for the workers: this node has none")
	}
}

// planEndpoint decides where the nodes meet and whether this node hosts that place.
func planEndpoint(c Config, found discovery.Finding, p *Plan) error {
	if p.Spec.Nodes == 1 {
		return nil
	}
	host, port, from, zero, err := endpoint(c, found)
	if err != nil {
		return err
	}
	p.Endpoint = job.Addr(net.JoinHostPort(host, strconv.Itoa(port)))
	p.set(c, from, string(p.Endpoint), found.Rule)
	switch c.Serve {
	case "yes":
		p.Serve = true
	case "no":
	default:
		p.Serve = zero && p.Spec.Self.Index == 0
		p.MayServe = !p.Serve && !(zero && p.Spec.Self.Index > 0)
	}
	p.Spec.Self.Addrs = localAddrs(c.LocalAddr, isLoopback(host))
	return nil
}

// endpoint returns the meeting point and the flag that it answers. zero says that the host is where node 0 runs.
func endpoint(c Config, found discovery.Finding) (host string, port int, flag string, zero bool, err error) {
	switch {
	case c.Endpoint != "" && c.MasterAddr != "":
		return "", 0, "", false, fail(job.ExitUsage, "drop one of them", "--rdzv-endpoint %s and --master-addr %s both say where to meet", c.Endpoint, c.MasterAddr)
	case c.Endpoint != "" && c.MasterPort != 0:
		return "", 0, "", false, fail(job.ExitUsage, "say --rdzv-endpoint HOST:PORT", "--master-port %d goes with --master-addr, not with --rdzv-endpoint", c.MasterPort)
	case c.Endpoint != "":
		host, port, err = splitEndpoint(c.Endpoint, c.From["rdzv-endpoint"])
		return host, port, "rdzv-endpoint", false, err
	case c.MasterAddr != "":
		return strings.Trim(c.MasterAddr, "[]"), orDefault(c.MasterPort, found.Port), "master-addr", true, nil
	case found.Host != "":
		return strings.Trim(found.Host, "[]"), orDefault(c.MasterPort, found.Port), "rdzv-endpoint", found.RankZero, nil
	}
	return "", 0, "", false, fail(job.ExitUsage, "say --rdzv-endpoint HOST:PORT, the same on all nodes", "%d nodes, but nothing says where they meet", max(c.Nodes, found.Nodes))
}

func orDefault(ports ...int) int {
	for _, port := range ports {
		if port != 0 {
			return port
		}
	}
	return DefaultPort
}

// splitEndpoint takes HOST, HOST:PORT, [IPv6] and [IPv6]:PORT.
func splitEndpoint(s, from string) (string, int, error) {
	if bare := strings.Trim(s, "[]"); net.ParseIP(bare) != nil || !strings.Contains(s, ":") {
		return bare, DefaultPort, nil
	}
	host, port, err := net.SplitHostPort(s)
	n, bad := strconv.Atoi(port)
	if err != nil || bad != nil || host == "" || n < 1 || n > 65535 {
		return "", 0, fail(job.ExitUsage, "give HOST:PORT, an IPv6 address in brackets", "%s %s is no endpoint", from, s)
	}
	return host, n, nil
}

// planID names the job. Two jobs must never merge, so that the endpoint, which only one job can hold, stands in
// for a name that nobody gave.
func planID(c Config, found discovery.Finding, p *Plan) error {
	from := found.Rule
	switch {
	case c.JobID != "":
		p.Spec.ID = c.JobID
	case found.JobID != "" && found.JobID != "none":
		p.Spec.ID = found.JobID
	case p.Endpoint != "":
		sum := sha256.Sum256([]byte(p.Endpoint))
		p.Spec.ID, from = "job-"+hex.EncodeToString(sum[:4]), "endpoint"
	default:
		p.Spec.ID, from = "job-"+newID()[:8], "random"
	}
	if p.Spec.ID == "none" || len(p.Spec.ID) > 256 {
		return fail(job.ExitUsage, "give each job a name of its own, of at most 256 characters", "--rdzv-id %.40q cannot name a job", p.Spec.ID)
	}
	p.set(c, "rdzv-id", p.Spec.ID, from)
	return nil
}

func planFramework(c Config, _ discovery.Finding, p *Plan) (err error) {
	if p.Framework, err = framework.Lookup(c.Framework); err != nil {
		return &Error{Code: job.ExitUsage, Err: err}
	}
	p.set(c, "framework", p.Framework.Name, "default")
	return nil
}

// newID returns 16 random hexadecimal digits.
func newID() string {
	var b [8]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}
