package launcher

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/muster-run/muster/discovery"
	"github.com/muster-run/muster/framework"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/topology"
)

// DefaultPort is where nodes meet when nobody says otherwise; torchrun's c10d rendezvous has the same.
const DefaultPort = 29400

// A Setting is one thing that was decided, and who decided it.
type Setting struct{ Name, Value, From string }

// A Plan is what this node will do: flags, environment and platform settled against each other.
type Plan struct {
	Spec      job.Spec      // its ID has the number of this attempt behind the Name
	Name      string        // of the job, whichever attempt at it this is, and its namespace before it
	Platform  string        // that left word of the job; "": none did
	Called    string        // the job, as a user or its platform calls it: for workers, who keep files under it, and for people
	Token     string        // of the job, which its nodes share; "": they have none
	Endpoint  job.Addr      // where the nodes meet; "" when this node is the whole world
	Etcd      []string      // the members of the etcd that this is; nil: a node hosts it
	Serve     bool          // this node hosts the meeting point
	MayServe  bool          // it may, where the endpoint turns out to be this machine
	Command   []string      // what each worker runs
	Unfit     string        // why no worker can run on this node; "": they can
	Cure      string        // what to do about that
	Code      int           // with which this node ends then; 0: as a job that is refused
	Devices   []string      // files of this node's GPUs
	Bindings  []job.Binding // of the workers, by local rank; nil: anywhere
	Threads   []int         // that each may compute with, where nobody says otherwise; nil: as the framework has it
	Training  []string      // what it would run without --debug
	Framework framework.Framework
	GPUs      int       // that the workers see
	Success   string    // whose end is the job's, as --success says it
	Park      bool      // it stays when the job has ended well
	Process   *Process  // that this agent was started for; nil: it was for the node
	Restarts  int       // rounds that may follow the first
	Settings  []Setting // for `muster env`
	Notes     []string  // what a person should know
	Preflight []string  // what was found of this machine that may stop or slow the job

	machine topology.Machine
}

// NewPlan settles c. It asks the machine and the platform but opens nothing.
func NewPlan(c Config) (Plan, error) {
	p, err := planned(c)
	if err == nil && p.Unfit != "" {
		err = p.unfit()
	}
	return p, err
}

// planned is NewPlan also for a node on which no worker can run, if there are others.
func planned(c Config) (p Plan, err error) {
	found, err := find(c)
	if err != nil {
		return p, err
	}
	p.Platform, p.Notes = found.Rule, slices.Concat(c.Notes, warned(found))
	for _, step := range []func(Config, discovery.Finding, *Plan) error{
		planCommand, planFramework, planNodes, planServers, planSelf, planSlots, planPlace, planPreflight, planCores, planBind, planVirtual, planEndpoint, planID, planToken, planAllow, planRestarts, planSilence, planPark,
	} {
		if err := step(c, found, &p); err != nil {
			return p, err
		}
	}
	if p.Spec.Standby() && p.Unfit == "" { // else workers are started in vain everywhere, and all end with the same sentence at once
		if err := p.bars(c.interpreted(p.Command[0])); err != nil {
			return p, err
		}
	}
	return p, p.alone()
}

// find asks the platform, unless the user said that it does not matter.
func find(c Config) (discovery.Finding, error) {
	if c.Standalone {
		found := discovery.Standalone(c.Host)
		if found.Problem != nil {
			return found, &Error{Code: job.ExitUsage, Err: found.Problem}
		}
		return found, nil
	}
	found := discovery.Detect(c.sized())
	if errors.Is(found.Problem, discovery.ErrNowhere) && (c.Endpoint != "" || c.MasterAddr != "") {
		found.Problem = nil
	}
	if n := cmp.Or(c.Nodes, found.Nodes); n > 1 && c.Dialect.Free != "" && c.Endpoint == "" {
		return found, fail(job.ExitUsage, "give all of them the same one, from 1 to 65535", "%s is a free port, of which the other ones of %d nodes would not know (%s)",
			c.Dialect.Free, n, cmp.Or(strings.Join(found.Evidence, ", "), c.said("nnodes", c.Nodes)))
	}
	if found.Problem != nil && !c.settles() {
		return found, &Error{Code: job.ExitUsage, Err: found.Problem}
	}
	if err := c.miscounted(found); err != nil {
		return found, err
	}
	if c.asProcess(found) {
		found.Barred = nil
		return found, nil
	}
	if found.PerProcess && found.Barred == nil {
		found.Barred = found.AsProcess()
	}
	if found.Outside && found.Problem == nil {
		if c.Nodes+c.Servers+c.Spares == 0 && c.Endpoint+c.MasterAddr == "" {
			return outside(found), nil
		}
		found.Barred = fmt.Errorf("this node is %s %d of the job, beside those who train", found.Role, found.Index)
	}
	if found.Barred != nil && found.Problem == nil && !c.settles() {
		return found, fail(job.ExitUsage, "", "%s: %w (%s)", found.Rule, found.Barred, strings.Join(found.Evidence, ", "))
	}
	if why := cmp.Or(found.Problem, found.Barred); why != nil { // half of a platform's word is no word
		warnings := append(found.Warnings, discovery.Warning{Text: fmt.Sprintf("%v (flags decide)", why)})
		found = discovery.Finding{Rule: found.Rule, Rank: -1, Prefer: -1, Restarts: -1, Framework: found.Framework, FrameworkBy: found.FrameworkBy, Park: found.Park, LastArg: found.LastArg, Warnings: warnings}
	}
	if c.Nodes > 1 && c.settles() && found.Nodes == 1 && found.Least == 0 && found.JobID != "" && !slices.Contains(byHand, found.JobIDBy) {
		found.Warnings = append(found.Warnings, discovery.Warning{Text: fmt.Sprintf("%s says that this node is a job of its own (%s=%s): of %d nodes it is one by flags, which alone name their job and number it",
			found.Rule, found.JobIDBy, found.JobID, c.Nodes)})
		found.JobID, found.JobIDBy, found.AttemptBy, found.Rank, found.Prefer = "", "", "", -1, -1
	}
	if len(found.Leftover) > 0 && c.Nodes == 0 {
		return found, fail(job.ExitUsage, "say --nnodes N --rdzv-endpoint HOST:PORT, or --nnodes 1 for a run of this node alone", "%w", found.Trouble())
	}
	return found, nil
}

// byHand are variables of launchers', in which people name a job on all of its nodes alike.
var byHand = []string{"PET_RDZV_ID", "PADDLE_JOB_ID"}

// outside is a node that does its part of the job alone: what the platform tells its program stays as it is.
func outside(found discovery.Finding) discovery.Finding {
	text := fmt.Sprintf("this node is %s %d of the job: it runs beside the %d nodes that train, and meets nobody", found.Role, found.Index, found.Nodes)
	return discovery.Finding{Rule: found.Rule, Nodes: 1, Rank: -1, Prefer: -1, Restarts: -1, NProc: "1", NProcBy: found.FrameworkBy, Framework: "none", FrameworkBy: found.FrameworkBy + ", in which this is " + found.Role,
		Outside: true, Park: found.Park, Warnings: append(found.Warnings, discovery.Warning{Text: text})}
}

// warned are a platform's warnings, for people.
func warned(found discovery.Finding) (notes []string) {
	for _, w := range found.Warnings {
		notes = append(notes, w.Text)
	}
	return notes
}

// sized is the host, on which --nnodes stands where some platforms leave the number of nodes to us.
func (c Config) sized() job.Host {
	h := c.Host
	if c.Nodes != 0 {
		h.Getenv = func(name string) string {
			if name == "MUSTER_NNODES" {
				return job.Terms{Nodes: c.Nodes, Least: c.Least}.Size()
			}
			return c.Host.Getenv(name)
		}
	}
	return h
}

// settles reports whether flags alone say how many nodes there are and where they meet.
func (c Config) settles() bool {
	return c.Nodes == 1 && c.Spares == 0 || c.Nodes > 1 && (c.Endpoint != "" || c.MasterAddr != "")
}

// by is what a person would have to change: the variable that set a flag, or the flag.
func (c Config) by(flag string) string { return cmp.Or(c.From[flag], "--"+flag) }

// said is a setting in the words in which it was made: "--nnodes 2", "MUSTER_NNODES=2".
func (c Config) said(flag string, value any) string {
	if from := c.by(flag); !strings.HasPrefix(from, "-") {
		return fmt.Sprintf("%s=%v", from, value)
	}
	return fmt.Sprintf("%s %v", c.by(flag), value)
}

// set notes a setting and its source: the flag or variable if there was one, else otherwise.
func (p *Plan) set(c Config, flag, value, otherwise string) {
	p.Settings = append(p.Settings, Setting{Name: flag, Value: value, From: cmp.Or(c.From[flag], otherwise)})
}

func planCommand(c Config, found discovery.Finding, p *Plan) (err error) {
	if n := len(c.Argv) - 1; found.LastArg != "" && c.Dialect.Command == nil && n >= 0 && c.Argv[n] == found.LastArg {
		if n == 0 {
			return fail(job.ExitUsage, "name the script in the image's ENTRYPOINT: [\"muster\", \"run\", \"train.py\"]", "nothing to run: %q is what %s puts behind the entrypoint", found.LastArg, found.Rule)
		}
		c.Argv = c.Argv[:n]
		p.Notes = append(p.Notes, fmt.Sprintf("%q, the last argument, is what %s puts behind an image's entrypoint: it is not handed on; if it is the script's own, give it twice", found.LastArg, found.Rule))
	}
	p.Spec.Program = job.ProgramOf(c.Argv)
	p.Command, err = command(c)
	switch exe, asked, none := c.python(); {
	case none != nil || err != nil || asked.python == "" || p.Command[0] != exe:
	case asked.broken != nil:
		p.Notes = append(p.Notes, fmt.Sprintf("%s itself could not run (%v): the script runs under %s, the first Python in PATH; PYTHON_EXEC names another", asked.path, asked.broken, exe))
	default:
		p.Settings = append(p.Settings, Setting{Name: "python", Value: exe, From: "the first line of " + asked.path})
	}
	if c.Debug == "" {
		return p.bars(err)
	}
	if err != nil { // to find out why may be what this is for
		p.Notes = append(p.Notes, "debug: the training itself could not start: "+err.Error())
	}
	p.Training, p.Command = p.Command, []string{"sh", "-c", c.Debug}
	return p.bars(c.executable("sh"))
}

func planNodes(c Config, found discovery.Finding, p *Plan) error {
	if err := c.contradicted(found); err != nil {
		return err
	}
	if err := planProcess(c, found, p); err != nil {
		return err
	}
	switch {
	case p.Process != nil: // each is a node to the others
		p.Spec.Nodes = found.Processes
	case c.Standalone && c.Nodes > 1:
		return fail(job.ExitUsage, "drop one of them", "%s means one node, %s more", c.by("standalone"), c.said("nnodes", job.Terms{Nodes: c.Nodes, Least: c.Least}.Size()))
	case c.Nodes != 0:
		p.Spec.Nodes, p.Spec.Least = c.Nodes, c.Least
	case found.Nodes != 0:
		p.Spec.Nodes, p.Spec.Least = found.Nodes, found.Least
		if serves(c, found, p) {
			p.Spec.Nodes += found.Servers
		}
	default:
		return fail(job.ExitUsage, "say --nnodes N", "%s says where to meet, but nothing says how many nodes there are", found.Host)
	}
	if p.Spec.Nodes < 1 || p.Spec.Nodes > job.MaxNodes {
		return fail(job.ExitUsage, "", "%d nodes: the number must be from 1 to %d", p.Spec.Nodes, job.MaxNodes)
	}
	if c.Standalone && c.Spares > 0 {
		return fail(job.ExitUsage, "drop one of them", "%s means one node, %s more", c.by("standalone"), c.said("spares", c.Spares))
	}
	p.set(c, "nnodes", p.Spec.Size(), found.Rule)
	p.Spec.Spares = c.Spares
	p.Spec.Uneven, p.Spec.Debug = c.Uneven, c.Debug != ""
	if c.OnExit != onExitStop {
		p.Spec.OnExit = c.OnExit
	}
	return nil
}

// contradicted refuses another launcher's words that say otherwise than the platform which job this is: they were written for
// another one, or a variable in them counts something else. A flag of muster's own is the user's decision.
func (c Config) contradicted(found discovery.Finding) error {
	evidence := strings.Join(found.Evidence, ", ")
	switch {
	case c.Dialect.Command == nil || c.Standalone || found.Nodes < 2 || found.Least != 0 || c.asProcess(found):
		return nil
	case c.Nodes != 0 && c.Nodes != found.Nodes:
		return fail(job.ExitUsage, cmp.Or(c.Dialect.Hint, "correct the command line, or leave the number of nodes out of it"), "%s, but the platform says %d nodes (%s)",
			c.said("nnodes", job.Terms{Nodes: c.Nodes, Least: c.Least}.Size()), found.Nodes, evidence)
	case c.NodeRank >= 0 && found.Rank >= 0 && c.NodeRank != found.Rank:
		return fail(job.ExitUsage, "correct the command line, or leave the node's number out of it", "%s, but the platform says this is node %d (%s)",
			c.said("node-rank", c.NodeRank), found.Rank, evidence)
	}
	return nil
}

// planSilence refuses a node time-out with which nodes in a new store would not wait for those of one that was lost.
func planSilence(c Config, _ discovery.Finding, p *Plan) error {
	how := p.policy(c)
	wait := (&job.Rules{Fence: how.fence(), Timeout: how.nodeTimeout()}).Hold()
	if how.nodeTimeout() <= job.NodeTimeout || p.Spec.Fewest() == p.Spec.Nodes || p.Etcd != nil || c.JoinTimeout >= 2*wait {
		return nil
	}
	return fail(job.ExitUsage, fmt.Sprintf("give --join-timeout %v, or a shorter --node-timeout (or keep_alive_interval of --rdzv-conf)", (2*wait).Round(time.Second)),
		"with a node time-out of %v nodes that find a new store wait for %v, until no worker can live any more that an older one knew of, and for half of --join-timeout at most, which is %v",
		how.nodeTimeout(), wait, c.JoinTimeout)
}

// planRestarts decides how many rounds may follow the first. The leader's word counts, for all.
func planRestarts(c Config, found discovery.Finding, p *Plan) error {
	from := "default"
	switch {
	case c.From["max-restarts"] != "":
		p.Restarts = c.MaxRestarts
	case found.Restarts >= 0:
		p.Restarts, from = found.Restarts, "PET_MAX_RESTARTS"
	default:
		if d := c.Dialect.Default("max-restarts"); d.Value != "" {
			p.Restarts, _ = strconv.Atoi(d.Value) // the dialect's own constant
			from = d.From
		}
	}
	p.set(c, "max-restarts", strconv.Itoa(p.Restarts), from)
	if c.From["on-worker-exit"] != "" && c.From["clean"] != "" {
		return fail(job.ExitUsage, "drop one of them", "%s and %s both say what follows when a worker fails", c.by("on-worker-exit"), c.by("clean"))
	}
	if c.OnExit == onExitRestart && p.Framework.PMI {
		return fail(job.ExitUsage, "drop it; --max-restarts N starts all ranks again", "%s: MPI takes no rank back into a world that it has left", c.said("on-worker-exit", c.OnExit))
	}
	if c.OnExit == onExitRestart && p.Restarts == 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%s starts no worker again without --max-restarts N", c.said("on-worker-exit", c.OnExit)))
	}
	return nil
}

func planSelf(c Config, found discovery.Finding, p *Plan) error {
	p.Spec.Self = job.Node{Name: c.Host.Hostname, Index: found.Rank, Incarnation: newID(), Version: c.Version}
	switch {
	case p.Process != nil:
		p.Spec.Self.Name, p.Spec.Self.Index = cmp.Or(found.Machine, c.Host.Hostname), found.ProcessRank
	case c.NodeRank >= 0:
		p.Spec.Self.Index = c.NodeRank
	case found.Serves && p.Spec.Servers > 0: // they are the last
		p.Spec.Self.Index = p.Spec.Nodes - p.Spec.Servers + found.Index
	case found.Serves:
		return fail(job.ExitUsage, "", "this node is parameter server %d of the job (%s), %s", found.Index, strings.Join(found.Evidence, ", "), unserved(c, p))
	case found.Rank < 0 && found.Prefer < p.Spec.Nodes+p.Spec.Spares:
		p.Spec.Self.Index = found.Prefer
	}
	if c.Suspects != "" {
		p.Spec.Machine = discovery.Machine(c.Host)
	}
	if i := p.Spec.Self.Index; i >= p.Spec.Nodes+p.Spec.Spares {
		from := fmt.Sprintf("node %d (%s)", i, found.Rule)
		if c.NodeRank >= 0 {
			from = c.said("node-rank", i)
		}
		return fail(job.ExitUsage, "is --nnodes right?", "%s, but the nodes are %d, numbered from 0", from, p.Spec.Nodes)
	}
	value := "by arrival"
	if p.Spec.Self.Index >= 0 {
		value = strconv.Itoa(p.Spec.Self.Index)
	}
	p.set(c, "node-rank", value, found.Rule)
	return nil
}

// unserved is why a parameter server has no place.
func unserved(c Config, p *Plan) string {
	if p.Framework.Servers {
		return fmt.Sprintf("and %s says how many nodes there are, but not --ps how many of them serve", c.by("nnodes"))
	}
	return fmt.Sprintf("and %s has none; say --framework, or run the server's own program here", p.Framework.Name)
}

// machine is the one on which this node runs.
func (c Config) machine() (topology.Machine, error) {
	if c.Machine == nil {
		return topology.Probe(c.Root)
	}
	return c.Machine()
}

// planSlots decides the number of workers: one per GPU unless told otherwise. Asking for GPUs where there are none
// is refused: a training that fell back to the CPU would look like success.
func planSlots(c Config, found discovery.Finding, p *Plan) error {
	otherwise := c.Dialect.Default("nproc-per-node")
	asked, from := cmp.Or(c.NProc, found.NProc, otherwise.Value, "auto"), cmp.Or(found.NProcBy, otherwise.From, "default")
	if p.Framework.Whole && c.NProc == "" {
		asked, from = "1", p.Framework.Name+" has one process a node"
	}
	switch {
	case p.Process != nil:
		asked, from = "1", found.Rule+" starts one agent for each"
	case found.Outside: // its program has no place for another one
		asked, from, c.NProc, c.From = "1", found.NProcBy, "", nil
	}
	machine, err := c.machine()
	if err != nil {
		return p.bars(fail(job.ExitSystem, "", "count the GPUs: %w", err))
	}
	p.machine = machine
	bare := 1
	if c.Dialect.PerCPU {
		bare = runtime.NumCPU()
	}
	slots, err := slots(asked, machine, bare, c.getenv)
	said := found.NProcBy + "=" + asked
	if c.NProc != "" {
		said = c.said("nproc-per-node", asked)
	}
	if errors.Is(err, errSlots) {
		return fail(job.ExitUsage, "", "%s %w", said, err)
	}
	if err := p.bars(err); err != nil {
		return err
	}
	p.Spec.Self.Slots = slots
	planRails(c, p)
	gpus := machine.Slots()
	p.GPUs, _ = machine.Visible(c.getenv)
	p.Process.sees(p, found.GPUs)
	for _, g := range gpus {
		if !slices.Contains(p.Devices, g.Device) { // that of several MIG instances
			p.Devices = append(p.Devices, g.Device)
		}
	}
	switch {
	case asked != "auto" || len(gpus) > 0:
	case c.Dialect.PerCPU:
		p.Notes = append(p.Notes, fmt.Sprintf("no GPU on this node: one worker for each of %d CPUs, as %s has it", slots, said))
	default:
		p.Notes = append(p.Notes, "no GPU on this node: one worker on the CPU (--nproc-per-node says otherwise)")
	}
	p.set(c, "nproc-per-node", fmt.Sprintf("%d (%s)", slots, asked), from)
	return nil
}

// maxSlots bounds the workers of one node.
const maxSlots = 4096

var errSlots = fmt.Errorf("is no number of workers: give one from 1 to %d, or gpu, cpu, auto", maxSlots)

// slots is the number that was asked for; bare is that of auto on a machine without GPUs.
func slots(asked string, m topology.Machine, bare int, getenv func(string) (string, bool)) (int, error) {
	gpus, why := m.Visible(getenv)
	switch asked {
	case "gpu", "auto":
		if gpus > 0 {
			return gpus, nil
		}
		if asked == "auto" && len(m.Slots()) == 0 && m.Hidden == "" {
			return bare, nil
		}
		return 0, noGPU(m, why)
	case "cpu":
		return runtime.NumCPU(), nil
	}
	n, err := strconv.Atoi(asked)
	if err != nil || n < 1 || n > maxSlots {
		return 0, errSlots
	}
	return n, nil
}

func noGPU(m topology.Machine, why string) error {
	const hint = "give the container GPUs, or say --nproc-per-node N to run on the CPU"
	switch {
	case m.Hidden != "":
		return fail(job.ExitRefused, hint, "no GPU for the workers: %s", m.Hidden)
	case why != "":
		return fail(job.ExitRefused, hint, "no GPU for the workers: %s hides all %d", why, len(m.Slots()))
	default:
		return fail(job.ExitRefused, hint, "no GPU for the workers: this node has none")
	}
}

// planEndpoint decides where the nodes meet and whether this node hosts that place.
func planEndpoint(c Config, found discovery.Finding, p *Plan) error {
	if p.Spec.Nodes+p.Spec.Spares == 1 {
		return nil
	}
	if c.inEtcd(found) {
		return planEtcd(c, found, p)
	}
	at, err := endpoint(c, found)
	if err != nil {
		return err
	}
	if c.WorkerPort == at.port {
		return fail(job.ExitUsage, "give the workers another port, or leave that to muster",
			"%s is also where the nodes meet (%s)", c.said("worker-port", c.WorkerPort), at.said)
	}
	p.Endpoint = at.addr()
	p.set(c, at.flag, string(p.Endpoint), found.Rule)
	switch c.Serve {
	case "yes":
		p.Serve = true
	case "no":
	default:
		p.Serve = at.zero && p.Spec.Self.Index == 0
		p.MayServe = !p.Serve && !(at.zero && p.Spec.Self.Index > 0)
	}
	return planAddrs(c, at.host, p)
}

// planAddrs lists the addresses of this node.
func planAddrs(c Config, endpoint string, p *Plan) (err error) {
	var local string
	if c.LocalAddr != "" {
		if local, err = discovery.Host(c.LocalAddr); err != nil {
			return fail(job.ExitUsage, "give an address of this node, without a port", "%s %w", c.said("local-addr", c.LocalAddr), err)
		}
	}
	p.Spec.Self.Addrs = localAddrs(local, isLoopback(endpoint))
	return nil
}

// A place is where the nodes meet, and who says so.
type place struct {
	host string
	port int
	zero bool   // node 0 runs there
	flag string // that would say the same
	said string // in the words of whoever did
}

func (at place) addr() job.Addr { return job.Addr(net.JoinHostPort(at.host, strconv.Itoa(at.port))) }

func endpoint(c Config, found discovery.Finding) (place, error) {
	switch {
	case c.Endpoint != "" && c.MasterAddr != "":
		return place{}, fail(job.ExitUsage, "drop one of them", "%s and %s both say where to meet",
			c.said("rdzv-endpoint", c.Endpoint), c.said("master-addr", c.MasterAddr))
	case c.Endpoint != "" && c.MasterPort != 0:
		return place{}, fail(job.ExitUsage, "say --rdzv-endpoint HOST:PORT", "%s goes with --master-addr, not with %s",
			c.said("master-port", c.MasterPort), c.said("rdzv-endpoint", c.Endpoint))
	case c.Endpoint != "":
		host, port, err := discovery.Endpoint(c.Endpoint)
		return place{host: host, port: cmp.Or(port, DefaultPort), flag: "rdzv-endpoint"}.named(c, c.Endpoint, err)
	case c.MasterAddr != "":
		host, err := discovery.Host(c.MasterAddr)
		return place{host: host, port: cmp.Or(c.MasterPort, published(found), DefaultPort), flag: "master-addr", zero: true}.named(c, c.MasterAddr, err)
	case found.Host != "":
		at := place{flag: "rdzv-endpoint", said: strings.Join(found.Evidence, ", "), zero: found.RankZero,
			host: found.Host, port: cmp.Or(c.MasterPort, published(found), DefaultPort)}
		if found.Nodes == 1 && c.asProcess(found) { // whatever the name of this node leads to
			at.host = "127.0.0.1"
		}
		return at, nil
	}
	return place{}, fail(job.ExitUsage, "say "+cmp.Or(c.Dialect.Meet, "--rdzv-endpoint HOST:PORT")+", the same on all nodes", "%d nodes, but nothing says where they meet", max(c.Nodes, found.Nodes)+c.Spares)
}

// published is the port that a platform gives the nodes. One at which the training itself listens becomes another, which all find for
// themselves.
func published(found discovery.Finding) int {
	if !found.Taken {
		return found.Port
	}
	at := beside(job.Addr(net.JoinHostPort(found.Host, strconv.Itoa(found.Port))), found.JobID, nil)
	_, port, _ := net.SplitHostPort(string(at))
	n, _ := strconv.Atoi(port) // our own digits
	return n
}

// named completes at with the words of its flag; err is what is wrong with them.
func (at place) named(c Config, value string, err error) (place, error) {
	at.said = report.NewMask(nil).Text(c.said(at.flag, value))
	if err != nil {
		return at, fail(job.ExitUsage, "give the name or address of the node where all meet", "%s %w", at.said, err)
	}
	return at, nil
}

// planID names the job. Two jobs must never merge, so that the endpoint, which only one job can hold, stands in
// for a name that nobody gave.
func planID(c Config, found discovery.Finding, p *Plan) error {
	from := found.JobIDBy
	switch {
	case c.JobID != "":
		p.Called, p.Name = c.JobID, c.JobID
	case found.JobID != "":
		p.Called, p.Name = found.JobID, inNamespace(found, found.JobID)
	case p.Etcd != nil:
		return fail(job.ExitUsage, "say --rdzv-id ID, the same on all nodes", "many jobs may meet in one etcd, and nothing says which one this is")
	case c.StateDir != "":
		return fail(job.ExitUsage, "say --rdzv-id ID, the same on all nodes", "%s keeps the counts of many jobs, and nothing says which one this is",
			c.said("state-dir", c.StateDir))
	case p.Endpoint != "":
		at := string(p.Endpoint)
		if c.Endpoint+c.MasterAddr == "" {
			at = inNamespace(found, at)
		}
		sum := sha256.Sum256([]byte(at))
		p.Called, from = "job-"+hex.EncodeToString(sum[:4]), "endpoint"
		p.Name = p.Called
	default:
		p.Called, from = "job-"+newID()[:8], "random"
		p.Name = p.Called
	}
	p.Spec.ID = p.Name
	if n, by := c.attempt(found); n > 0 {
		p.Spec.ID += attemptMark + strconv.Itoa(n)
		from = cmp.Or(c.From["rdzv-id"], from) + ", and " + by
		p.Settings = append(p.Settings, Setting{Name: "rdzv-id", Value: p.Spec.ID, From: from})
	} else {
		p.set(c, "rdzv-id", p.Spec.ID, from)
	}
	most := maxID - (len(p.Name) - len(p.Called))
	if c.Attempt > 0 || c.JobID == "" && found.AttemptBy != "" { // the next one shall have room, too
		most -= maxMark
	}
	why := ""
	switch {
	case p.Called == "none":
		why = "that is torchrun's word for no name"
	case len(p.Called) > most:
		why = fmt.Sprintf("it has %d characters", len(p.Called))
	case !utf8.ValidString(p.Called) || strings.ContainsFunc(p.Called, unicode.IsControl):
		why = "it has characters that cannot be shown"
	}
	if why != "" {
		said := c.said("rdzv-id", fmt.Sprintf("%.40q", p.Called))
		if c.JobID == "" {
			said = fmt.Sprintf("%s=%.40q", found.JobIDBy, p.Called)
		}
		return fail(job.ExitUsage, fmt.Sprintf("give each job a name of its own, of at most %d characters", most), "%s cannot name a job: %s", said, why)
	}
	return nil
}

// Meets is the id under which nodes meet of which a platform tells, where no flag says otherwise; "": nothing says it, or this one meets nobody.
func Meets(found discovery.Finding) string {
	var c Config
	var p Plan
	alone := found.Nodes == 1 && found.Least == 0 && found.Servers == 0 && found.JobID == "" && !c.asProcess(found)
	if found.Trouble() != nil || found.Barred != nil || found.Outside || found.Nested || alone {
		return ""
	}
	if at, err := endpoint(c, found); err == nil {
		p.Endpoint = at.addr()
	}
	if p.Endpoint == "" && found.JobID == "" || planID(c, found, &p) != nil {
		return ""
	}
	return p.Spec.ID
}

// attemptMark is between a job's name and the number of the attempt at it. Both have at most maxMark characters, and an id maxID.
const (
	attemptMark = "#"
	maxMark     = len("#9223372036854775807")
	maxID       = 256
)

// Calls reports whether a person who says name may mean the job of this id, whose namespace and attempt need not be said.
func Calls(name, id string) bool {
	bare := id
	if before, n, ok := cutLast(id, attemptMark); ok && n != "" && strings.Trim(n, "0123456789") == "" {
		bare = before
	}
	_, inside, ok := strings.Cut(bare, "/")
	return name == id || name == bare || ok && (name == inside || name == strings.TrimPrefix(id, bare[:len(bare)-len(inside)]))
}

// cutLast is strings.Cut at the last separator.
func cutLast(text, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(text, separator); i >= 0 {
		return text[:i], text[i+len(separator):], true
	}
	return text, "", false
}

// attempt is how often the platform has started this job before, and who says so; 0: it has not, or nothing says it to all nodes alike. Agents of an attempt that is
// over are never taken for those of the next one, and neither is the end of one for that of the other. A name that a user gave may be for nodes of several of a
// platform's jobs, which count each for itself.
func (c Config) attempt(found discovery.Finding) (n int, by string) {
	switch {
	case c.Attempt > 0:
		return c.Attempt, c.said("attempt", c.Attempt)
	case c.JobID == "" && c.From["attempt"] == "" && found.AttemptBy != "":
		return found.Attempt, fmt.Sprintf("%s=%d", found.AttemptBy, found.Attempt)
	}
	return 0, ""
}

// inNamespace is a name that is one in a namespace of Kubernetes only.
func inNamespace(found discovery.Finding, name string) string {
	if found.Namespace == "" {
		return name
	}
	return found.Namespace + "/" + name
}

// newID returns 16 random hexadecimal digits.
func newID() string {
	var b [8]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}
