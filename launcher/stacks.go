package launcher

import (
	"path/filepath"
	"strings"
)

// telling is where the main thread stands, of what Python's faulthandler wrote of all of them: the innermost line that is the
// user's, and then all, from the innermost.
func telling(text string) (lines []string) {
	own := ""
	for line := range strings.Lines(text[strings.LastIndex(text, "(most recent call first):")+1:]) {
		file, at, ok := frame(line)
		if !ok {
			continue
		}
		if own == "" && !library(file) {
			own = at
		}
		if len(lines) < maxLines {
			lines = append(lines, at)
		}
	}
	if own != "" && (len(lines) == 0 || lines[0] != own) {
		lines = append([]string{own}, lines...)
	}
	return lines
}

// frame reads a line such as `  File "/work/dataset.py", line 88 in __getitem__`.
func frame(line string) (file, at string, ok bool) {
	_, rest, ok := strings.Cut(line, `File "`)
	file, rest, found := strings.Cut(rest, `", line `)
	number, function, _ := strings.Cut(strings.TrimSpace(rest), " in ")
	return file, filepath.Base(file) + ":" + number + " " + function, ok && found
}

// library reports whether a file belongs to what was installed rather than to the job.
func library(file string) bool {
	return strings.HasPrefix(file, "<") || strings.Contains(file, "/site-packages/") || strings.Contains(file, "/dist-packages/") ||
		strings.Contains(file, "/lib/python")
}
