package web

import (
	"fmt"
	"html"
	"strconv"
	"strings"
	"time"

	"github.com/muster-run/muster/report"
)

// A markup is HTML. What comes from elsewhere becomes one by text alone, and in the attributes of el.
type markup string

// text is plain text: it does nothing in a page, nor to a terminal.
func text(s string) markup { return markup(html.EscapeString(report.Plain(s))) }

func textf(format string, args ...any) markup { return text(fmt.Sprintf(format, args...)) }

// lines is text whose lines stay.
func lines(all []string) markup {
	escaped := make([]string, len(all))
	for i, line := range all {
		escaped[i] = string(text(line))
	}
	return markup(strings.Join(escaped, "\n"))
}

// attrs are names and values by turns. A name without a value, as the last one, stands alone; an empty value leaves its name out.
type attrs []string

// el is an element.
func el(name string, a attrs, in ...markup) markup {
	var b strings.Builder
	b.WriteString(string(open(name, a)))
	for _, m := range in {
		b.WriteString(string(m))
	}
	b.WriteString("</" + name + ">")
	return markup(b.String())
}

// open is its beginning.
func open(name string, a attrs) markup {
	var b strings.Builder
	b.WriteString("<" + name)
	for i := 0; i < len(a); i += 2 {
		switch {
		case i+1 == len(a):
			b.WriteString(" " + a[i])
		case a[i+1] != "":
			b.WriteString(" " + a[i] + `="` + html.EscapeString(report.Plain(a[i+1])) + `"`)
		}
	}
	b.WriteString(">")
	return markup(b.String())
}

// when is m if that is so.
func when(is bool, m markup) markup {
	if is {
		return m
	}
	return ""
}

// since is how long ago something was: the browser counts on. Where a page is compared with another, no time stands in it.
func (o options) since(at, now time.Time) markup {
	if at.IsZero() {
		return ""
	}
	shown := markup("")
	if o.times {
		shown = text(report.Span(max(now.Sub(at), 0).Truncate(time.Second)))
	}
	return el("time", attrs{"data-since", strconv.FormatInt(at.UnixMilli(), 10), "datetime", at.UTC().Format(time.RFC3339)}, shown)
}

// figure is a number whose thousands are told apart.
func figure(n uint64) string {
	digits := strconv.FormatUint(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "\u202f" + digits[i:]
	}
	return digits
}

// count is "1 rank", "2 ranks".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// A fragment is a part of the page that changes as one, and is found there by its id. One with parts has its own text around them.
type fragment struct {
	id         string
	begin, end markup
	parts      []fragment
}

func (f fragment) markup() markup {
	if len(f.parts) == 0 {
		return f.begin + f.end
	}
	var b strings.Builder
	b.WriteString(string(f.begin))
	for _, p := range f.parts {
		b.WriteString(string(p.markup()))
	}
	b.WriteString(string(f.end))
	return markup(b.String())
}

// differences are the smallest fragments of a page that are not as they were in another one.
func differences(was, is []fragment) (all []fragment) {
	for i, f := range is {
		switch {
		case i >= len(was) || !was[i].like(f): // the page has always the same fragments, and these are as many as before
			all = append(all, f)
		default:
			all = append(all, differences(was[i].parts, f.parts)...)
		}
	}
	return all
}

// like reports whether two fragments differ in their parts alone, and those in nothing but what is in them.
func (f fragment) like(g fragment) bool {
	if f.id != g.id || f.begin != g.begin || f.end != g.end || len(f.parts) != len(g.parts) {
		return false
	}
	for i := range f.parts {
		if f.parts[i].id != g.parts[i].id {
			return false
		}
	}
	return true
}
