package heartbeat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-run/muster/job"
)

// A Stage is how sure a finding is, and how bad.
type Stage int

// The stages of a standstill, from bad to worse.
const (
	_       Stage = iota
	Resumed       // somebody advances again
	Unclear       // nobody advances, by counters that may have nothing to count: it cannot be told whether that is a hang
	Suspect       // about half of the time is over: it is time to look closer
	Slow          // the time is over, and who is waited for is at work
	Hung          // it hangs
)

func (s Stage) String() string {
	return [...]string{"", "resumed", "unclear", "suspect", "slow", "hung"}[s]
}

// The classes of hangs.
const (
	Absent  = "A" // some ranks have not entered what the others wait in
	Odd     = "B" // all have entered it, and one does not run
	Network = "C" // all have entered it, and all run: it does not come to an end
	Desync  = "D" // they wait in different ones for each other: an error in user code, which no restart mends
	Starved = "E" // nobody waits in one, and nobody does anything: they wait for input
)

// A Finding is what the judge has to say of a standstill.
type Finding struct {
	Stage Stage `json:"stage"`
	job.Hang
	False bool   `json:"false,omitempty"` // Resumed: after it was called a hang
	Why   string `json:"why,omitempty"`   // Unclear: what cannot be told
}

// maxNamed culprits are named in a sentence.
const maxNamed = 3

// Sentence says the finding in words.
func (f Finding) Sentence(w job.World) string {
	switch {
	case f.Stage == Resumed && f.False:
		return fmt.Sprintf("training goes on after %s: it was no hang, which counts as a false alarm", f.Lasted())
	case f.Stage == Resumed:
		return fmt.Sprintf("training goes on after %s", f.Lasted())
	case f.Stage == Unclear:
		return fmt.Sprintf("no rank has told of progress for %s; %s", f.Lasted(), f.Why)
	}
	return f.what(w) + f.where(w)
}

func (f Finding) what(w job.World) string {
	who, it := f.who(w), f.it()
	switch f.Class {
	case Absent:
		lacks, in := "not entered "+it+" for", " in it"
		if f.transfers() {
			lacks, in = "sent and received nothing for", " in "+it
		}
		if len(f.Ops) > 0 {
			in = ": " + strings.Join(f.Ops, "; ")
		}
		return fmt.Sprintf("%s %s %s %s; %s%s", who, has(f.Culprits), lacks, f.Lasted(), waiters(f.Waiting), in)
	case Odd:
		if f.Culprits[0].Queued {
			return fmt.Sprintf("%s %s been in %s for %s, behind a kernel that does not end on %s GPU; %s for it", who, has(f.Culprits), it, f.Lasted(), its(f.Culprits), waiters(f.Waiting-len(f.Culprits)))
		}
		return fmt.Sprintf("%s %s been in %s for %s, and %s not go on; %s for it", who, has(f.Culprits), it, f.Lasted(), does(f.Culprits), waiters(f.Waiting-len(f.Culprits)))
	case Network:
		why := "the network between them, or the communication library, does not get on"
		if f.Kernels {
			why = "the network between them, the communication library, or a kernel before it on one of their GPUs, does not get on"
		}
		if f.transfers() {
			why = "the network between them does not get on, or what they send and receive does not match"
		}
		if f.Number == 0 && !f.transfers() { // what was not matched may be different collectives of one name
			why = "the script takes them different ways, or " + why
		}
		if len(f.Ops) > 0 {
			why = strings.Join(f.Ops, "; ") + ": " + why
		}
		all := "all of them"
		if f.Waiting == 1 {
			all = "all ranks"
		}
		return fmt.Sprintf("%s been in %s for %s, and %s run: %s%s", f.subject(w), it, f.Lasted(), all, why, f.links())
	case Desync:
		return fmt.Sprintf("the ranks have waited for each other in different collectives for %s: %s; that is an error in the script, and no restart mends it", f.Lasted(), strings.Join(f.Ops, "; "))
	}
	if f.over() {
		how := "their scripts have"
		if len(f.Culprits) == 1 {
			how = f.Culprits[0].Over
		}
		return fmt.Sprintf("%s %s not ended for %s, though %s", who, has(f.Culprits), f.Lasted(), how)
	}
	if f.Done > 0 {
		return fmt.Sprintf("%s %s not ended for %s, nor done anything; %d of the ranks %s ended", who, has(f.Culprits), f.Lasted(), f.Done, have(f.Done))
	}
	return fmt.Sprintf("no rank has been in a collective, nor at work, for %s: all of them wait for something else, such as input", f.Lasted())
}

// over reports whether the scripts of all who are to blame have ended.
func (f Finding) over() bool {
	return len(f.Culprits) > 0 && !slices.ContainsFunc(f.Culprits, func(c job.Culprit) bool { return c.Over == "" })
}

// transfers reports whether what is waited in is sends and receives, which are between two.
func (f Finding) transfers() bool {
	return f.Number == 0 && f.Op != "" && !slices.ContainsFunc(strings.Split(f.Op, " or "), func(op string) bool {
		return !strings.HasSuffix(op, "send") && !strings.HasSuffix(op, "recv")
	})
}

// subject is who waits.
func (f Finding) subject(w job.World) string {
	if f.Group == "" && f.Waiting >= w.Size() {
		return "all ranks have"
	}
	if f.Waiting == 1 {
		return "1 rank has"
	}
	return fmt.Sprintf("%d ranks have", f.Waiting)
}

// it is what they wait in: "all_reduce #48211".
func (f Finding) it() string {
	it := f.Op
	if it == "" {
		it = "a collective"
	}
	if f.Number > 0 {
		it += fmt.Sprintf(" #%d", f.Number)
	}
	if f.Group != "" {
		it += " of group " + f.Group
	}
	return it
}

// who names the culprits as people look for them.
func (f Finding) who(w job.World) string {
	var names []string
	for _, c := range f.Culprits[:min(len(f.Culprits), maxNamed)] {
		names = append(names, name(c, w))
	}
	if more := len(f.Culprits) - maxNamed; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, " and ")
}

func name(c job.Culprit, w job.World) string {
	n, known := w.MemberOf(c.Rank)
	if !known {
		return fmt.Sprintf("rank %d", c.Rank)
	}
	m := w.Members[n]
	place := fmt.Sprintf("%s, local %d", m.Name, c.Rank-m.First)
	if c.PID > 0 {
		place += fmt.Sprintf(", pid %d", c.PID)
	}
	return fmt.Sprintf("rank %d (%s)", c.Rank, place)
}

// where is what the first culprit does meanwhile.
func (f Finding) where(w job.World) string {
	if len(f.Culprits) == 0 {
		return ""
	}
	c := f.Culprits[0]
	it, its, over := "it", "its", ""
	if len(f.Culprits) > 1 || f.Class == Desync || f.Class == Starved && !f.over() && f.Done == 0 {
		it, its = fmt.Sprintf("rank %d", c.Rank), fmt.Sprintf("rank %d's", c.Rank)
	}
	if c.Over != "" && (f.Class != Starved || !f.over()) {
		over = "; " + strings.Replace(c.Over, "its", its, 1)
	}
	switch {
	case c.Ended && c.Well:
		return "; " + it + " has ended with code 0"
	case c.Ended:
		return "; " + it + " has done its work and ended"
	case len(c.Stack) == 0 && c.File == "" && c.Looks == "":
		return over
	}
	return over + "; " + it + " is" + place(c)
}

// place is where a culprit is, and how it looks there.
func place(c job.Culprit) string {
	at := ""
	if len(c.Stack) > 0 {
		at += " in " + c.Stack[0]
	}
	if c.File != "" {
		at += " at " + c.File
	}
	switch {
	case c.Looks == "":
		return at
	case at == "":
		return " " + c.Looks
	}
	return at + " (" + c.Looks + ")"
}

func (f Finding) links() string {
	if len(f.Stuck) == 0 {
		return ""
	}
	return "; " + strings.Join(f.Stuck[:min(len(f.Stuck), maxNamed)], "; ")
}

func has(c []job.Culprit) string { return have(len(c)) }

func have(n int) string {
	if n > 1 {
		return "have"
	}
	return "has"
}

func its(c []job.Culprit) string {
	if len(c) > 1 {
		return "their"
	}
	return "its"
}

func does(c []job.Culprit) string {
	if len(c) > 1 {
		return "do"
	}
	return "does"
}

func waiters(n int) string {
	if n == 1 {
		return "1 other waits"
	}
	return fmt.Sprintf("%d others wait", n)
}
