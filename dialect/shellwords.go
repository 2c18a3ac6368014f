package dialect

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// This file makes words as a shell does, as far as that can be known before.

// A field is a word of a command.
type field struct {
	text    string // where something is unknown, as it is written there
	unknown string // what of it the shell alone knows; "": nothing
}

// plain are words that are known.
func plain(words []string) (fields []field) {
	for _, w := range words {
		fields = append(fields, field{text: w})
	}
	return fields
}

func texts(fields []field) (words []string) {
	for _, f := range fields {
		words = append(words, f.text)
	}
	return words
}

// unknownOf is the first thing that is unknown in fields.
func unknownOf(fields []field) string {
	i := slices.IndexFunc(fields, func(f field) bool { return f.unknown != "" })
	if i < 0 {
		return ""
	}
	return fields[i].unknown
}

// A variable has the values that a script gives it: several, where nobody knows which it is.
type variable struct {
	values [][]field
	array  bool
	lost   bool // it may have yet another one
}

// What becomes of variables has bounds: the values that are tried of each, the bytes of a field, the fields of a command, and the bytes that are put
// together for all of a reading.
const (
	maxValues   = 4
	maxField    = 16 << 10
	maxFields   = 256
	maxExpanded = 4 << 20
)

// assigning are commands that give values to the variables that they name.
var assigning = strings.Fields("read mapfile readarray getopts unset printf let")

// loses notes that nobody knows a variable's value any more.
func (r *reading) loses(name string) {
	if r.variables[name] == nil {
		r.variables[name] = &variable{}
	}
	r.variables[name].lost = true
}

// assign takes a script's assignments.
func (r *reading) assign(t *text, all []*syntax.Assign) {
	for _, a := range all {
		if a.Name == nil || a.Naked {
			continue
		}
		e := expansion{reading: r, text: t}
		switch {
		case a.Array != nil:
			for _, elem := range a.Array.Elems {
				if elem.Value != nil {
					e.word(elem.Value)
				}
			}
		case a.Value != nil:
			e.quoted(a.Value.Parts)
			e.end()
		default:
			e.fields = []field{{}}
		}
		r.set(a, e.fields)
	}
}

// set gives a variable a value, beside those that it may have.
func (r *reading) set(a *syntax.Assign, value []field) {
	v := r.variables[a.Name.Value]
	switch {
	case v == nil:
		v = &variable{}
		r.variables[a.Name.Value] = v
	case a.Append && len(v.values) > 0:
		r.append(v, value, a.Array != nil)
		v.lost = v.lost || r.perhaps > 0
		return
	}
	if r.perhaps == 0 && a.Index == nil && !v.lost { // it is this one from here on
		v.values = nil
	}
	v.lost = v.lost || r.perhaps > 0 || a.Index != nil
	v.array = a.Array != nil
	if len(v.values) < maxValues {
		v.values = append(v.values, value)
	}
}

// append is +=.
func (r *reading) append(v *variable, value []field, array bool) {
	for i, old := range v.values {
		switch last := len(old) - 1; {
		case array && (len(old)+len(value) > maxFields || !r.affords(fieldCost*(len(old)+len(value)))):
			v.lost = true
		case array:
			v.values[i] = slices.Concat(old, value)
		case last >= 0 && len(value) > 0:
			old = slices.Clone(old)
			old[last] = r.joined(old[last], value[0])
			v.values[i] = old
		}
	}
}

// spent is what is unknown where a reading has no more for it.
const spent = "more text than 4 MiB"

// fieldCost is what a field costs beside its bytes, which are those of others.
const fieldCost = 32

// affords takes what is put together from what a reading may cost, and reports whether there was as much.
func (r *reading) affords(bytes int) bool {
	if r.expanded += bytes; r.expanded <= maxExpanded {
		return true
	}
	r.expanded = maxExpanded
	return false
}

// joined is two fields as one.
func (r *reading) joined(a, b field) field {
	switch n := len(a.text) + len(b.text); {
	case n > maxField:
		return field{text: a.text, unknown: "a text of more than 16 KiB"}
	case a.text != "" && b.text != "" && !r.affords(n): // else it costs nothing: a word that stands there is always known
		return field{text: a.text, unknown: spent}
	}
	unknown := a.unknown
	if unknown == "" {
		unknown = b.unknown
	}
	return field{a.text + b.text, unknown}
}

// An expansion makes fields of words.
type expansion struct {
	*reading
	text   *text
	pick   int  // which of its values a variable has
	more   bool // one has yet another
	fields []field
	now    field // that is being made
	begun  bool
}

// word adds what the shell makes of a word.
func (e *expansion) word(w *syntax.Word) {
	if e.full() {
		return
	}
	if slices.ContainsFunc(w.Parts, pattern) || braces(w) {
		e.add(field{e.source(w), e.source(w)})
		e.end()
		return
	}
	for _, part := range w.Parts {
		e.part(part)
	}
	e.end()
}

// pattern reports whether a part of a word that is not quoted stands for files' names, or for somebody's directory.
func pattern(part syntax.WordPart) bool {
	lit, ok := part.(*syntax.Lit)
	_, glob := part.(*syntax.ExtGlob)
	return glob || ok && (strings.ContainsAny(unescaped(lit.Value, "*?[", false), "*?[") || strings.HasPrefix(lit.Value, "~"))
}

// braces reports whether a word is several: {a,b}.
func braces(w *syntax.Word) bool {
	copied := *w
	copied.Parts = slices.Clone(w.Parts)
	syntax.SplitBraces(&copied)
	return slices.ContainsFunc(copied.Parts, func(p syntax.WordPart) bool { _, ok := p.(*syntax.BraceExp); return ok })
}

// part adds a part of a word that is not in double quotes.
func (e *expansion) part(part syntax.WordPart) {
	switch p := part.(type) {
	case *syntax.Lit:
		e.add(field{text: unescaped(p.Value, "", true)})
	case *syntax.SglQuoted:
		e.single(p)
	case *syntax.DblQuoted:
		if value, ok := e.array(p); ok {
			e.each(value)
			return
		}
		e.begun = true
		e.quoted(p.Parts)
	case *syntax.ParamExp:
		e.split(e.parameter(p))
	case *syntax.CmdSubst:
		e.split([]field{e.output(p)})
	default:
		e.add(field{e.source(p), e.source(p)})
	}
}

// quoted adds parts between double quotes, or of an assignment, where the same holds: words are not split.
func (e *expansion) quoted(parts []syntax.WordPart) {
	for _, part := range parts {
		switch p := part.(type) {
		case *syntax.Lit:
			e.add(field{text: unescaped(p.Value, "$`\"\\", true)})
		case *syntax.SglQuoted:
			e.single(p)
		case *syntax.DblQuoted:
			e.begun = true
			e.quoted(p.Parts)
		case *syntax.ParamExp:
			for i, f := range e.parameter(p) {
				if i > 0 {
					e.add(field{text: " "})
				}
				e.add(f)
			}
		case *syntax.CmdSubst:
			e.add(e.output(p))
		default:
			e.add(field{e.source(p), e.source(p)})
		}
	}
}

func (e *expansion) single(p *syntax.SglQuoted) {
	f := field{text: p.Value}
	if p.Dollar && strings.Contains(p.Value, "\\") {
		f.unknown = e.source(p)
	}
	e.add(f)
}

// array is the value of an array, or of the script's arguments, that double quotes keep apart: "$@".
func (e *expansion) array(q *syntax.DblQuoted) ([]field, bool) {
	if len(q.Parts) != 1 {
		return nil, false
	}
	p, ok := q.Parts[0].(*syntax.ParamExp)
	if !ok || p.Param == nil || p.Param.Value != "@" && index(p) != "@" {
		return nil, false
	}
	return e.parameter(p), true
}

// index is how that of an array is written; "": not as one word.
func index(p *syntax.ParamExp) string {
	if w, ok := p.Index.(*syntax.Word); ok {
		return w.Lit()
	}
	return ""
}

// parameter is the value of a parameter.
func (e *expansion) parameter(p *syntax.ParamExp) []field {
	unknown := []field{{e.source(p), e.source(p)}}
	if p.Param == nil || p.Excl || p.Length || p.Width || p.IsSet || p.Slice != nil || p.Repl != nil || p.Names != 0 || len(p.Modifiers) > 0 || p.Index != nil && index(p) != "@" && index(p) != "*" {
		return unknown
	}
	value, set := e.value(p.Param.Value)
	if p.Exp == nil {
		if !set {
			return unknown
		}
		return value
	}
	switch p.Exp.Op {
	case syntax.DefaultUnset, syntax.DefaultUnsetOrNull, syntax.AssignUnset, syntax.AssignUnsetOrNull:
		if set {
			return value
		}
		return e.default_(p.Exp.Word)
	case syntax.ErrorUnset, syntax.ErrorUnsetOrNull:
		if set {
			return value
		}
	case syntax.AlternateUnset, syntax.AlternateUnsetOrNull:
		if !set {
			return nil
		}
		return e.default_(p.Exp.Word)
	}
	return unknown
}

// default_ is the word that stands for a parameter without a value.
func (e *expansion) default_(w *syntax.Word) []field {
	if w == nil {
		return nil
	}
	inner := expansion{reading: e.reading, text: e.text, pick: e.pick}
	inner.quoted(w.Parts)
	inner.end()
	e.more = e.more || inner.more
	return inner.fields
}

// value is that of a variable, or of the script's arguments.
func (e *expansion) value(name string) (value []field, set bool) {
	v := e.variables[name]
	switch {
	case name == "@" || name == "*":
		if !e.affords(fieldCost * len(e.text.args)) {
			return []field{{"$" + name, spent}}, true
		}
		return e.text.args, true
	case len(name) == 1 && name >= "1" && name <= "9":
		if i := int(name[0] - '1'); i < len(e.text.args) && unknownOf(e.text.args) == "" {
			return e.text.args[i : i+1], true
		}
		return nil, false
	case name == "0" && e.text.file != "":
		return []field{{text: e.text.file}}, true
	case v == nil:
		text := e.Getenv(name)
		return []field{{text: text}}, text != ""
	case len(v.values) == 0:
		return nil, false
	}
	e.more = e.more || len(v.values) > e.pick+1
	value = v.values[min(e.pick, len(v.values)-1)]
	if len(value) > 1 && !e.affords(fieldCost*len(value)) {
		return []field{{"$" + name, spent}}, true
	}
	value = slices.Clone(value)
	if v.lost || e.perhaps > 0 && len(v.values) > 1 {
		for i := range value {
			value[i].unknown = "$" + name
		}
	}
	return value, true
}

// output is what a command writes that is put in its place: where a program is, which is as good as its name.
func (e *expansion) output(c *syntax.CmdSubst) field {
	unknown := field{e.source(c), e.source(c)}
	if len(c.Stmts) != 1 {
		return unknown
	}
	call, ok := c.Stmts[0].Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) < 2 {
		return unknown
	}
	var words []string
	for _, w := range call.Args {
		words = append(words, w.Lit())
	}
	switch strings.Join(words[:len(words)-1], " ") {
	case "which", "command -v", "type -P", "type -p":
		if last := words[len(words)-1]; last != "" {
			return field{text: last}
		}
	}
	return unknown
}

// source is how something is written.
func (e *expansion) source(n syntax.Node) string {
	from, to := int(n.Pos().Offset()), int(n.End().Offset())
	if from > to || to > len(e.text.code) {
		return "$"
	}
	return e.text.code[from:to]
}

// add continues the field that is being made.
func (e *expansion) add(f field) {
	e.now, e.begun = e.joined(e.now, f), e.begun || f.text != ""
}

// end ends it.
func (e *expansion) end() {
	switch {
	case !e.begun:
	case len(e.fields) < maxFields:
		e.fields = append(e.fields, e.now)
	default:
		e.fields[maxFields-1].unknown = "more than 256 words"
	}
	e.now, e.begun = field{}, false
}

// full reports whether there are as many as can be, and that is noted.
func (e *expansion) full() bool {
	return len(e.fields) == maxFields && e.fields[maxFields-1].unknown != ""
}

// each adds fields that are kept apart.
func (e *expansion) each(fields []field) {
	for i, f := range fields {
		if i > 0 {
			e.end()
		}
		if e.full() {
			return
		}
		e.add(f)
		e.begun = true
	}
}

// split adds fields that are parted at blanks.
func (e *expansion) split(fields []field) {
	for i, f := range fields {
		if i > 0 {
			e.end()
		}
		if f.unknown == f.text && f.unknown != "" {
			e.add(f)
			continue
		}
		e.blanks(f)
	}
}

func (e *expansion) blanks(f field) {
	if !e.affords(len(f.text)) {
		e.add(field{f.text, spent})
		return
	}
	words := strings.Fields(f.text)
	if strings.TrimLeft(f.text, " \t\n") != f.text {
		e.end()
	}
	for i, w := range words {
		if i > 0 {
			e.end()
		}
		if e.full() {
			return
		}
		e.add(field{w, f.unknown})
	}
	if strings.TrimRight(f.text, " \t\n") != f.text {
		e.end()
	}
}

// unescaped is a text without the backslashes before characters; of all, or, between double quotes, of some. Without keep those are left out with them.
func unescaped(text, of string, keep bool) string {
	if !strings.Contains(text, "\\") {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) || of != "" && text[i+1] != '\n' && !strings.ContainsRune(of, rune(text[i+1])) {
			b.WriteByte(text[i])
			continue
		}
		if i++; text[i] != '\n' && keep {
			b.WriteByte(text[i])
		}
	}
	return b.String()
}
