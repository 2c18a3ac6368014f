package web

import (
	"cmp"
	_ "embed"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report"
)

//go:embed page.css
var style string

//go:embed page.js
var script string

// options are how a page is made.
type options struct {
	owner   bool   // all may be seen
	times   bool   // times that count on are written out: nobody compares this page with another
	live    bool   // a browser will listen to what changes
	machine bool   // there are drawings
	drawing []byte // that of this node, for a page that is a file
}

// smallWorld is up to how many ranks each is shown with its step. In a larger one all of them would change each second.
const smallWorld = 64

// document is the whole page. seen is by which number the browser says what it has seen.
func document(v View, o options, seen int, nonce string) string {
	var b strings.Builder
	p := func(parts ...markup) {
		for _, m := range parts {
			b.WriteString(string(m))
		}
	}
	all := fragments(v, o)
	p("<!doctype html>\n", open("html", attrs{"lang", "en"}), "<head>", `<meta charset="utf-8">`, `<meta name="viewport" content="width=device-width, initial-scale=1">`,
		`<meta name="color-scheme" content="light dark">`, el("title", nil, text(v.title())), el("style", attrs{"nonce", nonce}, markup(style)),
		when(o.live, `<noscript><meta http-equiv="refresh" content="5"></noscript>`), open("link", attrs{"rel", "icon", "id", "icon", "href", v.icon()}), "</head>\n")
	p(open("body", attrs{"data-seen", strconv.Itoa(seen), "data-now", strconv.FormatInt(time.Now().UnixMilli(), 10)}),
		el("a", attrs{"class", "skip", "href", "#ranks"}, "to the ranks"), `<div id="lost" role="alert" hidden></div>`)
	p(el("header", attrs{"role", "status"}, all[0].markup()), "\n<main>")
	for _, f := range all[1 : len(all)-1] {
		p(f.markup(), "\n")
	}
	p("</main>\n", el("footer", nil, all[len(all)-1].markup(), el("p", attrs{"id", "live"}, textf("as of %s", time.Now().UTC().Format("15:04:05 UTC")))))
	if o.live {
		p(el("script", attrs{"nonce", nonce}, markup(script)))
	}
	p("</body></html>\n")
	return b.String()
}

// title is what a browser's tab shows.
func (v View) title() string {
	tone, title, _ := v.headline()
	return map[string]string{"bad": "✕ ", "warn": "! ", "good": "✓ "}[tone] + report.Line(v.Job, 60) + ": " + title
}

// icon is the tone of the page as a picture for the browser's tab.
func (v View) icon() string {
	tone, _, _ := v.headline()
	colour := map[string]string{"bad": "b3261e", "warn": "d8941f", "busy": "2a66a8"}[tone]
	return "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 8 8'><circle cx='4' cy='4' r='3.6' fill='%23" + cmp.Or(colour, "2c7a57") + "'/></svg>"
}

// fragments are the parts of the page that change, the head first and the foot last; always the same ones.
func fragments(v View, o options) []fragment {
	return []fragment{v.head(o), v.attention(), v.wrong(o), v.facts(o), v.grid(), v.rounds(o), v.mind(), v.workers(), v.machines(o), v.foot(o)}
}

// head says in one line how the job stands, and in another what is to be known of that first.
func (v View) head(o options) fragment {
	tone, title, why := v.headline()
	what := []markup{el("b", nil, text(v.Job))}
	if v.World > 0 {
		what = append(what, textf("%s on %s", count(v.World, "rank"), count(max(len(v.Nodes), 1), "node")))
	}
	what = append(what, markup(string(text(v.Phase))+" for ")+o.since(v.Since, time.Now()))
	switch {
	case v.Phase == report.Observing && v.Round > 0:
		what = append(what, textf("round %d", v.Round))
	case v.Round > 0 || v.MaxRestarts > 0:
		what = append(what, textf("round %d, %d more may follow", v.Round, max(v.MaxRestarts-v.Round, 0)))
	}
	return whole("head", "div", attrs{"class", tone, "data-title", v.title(), "data-icon", v.icon()},
		el("p", attrs{"class", "job"}, join(what)), el("h1", nil, text(title)), when(why != "", el("p", attrs{"class", "why"}, v.lasting(why, o))), v.recovery())
}

// lasting is a sentence, in which the time that a standstill had lasted when it was said goes on as long as it lasts.
func (v View) lasting(why string, o options) markup {
	if v.Stage == "" || v.Verdict != nil || len(v.Causes) > 0 || v.Hang == nil || v.Stood.IsZero() {
		return text(why)
	}
	before, after, timed := v.Hang.Cut(why)
	if !timed {
		return text(why)
	}
	return text(before+" for ") + o.since(v.Stood, time.Now()) + text(after)
}

// join separates parts of a line.
func join(parts []markup) markup {
	var b strings.Builder
	for i, p := range parts {
		if i > 0 {
			b.WriteString(` <i>·</i> `)
		}
		b.WriteString("<span>" + string(p) + "</span>")
	}
	return markup(b.String())
}

// whole is a fragment without parts.
func whole(id, name string, a attrs, in ...markup) fragment {
	return fragment{id: id, begin: el(name, append(attrs{"id", id}, a...), in...)}
}

// none is a fragment of which there is nothing to see now.
func none(id string) fragment { return whole(id, "div", attrs{"hidden"}) }

// headline is the tone of the page (good, calm, busy, warn, bad), how the job stands in a few words, and what to know of that.
func (v View) headline() (tone, title, why string) {
	running := 0
	for _, r := range v.Ranks {
		if r.State == report.RankRuns {
			running++
		}
	}
	switch {
	case v.Verdict != nil && v.Verdict.OK():
		return "good", "The job ended well", v.Verdict.Sentence
	case v.Verdict != nil && v.Verdict.Class == job.Preempted:
		return "warn", "The job was stopped", v.Verdict.Sentence
	case v.Verdict != nil:
		return "bad", fmt.Sprintf("The job failed, exit code %d", v.Verdict.Code), v.Verdict.Sentence
	case v.Phase == report.Parked:
		return "good", "The job ended well", v.Waits
	case len(v.Causes) > 0 && v.Phase == report.Observing:
		return "bad", v.who(), v.Causes[0]
	case len(v.Causes) > 0 && v.Phase == report.Running:
		return "bad", v.who() + ", and the others run on", v.Causes[0]
	case len(v.Causes) > 0:
		return "bad", v.who() + ", and all are being stopped", v.Causes[0]
	case v.Stage == "hung":
		return "bad", "Training hangs" + v.at(), strings.TrimPrefix(v.Stall, "hang: ")
	case v.Stage != "":
		return "warn", "Training stands still" + v.at(), v.Stall
	case v.Phase == report.Paused:
		return "busy", "The job is paused", "it goes on with " + v.Waits
	case v.Phase == report.Stopping:
		return "busy", "This round is being stopped", waits(v.Waits)
	case v.Phase == report.Meeting && v.Node != nil:
		return "busy", "Nodes are meeting", waits(v.Waits)
	case v.Phase == report.Meeting: // it says itself what it is about
		return "busy", "Nodes are meeting", strings.TrimPrefix(strings.TrimPrefix(v.Waits, "meeting for "+v.Job), ": ")
	case v.Phase == report.Observing && len(v.Ranks) == 0:
		return "busy", "No worker is seen yet", waits(v.Waits)
	case v.Phase == report.Starting:
		return "busy", "Workers are about to start", waits(v.Waits)
	}
	step := v.step()
	silent := 0
	for _, r := range v.Ranks {
		if r.State == report.RankSilent || r.State == report.RankLost {
			silent++
		}
	}
	switch {
	case silent > 0:
		return "warn", "Nothing is heard of " + count(silent, "rank"), ""
	case len(v.Stragglers) > 0:
		return "warn", fmt.Sprintf("Training, held up by rank %d", v.Stragglers[0].Rank), v.Stragglers[0].String()
	case (v.Node == nil || *v.Node != 0) && (v.Phase != report.Observing || len(v.Ranks) < v.World):
		return "calm", "The workers of this node run", ""
	case running < len(v.Ranks):
		return "calm", fmt.Sprintf("%d of %d ranks run", running, v.World), ""
	case step == 0:
		return "calm", fmt.Sprintf("All %d ranks run", v.World), ""
	}
	return "calm", fmt.Sprintf("All %d ranks train", v.World), ""
}

// who is what went wrong first in this round, in a few words.
func (v View) who() string {
	switch {
	case len(v.Failures) > 0:
		return fmt.Sprintf("Rank %d failed", v.Failures[0].Rank)
	case v.Hang != nil:
		return "Training hung"
	}
	for n, node := range v.Nodes {
		if node.Gone && !node.Done {
			return fmt.Sprintf("Node %d (%s) was lost", n, node.Name)
		}
	}
	return "Something went wrong"
}

// at is who is waited for while nobody advances, if it is one.
func (v View) at() string {
	if v.Hang == nil || len(v.Hang.Culprits) != 1 {
		return ""
	}
	return fmt.Sprintf(" at rank %d", v.Hang.Culprits[0].Rank)
}

func waits(what string) string {
	if what == "" {
		return ""
	}
	return "waiting for " + what
}

// step is the furthest of any rank.
func (v View) step() (step uint64) {
	for _, r := range v.Ranks {
		step = max(step, r.Step)
	}
	return step
}

// recovery is the last interruption, and how soon it was made up for.
func (v View) recovery() markup {
	was, back, had := v.Recovery()
	if !had || v.Verdict != nil {
		return ""
	}
	return el("p", attrs{"class", "back"}, el("b", nil, textf("Round %d ended:", was.Round)), " ", text(cmp.Or(was.Why, v.ended(was.Round))), el("span", nil, text(back)))
}

// laps are where the time of the last rounds went; the last of them goes on.
func (v View) laps() []job.Lap {
	if v.Spent == nil {
		return nil
	}
	return v.Spent.Laps
}

// ended is how a round ended, as this node was told.
func (v View) ended(round int) string {
	for _, r := range v.Rounds {
		if r.Round == round {
			return r.Message
		}
	}
	return "it is not known here why"
}

// maxAttention is how many ranks are listed of which something is to be said.
const maxAttention = 12

// attention is where to look.
func (v View) attention() fragment {
	var items []markup
	more := 0
	for _, r := range v.worst() {
		if len(items) == maxAttention {
			more++
			continue
		}
		items = append(items, el("li", nil, el("a", attrs{"href", fmt.Sprintf("#r%d", r.Rank), "class", "chip " + r.State}, textf("rank %d", r.Rank)), " ",
			textf("on %s: %s", v.name(r.Node), r.said())))
	}
	if len(items) == 0 || len(items) == 1 && len(v.Ranks) <= smallWorld { // that one is seen, and what is to be said of it is
		return none("attention")
	}
	if more > 0 {
		items = append(items, el("li", nil, textf("and %s", count(more, "other"))))
	}
	return whole("attention", "section", attrs{"class", "card", "aria-label", "ranks to look at"}, el("ul", nil, items...))
}

// worst are the ranks to look at, the worst first.
func (v View) worst() (all []rank) {
	for _, state := range []string{report.RankFailed, report.RankHung, report.RankSuspect, report.RankLost, report.RankSilent, report.RankStraggles} {
		for _, r := range v.Ranks {
			if r.State == state {
				all = append(all, rank(r))
			}
		}
	}
	return all
}

func (v View) name(node int) string {
	if node < 0 || node >= len(v.Nodes) {
		return cmp.Or(v.Host, "?")
	}
	return v.Nodes[node].Name
}

// rank is a report's.
type rank report.StatusRank

// said is its state, and what is to be said of that.
func (r rank) said() string {
	if r.Note == "" {
		return r.State
	}
	return r.State + ", " + r.Note
}

// facts are the figures that change each second.
func (v View) facts(o options) fragment {
	fact := func(name string, value markup) markup {
		return el("div", nil, el("dt", nil, text(name)), el("dd", nil, value))
	}
	var all []markup
	if step := v.step(); step > 0 {
		all = append(all, fact("step", text(figure(step))))
	}
	if n := len(v.Ranks); n > 0 {
		of := map[string]int{}
		for _, r := range v.Ranks {
			of[r.State]++
		}
		for _, state := range []string{report.RankRuns, report.RankBlocked, report.RankDone, report.RankFailed, report.RankHung, report.RankLost} {
			if of[state] > 0 {
				all = append(all, fact(state, textf("%d of %d", of[state], n)))
			}
		}
	}
	if v.Spent != nil && v.Spent.Sum().Useful() > 0 {
		all = append(all, fact("of the time in training", textf("%.1f %%", 100*v.Spent.Sum().Ratio())))
	}
	all = append(all, fact("agent up", o.since(v.Began, time.Now())))
	return whole("facts", "dl", nil, all...)
}

// grid is all nodes and their ranks, each node a fragment of its own.
func (v View) grid() fragment {
	small := len(v.Ranks) <= smallWorld
	by := make(map[int][]rank, len(v.Nodes))
	of := map[string]int{}
	for _, r := range v.Ranks {
		by[r.Node] = append(by[r.Node], rank(r))
		of[r.State]++
	}
	class := "large"
	if small {
		class = "small"
	}
	var legend []markup
	for _, state := range states {
		if of[state] > 0 {
			legend = append(legend, el("li", nil, el("i", attrs{"class", "key " + state}), textf("%d %s", of[state], state)))
		}
	}
	if len(v.Nodes) > 1 && v.Order != "" {
		legend = append(legend, el("li", nil, textf("in this order: %s", v.Order)))
	}
	f := fragment{id: "grid", begin: open("section", attrs{"id", "grid", "class", "card " + class, "aria-labelledby", "ranks"}) + el("h2", attrs{"id", "ranks", "tabindex", "-1"}, "Ranks"),
		end: el("output", attrs{"id", "told"}, "") + "</section>"}
	f.parts = append(f.parts, whole("legend", "ul", nil, legend...))
	for n := range max(len(v.Nodes), 1) {
		if n >= len(v.Nodes) && len(v.Ranks) == 0 {
			break
		}
		f.parts = append(f.parts, v.node(n, by[n], small))
	}
	if len(v.Ranks) == 0 {
		f.parts = append(f.parts, whole("nobody", "p", nil, text(map[bool]string{false: "no worker runs yet", true: "no worker runs any more"}[v.Verdict != nil || v.Phase == report.Parked])))
	}
	return f
}

// states are all of them, as the legend has them.
var states = []string{report.RankRuns, report.RankBlocked, report.RankStraggles, report.RankSuspect, report.RankHung, report.RankFailed, report.RankSilent, report.RankLost, report.RankWaits,
	report.RankStops, report.RankStopped, report.RankDone}

// node is one node.
func (v View) node(n int, ranks []rank, small bool) fragment {
	id := "n" + strconv.Itoa(n)
	var b strings.Builder
	for _, r := range ranks {
		b.WriteString(string(r.cell(small)))
	}
	var said []string
	name := v.Host
	if n < len(v.Nodes) {
		node := v.Nodes[n]
		name = node.Name
		said = append(said, node.State(), node.Place)
	}
	if v.Node != nil && *v.Node == n {
		said = append(said, "this node")
	} else if len(ranks) == 0 {
		said = append(said, "its ranks: ask node 0")
	}
	said = slices.DeleteFunc(said, func(s string) bool { return s == "" })
	return whole(id, "article", attrs{"aria-label", fmt.Sprintf("node %d, %s", n, name)},
		el("h3", nil, textf("%d", n), " ", el("b", nil, text(name)), when(len(said) > 0, el("small", nil, text(strings.Join(said, ", "))))),
		el("div", nil, markup(b.String())))
}

// marks are drawn in a rank's box, for those who do not see colours.
var marks = map[string]string{report.RankFailed: "✕", report.RankHung: "‖", report.RankSuspect: "?", report.RankStraggles: "▾", report.RankLost: "⊘", report.RankSilent: "…", report.RankDone: "✓"}

// cell is a rank's box.
func (r rank) cell(small bool) markup {
	n := strconv.Itoa(r.Rank)
	label := "rank " + n + ": " + r.said()
	mark := when(marks[r.State] != "", el("i", attrs{"aria-hidden", "true"}, text(marks[r.State])))
	if !small {
		return el("a", attrs{"id", "r" + n, "href", "#r" + n, "class", r.State, "aria-label", label}, text(n), mark)
	}
	under := r.State
	if r.Step > 0 && r.State == report.RankRuns {
		under = "step " + figure(r.Step)
	}
	return el("a", attrs{"id", "r" + n, "href", "#r" + n, "class", r.State, "aria-label", label}, el("b", nil, text(n)), mark, el("small", nil, text(under)))
}

// parts are of a lap, in words for people.
var parts = []struct{ name, words string }{
	{"meet", "to start"}, {"load", "to the first step"}, {"redo", "of steps done before"}, {"train", "of training"}, {"detect", "to notice"}, {"stop", "to stop"},
}

// rounds is where the time went.
func (v View) rounds(o options) fragment {
	laps := v.laps()
	if len(laps) == 0 {
		return v.pastRounds()
	}
	f := fragment{id: "rounds", begin: open("section", attrs{"id", "rounds", "class", "card"}) + el("h2", nil, "Rounds"), end: "</section>"}
	for i := range laps {
		f.parts = append(f.parts, v.lap(laps[len(laps)-1-i], i == 0, o))
	}
	return f
}

// pastRounds is what is known of them without times.
func (v View) pastRounds() fragment {
	if len(v.Rounds) == 0 {
		return none("rounds")
	}
	var items []markup
	for _, r := range slices.Backward(v.Rounds) {
		items = append(items, el("div", attrs{"class", "lap"}, el("p", nil, el("b", nil, textf("Round %d", r.Round)), " ended: ", text(r.Message))))
	}
	return whole("rounds", "section", attrs{"class", "card"}, append([]markup{el("h2", nil, "Rounds")}, items...)...)
}

// lap is one round.
func (v View) lap(l job.Lap, last bool, o options) fragment {
	end := "it goes on"
	switch {
	case last && v.Verdict != nil:
		end = v.Verdict.Sentence
	case l.Why != "":
		end = l.Why
	case last && len(v.Causes) > 0:
		end = "it is being stopped"
	case !last:
		end = v.ended(l.Round)
	}
	wall := max(l.Wall(), 1)
	bar, words, at := "", []markup{}, 0.0
	for i, d := range l.Parts() {
		if d <= 0 {
			continue
		}
		width := 100 * d.Seconds() / wall.Seconds()
		bar += fmt.Sprintf(`<rect class="%s" x="%.2f%%" width="%.2f%%" height="100%%"/>`, parts[i].name, at, max(width, 0.6))
		at += width
		words = append(words, el("li", nil, el("i", attrs{"class", "key " + parts[i].name}), el("b", nil, text(report.Span(rounded(d)))), " ", text(parts[i].words)))
	}
	return whole(fmt.Sprintf("lap%d", l.Round), "div", attrs{"class", "lap"},
		el("p", nil, el("b", nil, textf("Round %d", l.Round)), when(l.World > 0, textf(" of %s", count(l.World, "rank"))), ": ", text(end)),
		el("svg", attrs{"class", "bar", "aria-hidden", "true"}, markup(bar)), el("ul", nil, words...), v.failure(l.Round, o))
}

// rounded keeps seconds where there are many.
func rounded(d time.Duration) time.Duration {
	if d >= 10*time.Second {
		return d.Truncate(time.Second)
	}
	return d
}

// failure is what is known of the first failure of a round that is over.
func (v View) failure(round int, o options) markup {
	for _, r := range v.Past {
		if r.Number == round && r.First != nil {
			return details(fmt.Sprintf("f%d", round), *r.First, o)
		}
	}
	return ""
}

// details are a failed worker's last lines, for those who may see them.
func details(id string, f job.Failure, o options) markup {
	if len(f.Tail) == 0 || !o.owner {
		return ""
	}
	return el("details", attrs{"id", id}, el("summary", nil, textf("What rank %d printed last", f.Rank)), el("pre", attrs{"tabindex", "0"}, lines(f.Tail)))
}

// wrong is what is known of what went wrong, beside the sentence in the head.
func (v View) wrong(o options) fragment {
	var in []markup
	if v.Verdict != nil && !v.Verdict.OK() {
		if v.Verdict.Hint != "" && (v.Verdict.First == nil || v.Verdict.First.Hint != v.Verdict.Hint) {
			in = append(in, el("p", attrs{"class", "hint"}, el("b", nil, "What to do: "), text(v.Verdict.Hint)))
		}
		if f := v.Verdict.First; f != nil {
			in = append(in, failed("first", *f, "", o))
		}
		in = append(in, others(v.Verdict.Consequences))
	} else {
		for i, f := range v.Failures[:min(len(v.Failures), maxAttention)] {
			sentence := f.String()
			if i == 0 && slices.Contains(v.Causes[:min(len(v.Causes), 1)], sentence) {
				sentence = "" // it is in the head
			}
			in = append(in, failed(fmt.Sprintf("e%d", i), f, sentence, o))
		}
	}
	if h := cmp.Or(v.Hang, v.hang()); h != nil {
		in = append(in, hang(*h, o))
	}
	in = slices.DeleteFunc(in, func(m markup) bool { return m == "" })
	if len(in) == 0 {
		return none("wrong")
	}
	if !o.owner {
		in = append(in, el("p", attrs{"class", "quiet"}, "What workers printed last, and where their code stood, is shown with the token: docs/status-page.md"))
	}
	return whole("wrong", "section", attrs{"class", "card"}, append([]markup{el("h2", nil, "What is known of it")}, in...)...)
}

func (v View) hang() *job.Hang {
	if v.Verdict == nil {
		return nil
	}
	return v.Verdict.Hang
}

// failed is one failed worker.
func failed(id string, f job.Failure, sentence string, o options) markup {
	said, hint := el("p", nil, text(sentence)), el("p", attrs{"class", "hint"}, el("b", nil, "What to do: "), text(f.Hint))
	return when(sentence+f.Hint != "" || o.owner && len(f.Tail) > 0, el("div", attrs{"class", "failure"}, when(sentence != "", said), when(f.Hint != "", hint), details(id, f, o)))
}

// others are failures that followed.
func others(all []job.Failure) markup {
	if len(all) == 0 {
		return ""
	}
	var items []markup
	for _, f := range all[:min(len(all), maxAttention)] {
		items = append(items, el("li", nil, text(f.String())))
	}
	if more := len(all) - len(items); more > 0 {
		items = append(items, el("li", nil, textf("and %s", count(more, "other"))))
	}
	return el("details", attrs{"id", "others"}, el("summary", nil, textf("%s failed after it, most likely because of it", count(len(all), "worker"))), el("ul", nil, items...))
}

// hang is who is waited for.
func hang(h job.Hang, o options) markup {
	var items []markup
	for _, c := range h.Culprits[:min(len(h.Culprits), maxAttention)] {
		stack := markup("")
		if o.owner && len(c.Stack) > 0 {
			stack = el("pre", attrs{"tabindex", "0"}, lines(c.Stack))
		}
		items = append(items, el("li", nil, textf("rank %d %s", c.Rank, c.Looks), stack))
	}
	for _, op := range h.Ops {
		items = append(items, el("li", nil, text(op)))
	}
	for _, s := range h.Stuck[:min(len(h.Stuck), maxAttention)] {
		items = append(items, el("li", nil, text(s)))
	}
	where := ""
	if h.Op != "" {
		where = " in " + h.Op
		if h.Number > 0 {
			where += fmt.Sprintf(" #%d", h.Number)
		}
	}
	return el("div", attrs{"class", "failure"}, el("p", nil, textf("%s wait%s; class %s (docs/hangs.md)", count(h.Waiting, "rank"), where, cmp.Or(h.Class, "unknown"))), el("ul", nil, items...))
}

// mind is what else is to be known, of machines and settings.
func (v View) mind() fragment {
	var items []markup
	add := func(what string, all ...string) {
		for _, text1 := range all {
			if text1 != "" {
				items = append(items, el("li", nil, el("b", nil, text(what)), " ", text(text1)))
			}
		}
	}
	for _, s := range v.Stragglers {
		add("straggler", s.String())
	}
	add("health", v.Health...)
	add("mind", v.Suspects)
	add("mind", v.Clashes...)
	if v.Alarms > 0 {
		add("hangs", fmt.Sprintf("%s called one, and training went on", count(v.Alarms, "standstill")))
	}
	if len(items) == 0 {
		return none("mind")
	}
	return whole("mind", "section", attrs{"class", "card"}, el("h2", nil, "To know"), el("ul", nil, items...))
}

// workers are this node's, with what the kernel knows of them.
func (v View) workers() fragment {
	if len(v.Workers) == 0 {
		return none("workers")
	}
	row := func(name string, cells ...markup) markup {
		var in []markup
		for _, c := range cells {
			in = append(in, el(name, nil, c))
		}
		return el("tr", nil, in...)
	}
	f := fragment{id: "workers", begin: open("details", attrs{"id", "workers", "class", "card"}) + el("summary", nil, textf("Workers of %s", v.Host)) + open("div", attrs{"class", "wide"}) +
		open("table", nil) + el("thead", nil, row("th", "rank", "local", "pid", "CPU time", "memory", "step", "state", "heartbeats")) + "<tbody>",
		end: "</tbody></table></div></details>"}
	for _, w := range v.Workers {
		step, cpu, memory := "–", "–", "–"
		if w.Step > 0 {
			step = figure(w.Step)
		}
		if w.Memory > 0 {
			cpu, memory = report.Span(time.Duration(w.CPU*float64(time.Second)).Round(time.Second)), fmt.Sprintf("%d MiB", w.Memory>>20)
		}
		f.parts = append(f.parts, fragment{id: fmt.Sprintf("w%d", w.Rank), begin: markup(strings.Replace(string(row("td", textf("%d", w.Rank), textf("%d", w.LocalRank), textf("%d", w.PID),
			text(cpu), text(memory), text(step), text(w.State), text(w.Beats))), "<tr>", fmt.Sprintf(`<tr id="w%d">`, w.Rank), 1))})
	}
	return f
}

// maxDrawings is up to how many nodes' machines are drawn in the page. Of more there are links to the drawings.
const maxDrawings = 64

// machines are drawings of them: on the leader of all nodes', else of this one's. A browser asks for one when it is opened.
func (v View) machines(o options) fragment {
	switch {
	case len(o.drawing) > 0:
		return whole("machine", "details", attrs{"class", "card"}, el("summary", nil, textf("The machine of %s", v.Host)), drawn("data:image/svg+xml;base64,"+base64.StdEncoding.EncodeToString(o.drawing), v.Host))
	case !o.machine:
		return none("machine")
	case len(v.Nodes) < 2 || v.Node == nil || *v.Node != 0:
		return whole("machine", "details", attrs{"class", "card"}, el("summary", nil, textf("The machine of %s", v.Host)), drawn("machine.svg", v.Host))
	}
	f := fragment{id: "machine", begin: open("details", attrs{"id", "machine", "class", "card"}) + el("summary", nil, "The machines of the nodes") + open("div", attrs{"class", "machines"}), end: "</div></details>"}
	for n, node := range v.Nodes {
		id, at, name := "m"+strconv.Itoa(n), "machine.svg?node="+strconv.Itoa(n), textf("%d %s", n, node.Name)
		if len(v.Nodes) > maxDrawings {
			f.parts = append(f.parts, whole(id, "a", attrs{"href", at}, name))
			continue
		}
		f.parts = append(f.parts, whole(id, "details", nil, el("summary", nil, name), drawn(at, node.Name)))
	}
	return f
}

func drawn(at, name string) markup {
	return el("div", attrs{"class", "picture"}, open("img", attrs{"src", at, "loading", "lazy", "alt", "GPUs, network adapters and NUMA nodes of " + name + ", and which of them are near each other"}))
}

// foot says whose word this is.
func (v View) foot(o options) fragment {
	who, whose := "agent", "before there is a world"
	if v.Phase == report.Observing {
		who, whose = "observer", "which knows of this node's ranks"
	}
	switch {
	case v.Node != nil && *v.Node == 0:
		whose = "node 0, which leads: it knows of all ranks"
	case v.Node != nil:
		whose = fmt.Sprintf("node %d: it knows of its own ranks, and node 0 (%s) of all", *v.Node, v.name(0))
	}
	return whole("foot", "p", nil, textf("told by the %s on %s (pid %d, muster %s), %s", who, v.Host, v.PID, v.Version, whose), when(o.owner, " · you see everything"))
}
