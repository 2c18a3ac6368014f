package witness

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-run/muster/lazy"
)

// add notes an odd peer, as long as there is room.
func (r *RASReport) add(p RASPeer) {
	if len(r.Peers) == maxRASPeers {
		r.More++
		return
	}
	r.Peers = append(r.Peers, p)
}

// rasJSON is the report of NCCL 2.28.7 and later, as far as it is read. src/ras/client_support.cc.
type rasJSON struct {
	Version string     `json:"nccl_version"`
	Groups  []rasGroup `json:"communicators"`
	RAS     struct {
		Timeouts int `json:"timeouts_count"`
	} `json:"ras"`
}

type rasGroup struct {
	Hash    string    `json:"hash"`
	Ranks   []rasRank `json:"ranks"`
	Missing []rasRank `json:"missing_ranks"`
}

type rasRank struct {
	Rank   int    `json:"rank"`
	Host   string `json:"host"` // "unknown" if it is
	PID    int    `json:"pid"`  // -1
	GPU    int    `json:"cuda_dev"`
	Status struct {
		Init         int  `json:"init_state"`
		Async        int  `json:"async_error"`
		Aborted      bool `json:"abort_flag"`
		Unresponsive bool `json:"unresponsive"`
		Dead         bool `json:"considered_dead"`
	} `json:"status"`
	Counts map[string]uint64 `json:"collective_counts"`
}

// forgotten is the place where 2.28.7 and 2.28.9 leave out a comma: in each missing rank, so just when something is wrong.
var forgotten = lazy.Regexp(`("nvml_dev": *-?\d+)(\s*"status")`)

func parseRASJSON(text []byte) (RASReport, error) {
	var j rasJSON
	if err := json.Unmarshal(forgotten().ReplaceAll(text, []byte("$1,$2")), &j); err != nil {
		return RASReport{}, fmt.Errorf("report of %d bytes: %w", len(text), err)
	}
	r := RASReport{Version: j.Version, Groups: len(j.Groups), Timeouts: j.RAS.Timeouts, Text: text}
	for _, g := range j.Groups {
		for _, m := range g.Missing {
			r.add(m.peer(g, m.absence()))
		}
		for _, m := range g.Ranks {
			if odd := m.failure(); odd != "" {
				r.add(m.peer(g, odd))
			}
		}
		r.addBehind(g)
	}
	return r, nil
}

func (m rasRank) peer(g rasGroup, odd string) RASPeer {
	p := RASPeer{m.Host, max(m.PID, 0), m.GPU, strings.TrimPrefix(g.Hash, "0x"), m.Rank, odd}
	if p.Host == "unknown" {
		p.Host = ""
	}
	return p
}

// absence says why nothing came from a rank. Without a reason its process answered, and no longer has the communicator.
func (m rasRank) absence() string {
	switch {
	case m.Status.Dead:
		return "dead"
	case m.Status.Unresponsive:
		return "unresponsive"
	}
	return "missing"
}

// ncclErrors are what ncclResult_t means, in NCCL's words.
var ncclErrors = map[int]string{
	1: "Unhandled CUDA error", 2: "System error", 3: "Internal error", 4: "Invalid argument", 5: "Invalid usage", 6: "Remote process error",
}

// failure says what error a rank has met, "" if none.
func (m rasRank) failure() string {
	failed := cmp.Or(ncclErrors[m.Status.Async], ncclErrors[m.Status.Init])
	switch {
	case failed != "":
		return "reported " + failed
	case m.Status.Aborted:
		return "aborted"
	}
	return ""
}

// addBehind notes the ranks of a communicator that have launched fewer collectives of a kind than others.
func (r *RASReport) addBehind(g rasGroup) {
	most, least := map[string]uint64{}, map[string]uint64{}
	for _, m := range g.Ranks {
		for op, n := range m.Counts {
			if before, known := least[op]; !known || n < before {
				least[op] = n
			}
			most[op] = max(most[op], n)
		}
	}
	for _, op := range slices.Sorted(maps.Keys(most)) {
		for _, m := range g.Ranks {
			if n, counted := m.Counts[op]; counted && n == least[op] && n < most[op] {
				r.add(m.peer(g, fmt.Sprintf("%s: %d, others %d", op, n, most[op])))
			}
		}
	}
}

// Lines of the report in text, which NCCL gives since 2.24; the long form names nearly all who differ from most.
var (
	rasHeading = lazy.Regexp(`^(?:#\S+ \(([0-9a-f]+)\) )?(INCOMPLETE|DEAD|ERROR|MISMATCH|TIMEOUT)$`)
	rasVersion = lazy.Regexp(`^NCCL version (\S+)`)
	rasProcess = lazy.Regexp(`^  Process (\d+) on node (\S+) managing GPUs? (\d+)`)
	rasMissing = lazy.Regexp(`^  The missing ranks?: ([\d,]+)$`)
	rasKind    = lazy.Regexp(`^  Communicator ranks have different (\S+)`)
	rasMany    = lazy.Regexp(`^  \d+ ranks (?:have (?:status )?)?(.+)$`)
	rasOne     = lazy.Regexp(`^  Rank (\d+)(?: (?:has (?:status )?)?(.+))? -- (?:GPU (\d+).* managed by process (\d+) on node (\S+)|\[.*)$`)
	rasLate    = lazy.Regexp(`Encountered (\d+) communication timeout`)
	rasTimings = lazy.Regexp(`^Gathering data about the NCCL communicators`)
)

// parseRASText reads as much of a report in text as is needed to know who is odd. Lines that it does not know are passed over.
func parseRASText(text []byte) RASReport {
	p := rasReader{RASReport: RASReport{Text: text}}
	for line := range strings.Lines(string(text)) {
		p.line(strings.TrimRight(line, "\r\n"))
	}
	return p.RASReport
}

// A rasReader reads a report in text, line by line.
type rasReader struct {
	RASReport
	group, heading string
	kind           string // "AllReduce: ", in what the ranks differ
	many           string // what the line before said of many ranks, which may now be named
}

func (r *rasReader) line(line string) {
	if m := rasVersion().FindStringSubmatch(line); m != nil {
		r.Version = m[1]
	}
	if m := rasLate().FindStringSubmatch(line); m != nil {
		r.Timeouts = atoi(m[1])
	}
	switch m := rasHeading().FindStringSubmatch(line); {
	case m != nil:
		r.group, r.heading, r.kind, r.many = m[1], m[2], "", ""
		return
	case line == "" || rasTimings().MatchString(line):
		r.heading = ""
	}
	if r.heading == "" {
		return
	}
	if m := rasProcess().FindStringSubmatch(line); m != nil {
		r.add(RASPeer{Host: m[2], PID: atoi(m[1]), GPU: atoi(m[3]), Rank: -1, Odd: r.processOdd()})
	}
	if m := rasMissing().FindStringSubmatch(line); m != nil {
		for rank := range strings.SplitSeq(m[1], ",") {
			r.add(RASPeer{Group: r.group, Rank: atoi(rank), Odd: "missing"})
		}
	}
	if m := rasKind().FindStringSubmatch(line); m != nil {
		r.kind = m[1] + ": "
	}
	if m := rasMany().FindStringSubmatch(line); m != nil {
		r.many = m[1]
	}
	if m := rasOne().FindStringSubmatch(line); m != nil {
		r.add(RASPeer{m[5], atoi(m[4]), atoi(m[3]), r.group, atoi(m[1]), r.kind + cmp.Or(m[2], r.many)})
	}
}

func (r *rasReader) processOdd() string {
	if r.heading == "DEAD" {
		return "dead"
	}
	return "unresponsive"
}

// atoi is a number that a pattern has found, 0 if it is none or too large.
func atoi(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}
