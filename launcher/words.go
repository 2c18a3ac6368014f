package launcher

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/muster-run/muster/control"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report"
)

// lastWords leaves text for whoever asks why this container ended, should it end now. There may be nobody to leave
// it with; that is no reason to fail.
func (c Config) lastWords(text string) {
	if err := c.First.LastWords("muster: " + text); err != nil {
		c.Log.Debug("last words", "err", err)
	}
}

// Bounds on what a failure carries to other nodes.
const (
	tailLines     = 20
	tailLine      = 400
	exceptionText = 300
)

// lastLines is the end of a worker's output, bounded, without secrets.
func lastLines(hidden report.Mask, tail []string) []string {
	var out []string
	for _, text := range tail[max(0, len(tail)-tailLines):] {
		out = append(out, hidden.Line(text, tailLine))
	}
	return out
}

// runDir makes this run's private directory, where it can: in XDG_RUNTIME_DIR, in TMPDIR, or, if that says nothing, in /tmp or
// /dev/shm, which is there also in containers whose file system cannot be written. Its name is noted before there is one.
func runDir(c Config, id string, note func(dir string)) error {
	places := []string{"/tmp", "/dev/shm"}
	if given, _ := c.getenv("TMPDIR"); given != "" {
		places = []string{given}
	}
	if given, _ := c.getenv("XDG_RUNTIME_DIR"); given != "" {
		places = append([]string{given}, places...)
	}
	var errs error
	for _, place := range places {
		dir := filepath.Join(place, runPrefix+safeName(id)+"-"+newID())
		note(dir)
		err := os.Mkdir(dir, 0o700)
		if err == nil {
			return nil
		}
		errs = errors.Join(errs, err)
	}
	return fail(job.ExitSystem, "set TMPDIR to a directory that can be written", "make a directory for this run: %s",
		strings.ReplaceAll(errs.Error(), "\n", ", "))
}

// removeRun removes the private directory of a run, and nothing else, whatever dir may be.
func removeRun(dir string) {
	if strings.HasPrefix(filepath.Base(dir), runPrefix) {
		os.RemoveAll(dir)
	}
}

// runPrefix is how the names of those directories begin.
const runPrefix = control.Dirs

// safeName is text as a part of a file's name.
func safeName(text string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("-_.", r) || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, report.Line(text, 40))
}
