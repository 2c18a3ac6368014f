// Package job is the vocabulary of a training job: plain values that every room of the house shares.
// It knows no files, no clocks, no network and no platform.
package job

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Node is one agent's offer to a world: one host, or one pod, and the slots that it brings.
type Node struct {
	Name  string `json:"name"`            // host or pod name, for people
	Index int    `json:"index"`           // the platform's node number, from 0; -1: none was given
	Fixed bool   `json:"fixed,omitempty"` // that number counts for its ranks, wherever it stands
	Slots int    `json:"slots"`           // workers that this node will run
	Addrs []Addr `json:"addrs,omitempty"` // where peers may reach its agent, best first
	Place Place  `json:"place,omitzero"`  // where it stands, for ranks that are near
	Ports []int  `json:"ports,omitempty"` // where its workers listen, by local rank, if the framework wants them known to all
	Rails []Rail `json:"rails,omitempty"` // its ports for training, in the order of the PCI buses
	Facts []Fact `json:"facts,omitempty"` // of its machine, to be held against those of others
	// Incarnation tells two lives of one node apart: random, new with every agent process.
	Incarnation string `json:"incarnation"`
	Version     string `json:"version,omitempty"` // of the muster binary
}

// String names the node as messages do: its name, and its index where it has one.
func (n Node) String() string {
	if n.Index < 0 {
		return n.Name
	}
	return fmt.Sprintf("%s (node %d)", n.Name, n.Index)
}

// A Rail is a port of a network adapter by which GPUs of a node reach those of others.
type Rail struct {
	Name string `json:"name"`
	At   string `json:"at"`            // its place in the machine, which nodes of one kind have alike
	Why  string `json:"why,omitempty"` // it cannot be used; "": it can
}

// A Fact is something that nodes should have alike: a version, a size.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// An Addr is a host, name or literal IP, and a port: "10.0.0.7:29400", "[fd00::7]:29400".
type Addr string

// A Place is where a node stands in the network, widest first. Empty parts are unknown.
type Place struct {
	Zone, Block, Rack string
	Domain            string // of NVLink between machines, a clique
	Switch            string
}

// Path returns the parts of p, widest first, for ordering.
func (p Place) Path() []string { return []string{p.Zone, p.Block, p.Rack, p.Domain, p.Switch} }

// PlaceParts are the names of a Path's parts, as people say and read them.
var PlaceParts = []string{"zone", "block", "rack", "clique", "switch"}

// PlaceOf is the Place with such a Path.
func PlaceOf(path []string) Place {
	return Place{Zone: path[0], Block: path[1], Rack: path[2], Domain: path[3], Switch: path[4]}
}

// String is what is known of p: "rack=r7,switch=leaf3".
func (p Place) String() string {
	var parts []string
	for i, part := range p.Path() {
		if part != "" {
			parts = append(parts, PlaceParts[i]+"="+part)
		}
	}
	return strings.Join(parts, ",")
}

// A Spec is what one node brings to a meeting: which job, how many nodes, and itself.
type Spec struct {
	ID string // the job's id, the same on all its nodes; never "none"
	Terms
	Self    Node
	Machine Machine // on which that is
}

// Terms are what all nodes of a job must have been told alike, but for the Program.
type Terms struct {
	Nodes     int    `json:"nodes"`               // how many nodes make the world, at most
	Least     int    `json:"least,omitempty"`     // how many make one if need be; 0: all Nodes
	Spares    int    `json:"spares,omitempty"`    // how many beyond the world stand by, to take a lost node's place
	Uneven    bool   `json:"uneven,omitempty"`    // nodes may bring different numbers of slots, or none
	Debug     bool   `json:"debug,omitempty"`     // nothing is trained
	OnExit    string `json:"on_exit,omitempty"`   // what follows when a worker fails, as --on-worker-exit says it; "": stop
	Rails     string `json:"rails,omitempty"`     // what is done where nodes have not the same ones, as --nccl-rails says it; "": tell
	Process   bool   `json:"process,omitempty"`   // each is one process of a machine that may have several, and not a machine
	Servers   int    `json:"servers,omitempty"`   // how many of them, the last ones, are parameter servers
	Framework string `json:"framework,omitempty"` // of the training; "": PyTorch
	Token     string `json:"token,omitempty"`     // by what the job's token is recognised; it does not give it away
	Program   uint64 `json:"program,omitempty"`   // of the command, as ProgramOf: the one thing here that may differ. A world's is that of all its nodes, or Various; 0: not known
}

// Various is the Program of a world whose nodes do not all run the same command. No command has it.
const Various = 1 << programBits

// programBits are as many as a number in JSON keeps, whoever reads it (RFC 8259, 6).
const programBits = 48

// ProgramOf is by what a command is recognised. It does not give away what may stand in it.
func ProgramOf(argv []string) uint64 {
	sum := sha256.Sum256([]byte(strings.Join(argv, "\x00")))
	return binary.BigEndian.Uint64(sum[:8]) >> (64 - programBits)
}

// Fewest is with how many nodes a world may begin.
func (t Terms) Fewest() int { return cmp.Or(t.Least, t.Nodes) }

// Size is how many nodes make a world, as --nnodes says it: "4", or "2:4".
func (t Terms) Size() string {
	if t.Fewest() == t.Nodes {
		return strconv.Itoa(t.Nodes)
	}
	return fmt.Sprintf("%d:%d", t.Fewest(), t.Nodes)
}

// ParseNodes reads a number of nodes as --nnodes says it: N, or MIN:MAX. The fewest are 0 where they are all.
func ParseNodes(text string) (fewest, all int, err error) {
	low, high, ranged := strings.Cut(text, ":")
	if !ranged {
		high = low
	}
	fewest, err1 := strconv.Atoi(low)
	all, err2 := strconv.Atoi(high)
	switch {
	case err1 != nil || err2 != nil || fewest < 1 || all > MaxNodes:
		return 0, 0, fmt.Errorf("%.40q is no number of nodes: give N or MIN:MAX, from 1 to %d", text, MaxNodes)
	case fewest > all:
		return 0, 0, fmt.Errorf("%q is no number of nodes: the first is to be the fewest, the second the most", text)
	case fewest == all:
		fewest = 0
	}
	return fewest, all, nil
}

// MaxNodes bounds the nodes of a job: beyond the largest clusters, and a typing error is caught early.
const MaxNodes = 1 << 17

// Standby reports whether a node that finds no place in a world waits for the next one.
func (t Terms) Standby() bool { return t.Spares > 0 || t.Fewest() < t.Nodes }

// A World is what the nodes agreed on: who takes part, in which order, and therefore every rank.
type World struct {
	ID         string   `json:"id"`
	Nonce      string   `json:"nonce"`      // random, known to members only; opens the leader's channel
	Generation int      `json:"generation"` // counts the worlds of this job, from 1
	Terms      Terms    `json:"terms"`      // on which it was made
	Members    []Member `json:"members"`    // by group rank
	Past       Tally    `json:"past,omitzero"`
	Rules      *Rules   `json:"rules,omitempty"` // of the job; nil: who made the world is of a release that does not tell them
}

// Rules are by what a job goes on from world to world: what its first leader was told, whoever leads since.
type Rules struct {
	LastCall time.Duration   `json:"last_call,omitempty"` // how long nodes wait for more of them when the fewest are there
	Fence    time.Duration   `json:"fence,omitempty"`     // how long members of a world may live without hearing its leader
	Timeout  time.Duration   `json:"timeout,omitempty"`   // after how much silence they give each other up; 0, as of older releases: NodeTimeout
	Closed   bool            `json:"closed,omitempty"`    // who was in no world yet only takes the place of a node that was lost
	Policy   json.RawMessage `json:"policy,omitempty"`    // all else, as launchers write it
}

// NodeTimeout is after how much silence nodes give each other up where their job does not say. Agents say each second that they live, and are
// suspect after 3 s; nobody begins another round before those that are lost must have given up, too.
const (
	NodeTimeout    = 10 * time.Second
	MinNodeTimeout = 5 * time.Second
	MaxNodeTimeout = 5 * time.Minute
)

// NodeTimeout is after how much silence they do. Who made the world may not have told, or told what nobody can do.
func (r *Rules) NodeTimeout() time.Duration {
	if r == nil || r.Timeout == 0 {
		return NodeTimeout
	}
	return min(max(r.Timeout, MinNodeTimeout), MaxNodeTimeout)
}

// Hold is how long nodes wait in a store that is new, for those of a world that it forgot: until no worker can live there. Its members tell it of that world
// as soon as they have lost their leader: nobody waits longer for those who hear nothing of either.
func (r *Rules) Hold() time.Duration { return min(r.Fence, r.NodeTimeout()+20*time.Second) }

// A Tally counts the rounds of a job that are over, in all its worlds.
type Tally struct {
	Rounds int `json:"rounds,omitempty"`
	Free   int `json:"free,omitempty"` // of them, those that did not end by a failure
}

// A Member is a node in a world.
type Member struct {
	Node
	First int `json:"first"` // global rank of its local rank 0
}

// Size returns the number of workers, WORLD_SIZE. Members follow each other: the last one's ranks are the last.
func (w World) Size() int {
	if len(w.Members) == 0 {
		return 0
	}
	last := w.Members[len(w.Members)-1]
	return last.First + last.Slots
}

// Mark tells the world from every other one, of whatever job. It says nothing of the nonce.
func (w World) Mark() string {
	sum := sha256.Sum256([]byte("the mark of " + w.Nonce))
	return hex.EncodeToString(sum[:6])
}

// GroupRank returns the position of the node with this incarnation, and whether it is a member.
func (w World) GroupRank(incarnation string) (int, bool) {
	i := slices.IndexFunc(w.Members, func(m Member) bool { return m.Incarnation == incarnation })
	return i, i >= 0
}

// MemberOf returns the group rank of the node that runs the worker with this global rank.
func (w World) MemberOf(rank int) (int, bool) {
	i := slices.IndexFunc(w.Members, func(m Member) bool { return m.First <= rank && rank < m.First+m.Slots })
	return i, i >= 0
}

// A Seat is one node's place in a world, with what it must know to take it. It need not know of all the others for that.
type Seat struct {
	Job, Nonce  string
	Generation  int
	Rank        int    // group rank
	Incarnation string // of the node itself
	Leader      Node   // group rank 0
}

// A Var is one environment variable of a worker and the reason for it, which `muster env` shows.
type Var struct {
	Name, Value string
	Why         string
}

// An Env is an ordered list of variables; a later one of the same name wins.
type Env []Var

// Lookup returns the value that wins.
func (e Env) Lookup(name string) (string, bool) {
	for _, v := range slices.Backward(e) {
		if v.Name == name {
			return v.Value, true
		}
	}
	return "", false
}

// Over lays e over base, which is in the form of os.Environ: e wins, order is kept, each name stands once.
// Of duplicates in base the first stays, for it is the one that getenv(3) and Python see.
func (e Env) Over(base []string) []string {
	last := map[string]string{}
	for _, v := range e {
		last[v.Name] = v.Value
	}
	out := make([]string, 0, len(base)+len(e))
	seen := map[string]bool{}
	for _, kv := range base {
		name, _, _ := strings.Cut(kv, "=")
		if _, ours := last[name]; !ours && !seen[name] {
			out = append(out, kv)
		}
		seen[name] = true
	}
	for _, v := range e {
		if value, first := last[v.Name]; first {
			out = append(out, v.Name+"="+value)
			delete(last, v.Name)
		}
	}
	return out
}

// A Task is one process to start on this node.
type Task struct {
	Rank      int // global rank
	LocalRank int
	Argv      []string
	Env       Env // laid over the agent's own environment
	Binding   Binding
}

// A Binding is where on its machine a process runs, with all that it starts. The zero Binding is anywhere.
type Binding struct {
	CPUs   []int
	Memory []int // the nodes of NUMA of which it has its memory
	Prefer bool  // it may have it of others when there is none left of these
}

// An Exit says how a worker ended. The zero Exit is success.
type Exit struct {
	Code   int    `json:"code"`             // exit code, when it was not killed by a signal
	Signal int    `json:"signal,omitempty"` // signal that killed it, or 0
	Core   bool   `json:"core,omitempty"`   // a core was dumped
	Sent   bool   `json:"sent,omitempty"`   // the signal, or the one that made it exit, was ours
	Err    string `json:"err,omitempty"`    // it could not be started: why
}

// OK reports whether the worker did what it should.
func (e Exit) OK() bool { return e.Code == 0 && e.Signal == 0 && e.Err == "" }

// A Failure is a worker that ended badly, told to the whole world.
type Failure struct {
	Node      string        `json:"node"` // name of the host
	Group     int           `json:"group"`
	Rank      int           `json:"rank"`
	LocalRank int           `json:"local_rank"`
	Restarts  int           `json:"restarts,omitempty"` // number of the worker's life, TORCHELASTIC_RESTART_COUNT
	PID       int           `json:"pid"`
	Exit      Exit          `json:"exit"`
	Ago       time.Duration `json:"ago"`                 // between its end and the telling, by the teller's own clock
	At        time.Time     `json:"at"`                  // of its end, by its own node's clock, which other nodes do not share
	Exception string        `json:"exception,omitempty"` // what the script said it failed of, in a line
	Caught    bool          `json:"caught,omitempty"`    // it went on from that, and ended in another way
	InThread  bool          `json:"in_thread,omitempty"` // a thread of it had ended with that, which may have been all, or long ago
	Tail      []string      `json:"tail,omitempty"`      // its last lines of output
	Evidence  []Evidence    `json:"evidence,omitempty"`  // what else was found
	Hint      string        `json:"hint,omitempty"`      // what to do
	Step      uint64        `json:"step,omitempty"`      // of training, at which it failed; 0: none, or not known
	Echo      bool          `json:"echo,omitempty"`      // it says that it failed because another one had
}

// Evidence is one thing that helps to understand a failure.
type Evidence struct {
	Kind string `json:"kind"` // a word for programs: oom, shm-full, disk-full, cuda-oom, …
	Text string `json:"text"` // a sentence for people
}

// Ended is one worker and how it ended.
type Ended struct {
	Rank      int  `json:"rank"`
	LocalRank int  `json:"local_rank"`
	Group     int  `json:"group"` // of its node
	PID       int  `json:"pid"`
	Exit      Exit `json:"exit"`
	Over      bool `json:"over,omitempty"`   // its program had come to its end, without an exception, when it was stopped,
	Raised    bool `json:"raised,omitempty"` // or with one
	Late      bool `json:"late,omitempty"`   // it ended when its node was to stop its workers, for something had failed,
	Held      bool `json:"held,omitempty"`   // or when that was only held, for it was not known what had failed first
}
