package job

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"
)

// An Account is where a job's time went, as one node knows it: of each of the last rounds, and in sum of those before.
type Account struct {
	Older Spent `json:"older,omitzero"`
	Laps  []Lap `json:"rounds"` // the last one may not have ended

	Turns Turns `json:"-"` // of all rounds
}

// A Spent is the time of several rounds, by the parts of a lap.
type Spent struct {
	Rounds  int                `json:"rounds"`
	Seconds map[string]float64 `json:"seconds,omitempty"`      // by the clock
	Ranks   map[string]float64 `json:"rank_seconds,omitempty"` // times the workers of the world
	Ends    map[string]int     `json:"ends,omitempty"`         // rounds that are over, by the class of what ended them
}

// Add is the sum of this and another round.
func (s Spent) Add(l Lap) Spent {
	s = Spent{s.Rounds + 1, grown(s.Seconds), grown(s.Ranks), grown(s.Ends)}
	for i, p := range l.Parts() {
		s.Seconds[Parts[i]] += p.Seconds()
		s.Ranks[Parts[i]] += p.Seconds() * float64(l.World)
	}
	if l.Over {
		s.Ends[l.Class]++
	}
	return s
}

// UnmarshalJSON reads what may be anybody's: of other parts than a lap's nothing is taken, and no sum is without bounds.
func (s *Spent) UnmarshalJSON(data []byte) error {
	type plain Spent
	in := plain{}
	if err := json.Unmarshal(data, &in); err != nil || in.Rounds <= 0 {
		*s = Spent{}
		return err
	}
	*s = Spent{in.Rounds, bounded(in.Seconds, maxSeconds), bounded(in.Ranks, maxSeconds*maxWorld), in.Ends}
	return nil
}

// bounded has the times of the parts, none less than nothing or more than a limit.
func bounded(in map[string]float64, limit float64) map[string]float64 {
	out := map[string]float64{}
	for _, part := range Parts {
		if spent := min(in[part], limit); spent > 0 {
			out[part] = spent
		}
	}
	return out
}

// grown is a copy that can take more.
func grown[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return maps.Clone(m)
}

// Wall is all of it, in seconds times workers.
func (s Spent) Wall() float64 {
	sum := 0.0
	for _, part := range Parts { // in their order, for sums of floating-point numbers depend on it
		sum += s.Ranks[part]
	}
	return sum
}

// Useful is what was spent on training that was not done again, in seconds times workers.
func (s Spent) Useful() float64 { return s.Ranks["train"] }

// Ratio is the share of that, the effective training time ratio; 0 before anything was spent.
func (s Spent) Ratio() float64 {
	if wall := s.Wall(); wall > 0 {
		return s.Useful() / wall
	}
	return 0
}

// Sum is all rounds together.
func (a Account) Sum() Spent {
	s := a.Older
	for _, l := range a.Laps {
		s = s.Add(l)
	}
	return s
}

// Lasted is how long all rounds were.
func (a Account) Lasted() time.Duration {
	sum := 0.0
	for _, spent := range a.Sum().Seconds {
		sum += spent
	}
	return time.Duration(min(sum, maxSeconds) * float64(time.Second))
}

// A Receipt is what an interruption cost: from something that went wrong, or the word that called a round off, until the world was as far as
// it had been.
type Receipt struct {
	Round int    // that ended; the first round, for what came before it
	Class string // of what ended it; Starting: the job began; Earlier: all rounds that are told of in sum only
	Why   string
	Node  *int   // to blame, by group rank; nil: none is
	Host  string // its name
	Rank  *int   // to blame; nil: none is

	Detect, Stop, Meet, Load, Redo time.Duration

	Ranks float64 // all of it, in seconds times workers
}

// What a receipt is for beside the end of a round.
const (
	Starting = "start"
	Earlier  = "earlier"
)

// Receipts are those of all rounds that are told of one by one, in their order, after one for all that was lost before them. What they cost in sum,
// and the useful time of the rounds, is all of the time. The last is of the job's own end, if it has ended, and what it cost to see that, and to stop.
func (a Account) Receipts() []Receipt {
	var all []Receipt
	next := Receipt{Class: Starting, Why: "the job began"}
	if a.Older.Rounds > 0 {
		next = a.Older.receipt()
	}
	for _, l := range a.Laps {
		if next.Class == Starting || next.Class == Earlier {
			next.Round = l.Round
		}
		next.Meet, next.Load, next.Redo = next.Meet+l.Meet, next.Load+l.Load, next.Redo+l.Redo
		next.Ranks += (l.Meet + l.Load + l.Redo).Seconds() * float64(l.World)
		all = append(all, next)
		next = Receipt{Round: l.Round, Class: l.Class, Why: l.Why, Node: l.Node, Host: l.Host, Rank: l.Rank, Detect: l.Detect, Stop: l.Stop, Ranks: (l.Detect + l.Stop).Seconds() * float64(l.World)}
	}
	if next.Detect+next.Stop > 0 || next.Class != "" && next.Class != Succeeded {
		all = append(all, next)
	}
	return all
}

// receipt is what all those rounds lost.
func (s Spent) receipt() Receipt {
	in := func(part string) time.Duration { return time.Duration(s.Seconds[part] * float64(time.Second)) }
	return Receipt{
		Class: Earlier, Why: fmt.Sprintf("%d rounds before those that are told of", s.Rounds),
		Detect: in("detect"), Stop: in("stop"), Meet: in("meet"), Load: in("load"), Redo: in("redo"), Ranks: s.Wall() - s.Useful(),
	}
}

// Cost is how long the interruption was.
func (r Receipt) Cost() time.Duration { return r.Detect + r.Stop + r.Meet + r.Load + r.Redo }
