package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/muster-run/muster/job"
)

// LedgerSchema names the form of a ledger; docs/ledger.md describes it.
const LedgerSchema = "muster.ledger/1"

// A Ledger is where the time of jobs went, by the verdicts that they left in a directory.
type Ledger struct {
	Schema string  `json:"schema"`
	Runs   []Run   `json:"runs"`
	Total  Costs   `json:"total"`
	Others []Wrong `json:"unread,omitempty"` // files that look like verdicts, and are none that can be read
}

// A Run is one run of a job: from the begin of muster to its end, by the verdict of one of its nodes.
type Run struct {
	Job      string    `json:"job"`
	Node     int       `json:"node"` // whose account it is; 0 knows who is to blame
	File     string    `json:"file"`
	Began    time.Time `json:"began_at"`
	Outcome  string    `json:"outcome"`
	Code     int       `json:"exit_code"`
	Costs    Costs     `json:"costs"`
	Receipts []Receipt `json:"receipts"`

	ended       time.Time
	last, known int            // round, and how many rounds it tells of
	laps        map[lapOf]bool // of all accounts that are of this run, as far as they tell in which world they were
}

// A lapOf is a round in a world.
type lapOf struct {
	world string // its mark
	round int
}

// Costs are in seconds times workers. Useful and what was lost is all.
type Costs struct {
	Wall   float64            `json:"wall_rank_seconds"`
	Useful float64            `json:"useful_rank_seconds"`
	Lost   map[string]float64 `json:"lost_rank_seconds"` // meet, load, redo, detect, stop
	Ratio  float64            `json:"effective_training_time_ratio"`
	Ends   map[string]int     `json:"rounds_ended_by"`
	Blind  int                `json:"rounds_without_steps,omitempty"` // that tell nothing of their progress: to load counts as useful
}

// A Receipt is one interruption.
type Receipt struct {
	Round  int     `json:"round"`
	Cause  string  `json:"cause"`
	Why    string  `json:"why,omitempty"`
	Node   *int    `json:"node,omitempty"`
	Host   string  `json:"host,omitempty"`
	Rank   *int    `json:"rank,omitempty"`
	Detect float64 `json:"detect_seconds"`
	Stop   float64 `json:"stop_seconds"`
	Meet   float64 `json:"meet_seconds"`
	Load   float64 `json:"load_seconds"`
	Redo   float64 `json:"redo_seconds"`
	Ranks  float64 `json:"lost_rank_seconds"`
}

// Wrong is a file that cannot be read.
type Wrong struct {
	File string `json:"file"`
	Why  string `json:"why"`
}

// Costs of an account.
func costs(a job.Account) Costs {
	s := a.Sum()
	c := Costs{Wall: s.Wall(), Useful: s.Useful(), Lost: map[string]float64{}, Ratio: s.Ratio(), Ends: s.Ends}
	for part, spent := range s.Ranks {
		if part != "train" {
			c.Lost[part] = spent
		}
	}
	for _, l := range a.Laps {
		if l.Blind {
			c.Blind++
		}
	}
	return c
}

func (c *Costs) add(o Costs) {
	c.Wall, c.Useful, c.Blind = c.Wall+o.Wall, c.Useful+o.Useful, c.Blind+o.Blind
	for part, spent := range o.Lost {
		c.Lost[part] += spent
	}
	for class, n := range o.Ends {
		c.Ends[class] += n
	}
	if c.Wall > 0 {
		c.Ratio = c.Useful / c.Wall
	}
}

// Limits of what is read of a directory.
const (
	maxVerdict = 16 << 20 // bytes of a file
	maxFiles   = 100_000
)

// ReadLedger reads all verdicts below a directory, or one file. Of each run one node's account counts.
func ReadLedger(dir string) (Ledger, error) {
	l := Ledger{Schema: LedgerSchema, Total: Costs{Lost: map[string]float64{}, Ends: map[string]int{}}}
	var all []Run
	files, root := 0, dir
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		root += "/" // it may be a link to one, as volumes are, and WalkDir follows none
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && path == root:
			return err
		case err != nil:
			l.Others = append(l.Others, Wrong{path, err.Error()})
			return nil
		case !d.Type().IsRegular() && (d.IsDir() || path != root):
			return nil
		}
		if files++; files > maxFiles {
			return fmt.Errorf("there are more than %d files in %s", maxFiles, dir)
		}
		run, is, err := readRun(path)
		if err != nil {
			l.Others = append(l.Others, Wrong{path, err.Error()})
		} else if is {
			all = append(all, run)
		}
		return nil
	})
	l.Runs = oneOfEach(all)
	for _, r := range l.Runs {
		l.Total.add(r.Costs)
	}
	return l, err
}

// oneOfEach has of several nodes' accounts of a run that of who stayed until its last round, and of those that of who was in most of them: a node that
// left early knows nothing of what came then. Else it is that of the lowest number, for node 0 knows who is to blame.
func oneOfEach(all []Run) []Run {
	slices.SortStableFunc(all, func(a, b Run) int {
		return cmp.Or(cmp.Compare(b.last, a.last), cmp.Compare(b.known, a.known), cmp.Compare(a.Node, b.Node))
	})
	var runs []Run
	for _, r := range all {
		same := func(o Run) bool { return o.Job == r.Job && o.sameAs(r) }
		if i := slices.IndexFunc(runs, same); i >= 0 {
			runs[i].learn(r)
			continue
		}
		runs = append(runs, r)
	}
	slices.SortStableFunc(runs, func(a, b Run) int { return a.Began.Compare(b.Began) })
	return runs
}

// sameAs reports whether an account is of the same run, for all that it says of its worlds: nodes of one run were in one world together, or in none of
// the same round. Two that have no round in common are of the same run when the nodes were there at the same time, by their clocks.
func (r Run) sameAs(o Run) bool {
	together, apart := false, false
	for mine := range r.laps {
		for other := range o.laps {
			together = together || mine.world == other.world
			apart = apart || mine.round == other.round
		}
	}
	if together || apart {
		return together
	}
	return o.Began.Before(r.ended) && r.Began.Before(o.ended)
}

// learn has what another node's account says of rounds of which this node was not told why they ended, as when node 0 left.
func (r *Run) learn(from Run) {
	maps.Copy(r.laps, from.laps)
	for i, c := range r.Receipts {
		if c.Cause != "" {
			continue
		}
		told := func(o Receipt) bool {
			return o.Round == c.Round && !slices.Contains([]string{"", job.Starting, job.Earlier}, o.Cause)
		}
		if j := slices.IndexFunc(from.Receipts, told); j >= 0 {
			o := from.Receipts[j]
			c.Cause, c.Why, c.Node, c.Host, c.Rank = o.Cause, o.Why, o.Node, o.Host, o.Rank
			r.Receipts[i] = c
			if r.Costs.Ends[o.Cause]++; r.Costs.Ends[""] <= 1 {
				delete(r.Costs.Ends, "")
			} else {
				r.Costs.Ends[""]--
			}
		}
	}
}

// readRun reads a verdict; is: the file holds one that has an account.
func readRun(path string) (r Run, is bool, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return r, false, err
	}
	if info.Size() > maxVerdict || !info.Mode().IsRegular() {
		return r, false, nil // no verdict is so long, or a pipe
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return r, false, err
	}
	if !strings.Contains(string(data[:min(len(data), 256)]), `"`+Schema+`"`) {
		return r, false, nil
	}
	var v verdict
	if err := json.Unmarshal(data, &v); err != nil {
		return r, false, fmt.Errorf("this verdict is broken: %w", err)
	}
	if v.Spent == nil || v.Node == nil {
		return r, false, nil // there was no world
	}
	r = Run{Job: v.Job, Node: *v.Node, File: path, Outcome: v.Outcome, Code: v.ExitCode, Costs: costs(*v.Spent)}
	if r.Began, err = time.Parse(time.RFC3339Nano, v.Began); err != nil {
		return r, false, fmt.Errorf("this verdict is broken: %w", err)
	}
	r.ended = r.Began.Add(v.Spent.Lasted()) // and not by the clock, which may have been set meanwhile
	r.known = v.Spent.Older.Rounds + len(v.Spent.Laps)
	r.laps = map[lapOf]bool{}
	for _, lap := range v.Spent.Laps {
		r.last = max(r.last, lap.Round)
		if lap.Of != "" {
			r.laps[lapOf{lap.Of, lap.Round}] = true
		}
	}
	for _, c := range v.Spent.Receipts() {
		s := time.Duration.Seconds
		r.Receipts = append(r.Receipts, Receipt{c.Round, c.Class, c.Why, c.Node, c.Host, c.Rank, s(c.Detect), s(c.Stop), s(c.Meet), s(c.Load), s(c.Redo), c.Ranks})
	}
	return r, true, nil
}

// JSON is the ledger in the form of docs/ledger.md.
func (l Ledger) JSON() []byte {
	data, _ := json.MarshalIndent(l, "", "  ") // plain values: cannot fail
	return append(data, '\n')
}

// Text is the ledger for people: each interruption with its cost, and what became of all the time.
func (l Ledger) Text() string {
	var b strings.Builder
	for i, r := range l.Runs {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "job %s, %s: %s (exit %d), as node %d has it\n", Plain(r.Job), r.Began.Format(time.DateTime), Plain(r.Outcome), r.Code, r.Node)
		b.WriteString(table(func(w *tabwriter.Writer) {
			fmt.Fprintln(w, "ROUND\tCAUSE\tBLAMED\tDETECT\tSTOP\tMEET\tLOAD\tREDO\tLOST")
			for _, c := range r.Receipts {
				fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Round, cmp.Or(Plain(c.Cause), "-"), c.blamed(), lasted(c.Detect), lasted(c.Stop), lasted(c.Meet), lasted(c.Load), lasted(c.Redo), r.Costs.unit(c.Ranks))
			}
		}))
		b.WriteString(r.Costs.line())
	}
	if len(l.Runs) > 1 {
		fmt.Fprintf(&b, "\n%s: %s", count(len(l.Runs), "run"), l.Total.line())
	}
	for _, o := range l.Others {
		fmt.Fprintf(&b, "not read: %s: %s\n", Plain(o.File), Plain(o.Why))
	}
	return b.String()
}

// line is the sum in a sentence.
func (c Costs) line() string {
	text := fmt.Sprintf("useful: %.1f %% of %s", 100*c.Ratio, c.unit(c.Wall))
	var lost []string
	for _, part := range job.Parts {
		if spent := c.Lost[part]; spent > 0 {
			lost = append(lost, part+" "+c.unit(spent))
		}
	}
	if len(lost) > 0 {
		text += "; lost: " + strings.Join(lost, ", ")
	}
	if c.Blind > 0 {
		text += fmt.Sprintf("; in %s nobody told of steps, so the time to load counts as useful", count(c.Blind, "round"))
	}
	return text + "\n"
}

func (r Receipt) blamed() string {
	text := ""
	if r.Rank != nil {
		text = fmt.Sprintf("rank %d", *r.Rank)
	}
	if r.Node != nil {
		text = strings.TrimPrefix(fmt.Sprintf("%s on node %d (%s)", text, *r.Node, Plain(r.Host)), " on ")
	}
	if text == "" {
		return "-"
	}
	return text
}

// lasted is a time in a table.
func lasted(seconds float64) string {
	switch d := time.Duration(seconds * float64(time.Second)); {
	case d == 0:
		return "-"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}

// unit is in what the times of a run are told: seconds or hours, times workers.
func (c Costs) unit(seconds float64) string {
	if c.Wall >= 3600 {
		return fmt.Sprintf("%.2f rank-hours", seconds/3600)
	}
	return fmt.Sprintf("%.1f rank-seconds", seconds)
}
