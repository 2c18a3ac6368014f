package nccl

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-run/muster/topology"
)

// A remark is what is wrong with a variable that others have set; "" if nothing is.
type remark struct {
	name string
	says func(f *facts, value string) string
}

// always is for variables that hurt whatever their value is.
func always(text string) func(*facts, string) string {
	return func(*facts, string) string { return text }
}

// remarks are about what copies of old recipes bring.
var remarks = []remark{
	{"NCCL_IB_HCA", badHCAs},
	{"NCCL_SOCKET_IFNAME", badInterface},
	{"GLOO_SOCKET_IFNAME", badName},
	{"NCCL_IB_GID_INDEX", badGID},
	{"NCCL_IB_TC", notOnIB},
	{"NCCL_TOPO_FILE", badTopology},
	{"NCCL_IB_RETRY_CNT", overSeven},
	{"NCCL_IB_CUDA_SUPPORT", always("NCCL reads it no more since 2.4")},
	{"NCCL_LL_THRESHOLD", always("NCCL reads it no more")},
	{"NCCL_TREE_THRESHOLD", always("NCCL reads it no more")},
	{"NCCL_CHECK_DISABLE", always("NCCL reads it no more")},
	{"NCCL_ALGO", locks},
	{"NCCL_PROTO", locks},
	{"NCCL_P2P_DISABLE", slowOnBoards},
	{"NCCL_SHM_DISABLE", slowOnBoards},
	{"NCCL_IB_DISABLE", noFabric},
	{"NCCL_NET_GDR_LEVEL", number},
	{"NCCL_P2P_LEVEL", number},
	{"NCCL_DEBUG", level},
	{"FI_EFA_USE_DEVICE_RDMA", old},
	{"FI_EFA_FORK_SAFE", old},
	{"RDMAV_FORK_SAFE", old},
}

// lint says what is wrong with what others have set.
func (f *facts) lint() (notes []string) {
	if !f.collective() {
		return nil
	}
	for _, r := range remarks {
		value, from, set := f.set(r.name)
		if !set {
			continue
		}
		if text := r.says(f, value); text != "" {
			notes = append(notes, fmt.Sprintf("%s=%.80s (%s): %s", r.name, value, from, text))
		}
	}
	return notes
}

// A filter is the value of NCCL_IB_HCA or NCCL_SOCKET_IFNAME: [^][=]name[:port],….
type filter struct {
	not, exact bool
	names      []string
}

func parseFilter(value string) (l filter) {
	value, l.not = strings.CutPrefix(value, "^")
	value, l.exact = strings.CutPrefix(value, "=")
	for name := range strings.SplitSeq(value, ",") {
		if name, _, _ = strings.Cut(strings.TrimSpace(name), ":"); name != "" {
			l.names = append(l.names, name)
		}
	}
	return l
}

// picks reports whether a name passes.
func (l filter) picks(name string) bool {
	if len(l.names) == 0 {
		return true
	}
	return l.not != slices.ContainsFunc(l.names, func(n string) bool { return name == n || !l.exact && strings.HasPrefix(name, n) })
}

func badHCAs(f *facts, value string) string {
	verbs, l := f.verbs(), parseFilter(value)
	if len(verbs) == 0 {
		return ""
	}
	var picked []string
	for _, r := range verbs {
		if l.picks(r.HCA.Name) {
			picked = append(picked, r.HCA.Name)
		}
	}
	var more []string
	for _, name := range picked {
		if !l.not && !l.exact && !slices.Contains(l.names, name) && slices.ContainsFunc(l.names, func(n string) bool { return f.meansMore(n, name) }) {
			more = append(more, name)
		}
	}
	switch {
	case len(picked) == 0:
		return "no adapter of this node that can be used is among these"
	case len(more) > 0:
		return "names are beginnings of names: it also means " + list(more) + "; write = before the list"
	}
	return ""
}

// meansMore reports whether the name of one adapter of this node is, by chance, how another's begins: mlx5_1, of mlx5_10. mlx5 means all
// of a family, and nobody's name.
func (f *facts) meansMore(name, picked string) bool {
	rest, begins := strings.CutPrefix(picked, name)
	return begins && rest != "" && rest[0] >= '0' && rest[0] <= '9' &&
		slices.ContainsFunc(f.Machine.HCAs, func(h topology.HCA) bool { return h.Name == name })
}

func badInterface(f *facts, value string) string {
	l := parseFilter(value)
	if !slices.ContainsFunc(f.Machine.Nets, func(n topology.Net) bool { return n.State != "down" && l.picks(n.Name) }) && len(f.Machine.Nets) > 0 {
		return "no interface of this node that is up is among these: NCCL will find none"
	}
	return ""
}

func badName(f *facts, value string) string {
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name) // none is as if it were not set
		if name != "" && !slices.ContainsFunc(f.Machine.Nets, func(n topology.Net) bool { return n.Name == name }) && len(f.Machine.Nets) > 0 {
			return "this node has no such interface; it is to be a name, in full"
		}
	}
	return ""
}

func badGID(f *facts, value string) string {
	index, err := strconv.Atoi(value)
	switch {
	case f.transport == "ib":
		return "the adapters are InfiniBand's, where it does nothing but harm"
	case err != nil || index < 0 || f.transport != "roce":
		return ""
	}
	for _, r := range f.rails {
		i := slices.IndexFunc(r.Port.GIDs, func(g topology.GID) bool { return g.Index == index })
		if i < 0 || !strings.EqualFold(r.Port.GIDs[i].Type, "RoCE v2") {
			return fmt.Sprintf("%s has no GID of RoCE v2 there, as far as this container sees", r.Name())
		}
	}
	return ""
}

func notOnIB(f *facts, value string) string {
	if f.transport == "ib" && value != "0" {
		return "it is for RoCE, and the adapters are InfiniBand's"
	}
	return ""
}

func badTopology(f *facts, value string) string {
	if f.Container.Missing != "" {
		return "there is no such file in this container: NCCL goes on without a word, and without GPUDirect where the machine hides its PCIe switches"
	}
	return ""
}

func overSeven(_ *facts, value string) string {
	if n, err := strconv.Atoi(value); err == nil && n > 7 {
		return "the field has three bits: 7 is the most"
	}
	return ""
}

func locks(*facts, string) string {
	return "meant for debugging: it locks out what newer versions of NCCL would choose"
}

// board reports whether the GPUs sit on a board with NVLink.
func (f *facts) board() bool { return len(f.gpus) > 1 && len(f.gpus[0].Links) > 0 }

func slowOnBoards(f *facts, value string) string {
	if value != "0" && value != "" && f.board() {
		return "these GPUs have links of their own, which it may leave unused"
	}
	return ""
}

func noFabric(f *facts, value string) string {
	if value != "0" && value != "" && (f.transport == "ib" || f.transport == "roce") && f.World.Nodes > 1 {
		return fmt.Sprintf("%d ports for training stay unused, and data goes by TCP", len(f.rails))
	}
	return ""
}

func number(_ *facts, value string) string {
	if _, err := strconv.Atoi(value); err == nil {
		return "numbers mean other things in other versions of NCCL; write LOC, PIX, PXB, PHB or SYS"
	}
	return ""
}

func level(_ *facts, value string) string {
	for _, known := range []string{"", "VERSION", "WARN", "INFO", "ABORT", "TRACE"} {
		if strings.EqualFold(value, known) {
			return ""
		}
	}
	return "it is none of VERSION, WARN, INFO, TRACE"
}

func old(f *facts, _ string) string {
	if f.transport == "efa" {
		return "a copy of an old recipe: aws-ofi-nccl and libfabric set what they need"
	}
	return ""
}
