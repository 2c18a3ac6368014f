package torchrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// A Round is a complete world of torchrun's.
type Round struct {
	Number int32
	Rank   int // group rank of this node
	Nodes  int

	First     int // global rank of this node's local rank 0
	World     int // WORLD_SIZE
	RoleFirst int // role rank of local rank 0
	RoleWorld int

	MasterAddr string
	MasterPort int
}

type address struct {
	host string
	port int
}

// An offer is what a node tells of itself in a round.
type offer struct {
	Role  string `json:"role"`
	Rank  int    `json:"rank"`
	Slots int    `json:"local_world_size"`
}

// maxSlots bounds the workers that another node claims to have.
const maxSlots = 1 << 16

// at is the key of something that the nodes of a round tell each other.
func (n *Node) at(r *Round, key string) string {
	return fmt.Sprintf("%s.%d/%s", n.key(), r.Number, key)
}

// old reports whether the nodes exchange ranks as before PyTorch 2.4: each reads what all others offer. A state does
// not tell 2.3 from 2.4; we take it for 2.4.
func (n *Node) old() bool { return !n.state.Layout.Redundancy }

// agree fills in what a round's nodes have to tell each other: the ranks and the master's address.
func (n *Node) agree(ctx context.Context, r *Round) error {
	steps := []func(context.Context, *Round) error{n.findMaster, n.ranksFromZero}
	if n.old() {
		steps = []func(context.Context, *Round) error{n.ranksFromAll, n.findMaster}
	}
	for _, step := range steps {
		if err := step(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// findMaster publishes the master's address, or waits for it.
func (n *Node) findMaster(ctx context.Context, r *Round) error {
	if n.c.Shared && n.master.host != "" {
		r.MasterAddr, r.MasterPort = n.master.host, n.master.port
		return nil
	}
	if r.Rank == 0 {
		if err := n.offerMaster(ctx, r); err != nil {
			return err
		}
	}
	host, err := n.st.Get(ctx, n.at(r, "MASTER_ADDR"))
	if err != nil {
		return err
	}
	port, err := n.st.Get(ctx, n.at(r, "MASTER_PORT"))
	if err != nil {
		return err
	}
	number, err := strconv.ParseUint(string(port), 10, 16)
	if err != nil || number == 0 || len(host) == 0 || len(host) > maxAddr {
		return fmt.Errorf("the master's address is %.100q, port %.10q", host, port)
	}
	r.MasterAddr, r.MasterPort = string(host), int(number)
	n.master = address{r.MasterAddr, r.MasterPort}
	return nil
}

func (n *Node) offerMaster(ctx context.Context, r *Round) error {
	host, port, err := n.c.Master(ctx)
	if err != nil {
		return fmt.Errorf("the workers' master: %w", err)
	}
	if err := n.st.Set(ctx, n.at(r, "MASTER_ADDR"), []byte(host)); err != nil {
		return err
	}
	return n.st.Set(ctx, n.at(r, "MASTER_PORT"), []byte(strconv.Itoa(port)))
}

// ranksFromZero: every node makes its offer, group rank 0 answers each.
func (n *Node) ranksFromZero(ctx context.Context, r *Round) error {
	if err := n.offer(ctx, r, "torchelastic/role_info/"); err != nil {
		return err
	}
	if r.Rank == 0 {
		offers, err := n.offers(ctx, r, "torchelastic/role_info/")
		if err != nil {
			return err
		}
		if err := n.assign(ctx, r, offers); err != nil {
			return err
		}
	}
	value, err := n.st.Get(ctx, n.at(r, "torchelastic/assigned_ranks/"+strconv.Itoa(r.Rank)))
	if err != nil {
		return err
	}
	var assigned [4]int
	if err := json.Unmarshal(value, &assigned); err != nil {
		return fmt.Errorf("assigned ranks %.100q: %w", value, err)
	}
	r.First, r.World, r.RoleFirst, r.RoleWorld = assigned[0], assigned[1], assigned[2], assigned[3]
	return nil
}

// assign publishes each node's ranks.
func (n *Node) assign(ctx context.Context, r *Round, offers []offer) error {
	keys, values := make([]string, len(offers)), make([][]byte, len(offers))
	for i := range offers {
		each := Round{Rank: i}
		each.place(offers)
		keys[i] = n.at(r, "torchelastic/assigned_ranks/"+strconv.Itoa(i))
		values[i] = fmt.Appendf(nil, "[%d, %d, %d, %d]", each.First, each.World, each.RoleFirst, each.RoleWorld)
	}
	return n.st.MultiSet(ctx, keys, values)
}

// ranksFromAll: every node reads all offers and computes for itself. Nobody goes on before group rank 0 has seen that all did.
func (n *Node) ranksFromAll(ctx context.Context, r *Round) error {
	const key = "torchelastic/role_info"
	if err := n.offer(ctx, r, key); err != nil {
		return err
	}
	offers, err := n.offers(ctx, r, key)
	if err != nil {
		return err
	}
	r.place(offers)
	return n.allDone(ctx, r, key)
}

// allDone says that this node has read what it needs. Group rank 0, whose store it may be, waits for all.
func (n *Node) allDone(ctx context.Context, r *Round, key string) error {
	err := n.st.Set(ctx, n.at(r, key+strconv.Itoa(r.Rank)+".FIN"), []byte("FIN"))
	if err != nil || r.Rank != 0 {
		return err
	}
	return n.st.Wait(ctx, n.all(r, key, ".FIN")...)
}

func (n *Node) all(r *Round, key, suffix string) []string {
	keys := make([]string, r.Nodes)
	for i := range keys {
		keys[i] = n.at(r, key+strconv.Itoa(i)+suffix)
	}
	return keys
}

func (n *Node) offer(ctx context.Context, r *Round, key string) error {
	b, err := json.Marshal(offer{n.c.Role, r.Rank, n.c.Slots})
	if err != nil {
		return err
	}
	return n.st.Set(ctx, n.at(r, key+strconv.Itoa(r.Rank)), b)
}

// offers waits for what all nodes offer, and returns it by group rank.
func (n *Node) offers(ctx context.Context, r *Round, key string) ([]offer, error) {
	values, err := n.st.MultiGet(ctx, n.all(r, key, "")...)
	if err != nil {
		return nil, err
	}
	offers := make([]offer, len(values))
	for i, value := range values {
		err := json.Unmarshal(value, &offers[i])
		if err == nil && (offers[i].Rank != i || offers[i].Slots < 0 || offers[i].Slots > maxSlots) {
			err = errors.New("it cannot be")
		}
		if err != nil {
			return nil, fmt.Errorf("offer of node %d, %.100q: %w", i, value, err)
		}
	}
	return offers, nil
}

// place computes the ranks of r's node: its workers come after those of lower nodes, in the world and in its role.
func (r *Round) place(offers []offer) {
	r.First, r.World, r.RoleFirst, r.RoleWorld = 0, 0, 0, 0
	for i, o := range offers {
		before := i < r.Rank
		r.World += o.Slots
		if before {
			r.First += o.Slots
		}
		if o.Role == offers[r.Rank].Role {
			r.RoleWorld += o.Slots
			if before {
				r.RoleFirst += o.Slots
			}
		}
	}
}

// Finish tells the other nodes that this one's workers are done and waits until theirs are. torchrun gives it 300 s, and
// does not mind when it fails.
func (n *Node) Finish(ctx context.Context, r *Round) error {
	err := n.finish(ctx, r)
	if err != nil {
		return fmt.Errorf("torchrun: wait for the other nodes of %s: %w", n.c.RunID, err)
	}
	return nil
}

func (n *Node) finish(ctx context.Context, r *Round) error {
	const key = "torchelastic/agent/terminal_state"
	if n.old() {
		if err := n.st.Set(ctx, n.at(r, key+strconv.Itoa(r.Rank)), []byte(strconv.Itoa(r.Rank))); err != nil {
			return err
		}
		if err := n.st.Wait(ctx, n.all(r, key, "")...); err != nil {
			return err
		}
		return n.allDone(ctx, r, key)
	}
	there, err := n.st.Add(ctx, n.at(r, key+"/num_members"), 1)
	if err != nil {
		return err
	}
	last := n.at(r, key+"/last_member")
	if int(there) == r.Nodes {
		return n.st.Set(ctx, last, []byte("<val_ignored>"))
	}
	return n.st.Wait(ctx, last)
}
