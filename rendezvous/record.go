package rendezvous

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/muster-run/muster/job"
)

// maxRecord bounds what one node may say of itself, and maxSummary what the leader tells about all.
const (
	maxRecord  = 64 << 10
	maxSummary = 64 << 10
)

// A record is what a node writes under its ticket.
type record struct {
	Protocol int `json:"protocol"`
	job.Terms
	Seen int           `json:"seen,omitempty"` // the newest generation whose world it was a member of
	Led  bool          `json:"led,omitempty"`  // whose leader lives, as it heard
	Past job.Tally     `json:"past,omitzero"`  // of the job, as far as it knows
	Rest time.Duration `json:"rest,omitempty"` // for so long it takes no place
	Node job.Node      `json:"node"`

	Unfit string `json:"unfit,omitempty"` // why no worker can run there; "": they can
	Stays bool   `json:"stays,omitempty"` // all the same, for others need it

	Machine job.Machine `json:"machine,omitzero"` // on which that is

	Rules *job.Rules `json:"rules,omitempty"` // of the job, if it was in a world of it, or else its own; nil: of an older release, or no affair of such a node
}

func (r record) String() string { return r.Node.String() }

// An outcome ends a meeting for all who take part: one of its fields is set, as a rule.
type outcome struct {
	World   *world `json:"world,omitempty"`
	Refused string `json:"refused,omitempty"`
	Told    int    `json:"told,omitempty"`  // beside Refused: how many hear by it that others cannot run workers
	Moved   int    `json:"moved,omitempty"` // the generation in which to go on; beside a World: for who is not in it, which is told again

	// Ended: the world before is over, and no other one follows for those who stood by.
	Ended *job.Verdict `json:"ended,omitempty"`

	Protocol int `json:"protocol,omitempty"` // beside a World: the lowest of those who met; 0: unknown
}

// isWorld reports whether an encoded outcome is a world, of which it does not read the members.
func isWorld(b []byte) bool {
	head, _, _ := bytes.Cut(b, []byte{'\n'})
	end, err := decode[outcome](head, len(head))
	return err == nil && end.World != nil
}

// has reports whether there is an outcome, and it is a world with n, in this incarnation.
func (o *outcome) has(n job.Node) bool {
	if o == nil || o.World == nil {
		return false
	}
	_, found := o.World.rank(n.Incarnation)
	return found
}

// A summary is what the leader tells about an open meeting, each second.
type summary struct {
	Epoch    int            `json:"epoch"`
	Beat     int            `json:"beat"`               // moves with each summary: the leader lives
	Resigned bool           `json:"resigned,omitempty"` // nobody leads: claim the next epoch
	Here     []string       `json:"here"`
	Count    int            `json:"count"`
	Waits    int            `json:"waits,omitempty"` // all who wait, those too who are not to be in a world
	Missing  []int          `json:"missing,omitempty"`
	Replaced map[int]string `json:"replaced,omitempty"` // ticket whose node was taken over → by whom
	Barred   map[int]string `json:"barred,omitempty"`   // ticket of a node that is refused alone → why

	Closes  time.Duration `json:"closes,omitempty"`  // in this time, with whoever is here
	New     bool          `json:"new,omitempty"`     // for the store may have forgotten a world
	Running int           `json:"running,omitempty"` // a generation that must end first
	Alive   time.Duration `json:"alive,omitempty"`   // how long it has been
	Quiet   time.Duration `json:"quiet,omitempty"`   // for how long nothing was heard of it

	Pace time.Duration `json:"pace,omitempty"` // between two signs of life of each node, from protocol 2 on; it only grows

	Unfit []string `json:"unfit,omitempty"` // who cannot run workers, and why

	Unsaid    int           `json:"unsaid,omitempty"`
	UnsaidFor time.Duration `json:"unsaid_for,omitempty"`
	Others    []string      `json:"others,omitempty"`
}

func decode[T any](b []byte, limit int) (T, error) {
	var v T
	if len(b) > limit {
		return v, fmt.Errorf("%d bytes are more than the %d that it may have", len(b), limit)
	}
	return v, json.Unmarshal(b, &v)
}

// What a node says of itself ends on the terminals of all. Names of hosts and pods have at most 253 bytes (RFC 1123).
// A node has at most so many ports to tell as it may have workers.
const (
	maxName   = 253
	maxReason = 4 << 10
	maxPorts  = 4096
	maxFacts  = 64
	maxRails  = 256 // with two ports each, more adapters than any machine has
)

// check refuses a node whose words cannot be shown as they are. Of an incarnation people see eight bytes.
func check(n job.Node) error {
	if len(n.Name) > maxName || len(n.Version) > maxName {
		return fmt.Errorf("the name or version of a node has more than %d bytes: %.32q, %.32q", maxName, n.Name, n.Version)
	}
	for _, text := range []string{n.Name, n.Version, n.Incarnation} {
		if plain(text, len(text)) != text {
			return fmt.Errorf("a node has characters in its name, version or incarnation that cannot be shown: %.64q", text)
		}
	}
	for _, text := range n.Place.Path() {
		if plain(text, maxName) != text {
			return fmt.Errorf("%v has a place of which it says what cannot be shown: %.64q", n, text)
		}
	}
	if len(n.Facts) > maxFacts {
		return fmt.Errorf("%v tells %d facts, more than %d", n, len(n.Facts), maxFacts)
	}
	for _, f := range n.Facts {
		if plain(f.Name, maxName) != f.Name || plain(f.Value, maxName) != f.Value {
			return fmt.Errorf("%v tells a fact that cannot be shown: %.64q is %.64q", n, f.Name, f.Value)
		}
	}
	return cmp.Or(checkPorts(n), checkRails(n))
}

func checkRails(n job.Node) error {
	if len(n.Rails) > maxRails {
		return fmt.Errorf("%v has %d rails, more than %d", n, len(n.Rails), maxRails)
	}
	for _, r := range n.Rails {
		for _, text := range []string{r.Name, r.At, r.Why} {
			if plain(text, maxName) != text {
				return fmt.Errorf("%v has a rail of which it says what cannot be shown: %.64q", n, text)
			}
		}
	}
	return nil
}

func checkPorts(n job.Node) error {
	if len(n.Ports) > maxPorts {
		return fmt.Errorf("%v has %d ports, more than %d", n, len(n.Ports), maxPorts)
	}
	if i := slices.IndexFunc(n.Ports, func(port int) bool { return port < 1 || port > 65535 }); i >= 0 {
		return fmt.Errorf("%v has %d for a port", n, n.Ports[i])
	}
	return nil
}

func checkAll(members []job.Member) error {
	for _, m := range members {
		if err := check(m.Node); err != nil {
			return err
		}
	}
	return nil
}

// plain is the beginning of a text that others wrote, without what would steer a terminal.
func plain(text string, most int) string {
	text = text[:min(len(text), most)]
	if simple(text) {
		return text
	}
	text = strings.ToValidUTF8(text, "")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
}

// simple reports whether a text is printable ASCII, as nearly all are; every node looks through the words of all.
func simple(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// A ticket is one draw, as the leader sees it.
type ticket struct {
	number int
	record
}

func (t ticket) String() string {
	at := ""
	if len(t.Node.Addrs) > 0 {
		at = " at " + plain(string(t.Node.Addrs[0]), 64)
	}
	return fmt.Sprintf("%v%s, incarnation %.8s, ticket %d", t.record, at, t.Node.Incarnation, t.number)
}

// same reports whether a and b are two lives of one node: the same platform index, or, where none was given,
// the same name and an address and port in common, which two living agents of one host cannot have.
func same(a, b job.Node) bool {
	if a.Incarnation == b.Incarnation {
		return true
	}
	if a.Index >= 0 || b.Index >= 0 {
		return a.Index == b.Index
	}
	return a.Name == b.Name && slices.ContainsFunc(a.Addrs, func(x job.Addr) bool { return slices.Contains(b.Addrs, x) })
}

// identities are the keys under which two lives of one node are found without comparing all with all.
func identities(n job.Node) []string {
	keys := []string{"life " + n.Incarnation}
	if n.Index >= 0 {
		return append(keys, fmt.Sprint("index ", n.Index))
	}
	for _, a := range n.Addrs {
		keys = append(keys, fmt.Sprintf("name %s at %s", n.Name, a))
	}
	return keys
}

// distinct drops every ticket of a node that came again later; the newest wins. It returns who replaced whom.
func distinct(tickets []ticket) (kept []ticket, replaced map[int]ticket) {
	newest := map[string]ticket{}
	replaced = map[int]ticket{}
	for _, t := range slices.Backward(tickets) {
		if by, found := already(newest, t); found {
			replaced[t.number] = by
			continue
		}
		for _, id := range identities(t.Node) {
			newest[id] = t
		}
		kept = append(kept, t)
	}
	slices.Reverse(kept)
	return kept, replaced
}

func already(newest map[string]ticket, t ticket) (ticket, bool) {
	for _, id := range identities(t.Node) {
		if by, found := newest[id]; found {
			return by, true
		}
	}
	return ticket{}, false
}

// contradiction says why the world that a leads cannot include b, or that none is possible: nil if it can.
func contradiction(a, b record) error {
	if d := a.Protocol - b.Protocol; d > 1 || d < -1 {
		return fmt.Errorf("%v runs muster %s, which speaks meeting protocol %d, and %v runs muster %s, which speaks %d; "+
			"use the same image on all nodes", a, version(a), a.Protocol, b, version(b), b.Protocol)
	}
	if a.Nodes != b.Nodes || a.Fewest() != b.Fewest() {
		return fmt.Errorf("%v expects %s nodes, %v expects %s; give all nodes the same --nnodes", a, a.Size(), b, b.Size())
	}
	if a.Spares != b.Spares {
		return fmt.Errorf("%v expects %d spares, %v expects %d; give all nodes the same --spares", a, a.Spares, b, b.Spares)
	}
	if a.Token != b.Token {
		return fmt.Errorf("%v and %v do not have the same job token; give all nodes the same one, or none", a, b)
	}
	if a.Process != b.Process {
		one, whole := a, b
		if b.Process {
			one, whole = b, a
		}
		return fmt.Errorf("%v was started for one of several processes on its machine, %v, the only one on its own, for all workers there; "+
			"start as many on each machine (mpirun --map-by ppr:N:node), or one on each", one, whole)
	}
	if a.Debug != b.Debug {
		with, without := a, b
		if b.Debug {
			with, without = b, a
		}
		return fmt.Errorf("%v was started with --debug, %v without; say it on all nodes or on none", with, without)
	}
	if both := a.Unfit == "" && b.Unfit == ""; both && (a.Framework != b.Framework || a.Servers != b.Servers) {
		return fmt.Errorf("%v is to train with %s, %v with %s; give all nodes the same --framework and --ps", a, training(a.Terms), b, training(b.Terms))
	}
	if a.OnExit != b.OnExit {
		return fmt.Errorf("%v was started with --on-worker-exit %s, %v with %s; give all nodes the same", a, onExit(a.Terms), b, onExit(b.Terms))
	}
	if a.Rails != b.Rails {
		return fmt.Errorf("%v was started with --nccl-rails %s, %v with %s; give all nodes the same", a, rails(a.Terms), b, rails(b.Terms))
	}
	if all := b.Nodes + b.Spares; b.Node.Index >= all {
		return fmt.Errorf("%v has an index beyond the last of %d nodes, which is %d", b, all, all-1)
	}
	return slots(a, b)
}

// training is what a node was told of the framework.
func training(t job.Terms) string {
	text := cmp.Or(t.Framework, "torch")
	if t.Servers > 0 {
		text += fmt.Sprintf(" and %d parameter servers", t.Servers)
	}
	return text
}

func rails(t job.Terms) string { return cmp.Or(t.Rails, "tell") }

func onExit(t job.Terms) string { return cmp.Or(t.OnExit, "stop") }

func slots(a, b record) error {
	uneven := a.Uneven && b.Uneven
	switch {
	case a.Unfit != "", b.Unfit != "": // who takes no part need not be like others
		return nil
	case b.Node.Slots < 0:
		return fmt.Errorf("%v brings %d slots", b, b.Node.Slots)
	case b.Node.Slots == 0 && !uneven:
		return fmt.Errorf("%v brings no slots, so no worker would run there; say --uneven on all nodes if that is meant", b)
	case a.Node.Slots != b.Node.Slots && !uneven:
		return fmt.Errorf("%v brings %d slots, %v brings %d; say --uneven on all nodes if that is meant",
			a, a.Node.Slots, b, b.Node.Slots)
	}
	return nil
}

func version(r record) string {
	if r.Node.Version == "" {
		return "of unknown version"
	}
	return r.Node.Version
}

// wide finds the two records whose protocols are furthest apart: each may be near the leader's and not the other's.
func wide(tickets []ticket) error {
	byProtocol := func(a, b ticket) int { return a.Protocol - b.Protocol }
	return contradiction(slices.MinFunc(tickets, byProtocol).record, slices.MaxFunc(tickets, byProtocol).record)
}

// idle refuses a world in which no node brings a slot.
func idle(tickets []ticket) error {
	if slices.ContainsFunc(tickets, func(t ticket) bool { return t.Node.Slots > 0 }) {
		return nil
	}
	return errors.New("no node brings a slot, so there is nothing to run on")
}
