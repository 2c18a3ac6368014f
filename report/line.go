package report

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line is the first line of text without control characters, cut to at most n bytes between two characters: it may
// come from a worker's output or another machine, and goes to a terminal.
func Line(text string, n int) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	text = Plain(text)
	if len(text) <= n {
		return text
	}
	cut := max(n-len("…"), 0)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

// Plain returns text as one line that does nothing to a terminal.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return -1
		}
		return r
	}, text)
}
