package launcher

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/muster-run/muster/job"
)

// lastWords leaves text for whoever asks why this container ended, should it end now. There may be nobody to leave
// it with; that is no reason to fail.
func (c Config) lastWords(text string) {
	if err := c.First.LastWords("muster: " + text); err != nil {
		c.Log.Debug("last words", "err", err)
	}
}

// maxWords is what the first process takes (and what Kubernetes leaves one of twelve containers of a pod).
const maxWords = 1024

// Words is a verdict as last words: the sentence, the same for machines, and the sentence again, because kubelet
// keeps the end of what is too long.
func Words(v job.Verdict) string {
	short := v
	if v.First != nil {
		first := *v.First
		first.Tail, first.Exception, first.Exit.Err = nil, "", "" // they are in the sentence
		short.First = &first
	}
	short.Sentence = ""
	data, _ := json.Marshal(short) // plain values: cannot fail
	sentence := line1(v.Sentence, max((maxWords-len(data)-16)/2, 0))
	return fmt.Sprintf("%s\n%s\n%s", sentence, data, sentence)
}

// line1 is the first line of text without control characters, cut to at most n bytes between two characters: it may
// come from a worker's output or another machine, and goes to a terminal.
func line1(text string, n int) string {
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
		case unicode.IsControl(r):
			return -1
		}
		return r
	}, text)
}

// Bounds on what a failure carries to other nodes.
const (
	tailLines     = 20
	tailLine      = 400
	exceptionText = 300
)

// lastLines is the end of a worker's output, bounded.
func lastLines(tail []string) []string {
	var out []string
	for _, text := range tail[max(0, len(tail)-tailLines):] {
		out = append(out, line1(text, tailLine))
	}
	return out
}

// runDir makes this run's private directory.
func runDir(c Config, id string) (string, error) {
	base := os.TempDir()
	if dir, ok := c.getenv("XDG_RUNTIME_DIR"); ok && dir != "" {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			base = dir
		}
	}
	dir, err := os.MkdirTemp(base, "muster-"+safeName(id)+"-")
	if err != nil {
		return "", fail(job.ExitSystem, "set TMPDIR to a directory that can be written", "make a directory for this run: %w", err)
	}
	return dir, nil
}

// safeName is text as a part of a file's name.
func safeName(text string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("-_.", r) || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, line1(text, 40))
}
