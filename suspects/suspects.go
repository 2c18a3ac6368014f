// Package suspects remembers, in a directory that nodes and jobs share, which machines failed them.
//
// Each node appends to a file of its own, a line of JSON for each finding, and reads those of all: no two nodes write to one file,
// which file systems of several machines do not agree about.
package suspects

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
)

// A Finding is one thing that happened to a job on a machine.
type Finding struct {
	Time    time.Time   `json:"time"`
	Machine job.Machine `json:"machine"`
	Kind    string      `json:"kind"` // a word for programs: lost, excluded, fault, hung
	Why     string      `json:"why"`  // a sentence for people
	Job     string      `json:"job"`
	By      string      `json:"by"` // name of the node that found it
}

// A Dir is the path of the shared directory.
type Dir string

// What is read at most. Later findings count more, so a file is read from its end.
const (
	maxFiles = 1 << 14
	maxTail  = 64 << 10 // bytes of a file
	maxLine  = 4 << 10
	maxBad   = 4         // files of which an error speaks
	ahead    = time.Hour // by which clocks of machines may differ; a later finding is none
)

const extension = ".jsonl"

// Add appends a finding to the file of the machine that says it. The directory is made if it is not there.
func (d Dir) Add(by job.Machine, f Finding) error {
	f.Why = f.Why[:min(len(f.Why), maxLine/4)]
	line, err := json.Marshal(f)
	if err == nil && len(line) > maxLine {
		err = fmt.Errorf("it has %d bytes, more than %d", len(line), maxLine)
	}
	if err == nil {
		err = os.MkdirAll(string(d), 0o777)
	}
	if err == nil {
		err = appendLine(d.file(by), line)
	}
	if err != nil {
		return fmt.Errorf("keep a finding about %v: %w", f.Machine, err)
	}
	return nil
}

// file is a machine's own.
func (d Dir) file(by job.Machine) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", by.Name, by.ID, by.Boot))
	name := strings.Map(func(r rune) rune {
		if strings.ContainsRune("-_.", r) || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, by.Name[:min(len(by.Name), 64)])
	return filepath.Join(string(d), fmt.Sprintf("suspects-%s-%x%s", name, sum[:4], extension))
}

// appendLine writes in one stroke, after what an agent that died may have left of a line. The directory is everybody's: what
// another user put there, such as a link to a file of ours, or a pipe, is not written to.
func appendLine(path string, line []byte) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o666)
	if err != nil {
		return err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(fmt.Errorf("%s is no file", path), err, file.Close())
	}
	last := make([]byte, 1)
	if size, err := file.Seek(0, io.SeekEnd); err == nil && size > 0 {
		if _, err := file.ReadAt(last, size-1); err == nil && last[0] != '\n' {
			line = append([]byte{'\n'}, line...)
		}
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

// Read returns the findings since a time. The error says what of the directory could not be read; the findings are good all the
// same. A directory that is not there holds none.
func (d Dir) Read(since time.Time) ([]Finding, error) {
	dir, err := os.Open(string(d))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxFiles)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var all []Finding
	var bad []error
	for _, name := range names {
		if filepath.Ext(name) != extension {
			continue
		}
		found, err := read(filepath.Join(string(d), name), since)
		all = append(all, found...)
		if err != nil && len(bad) < maxBad {
			bad = append(bad, err)
		}
	}
	return all, errors.Join(bad...)
}

// read returns the findings in the end of a file.
func read(path string, since time.Time) ([]Finding, error) {
	info, err := os.Stat(path)
	if err != nil || info.ModTime().Before(since.Add(-ahead)) {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", path)
	}
	text, err := tail(path, info.Size())
	if err != nil {
		return nil, err
	}
	var all []Finding
	bad := 0
	for line := range bytes.Lines(text) {
		var f Finding
		switch line = bytes.TrimSpace(line); {
		case len(line) == 0:
		case len(line) > maxLine || json.Unmarshal(line, &f) != nil || f.Machine == job.Machine{} || f.Time.After(time.Now().Add(ahead)):
			bad++
		case !f.Time.Before(since):
			all = append(all, f)
		}
	}
	if bad > 0 {
		err = fmt.Errorf("%s: %d lines are no findings, and are left aside", path, bad)
	}
	return all, err
}

// tail returns the last lines of a file of this size.
func tail(path string, size int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	from := max(size-maxTail, 0)
	text, err := io.ReadAll(io.NewSectionReader(file, from, maxTail))
	if from > 0 {
		_, text, _ = bytes.Cut(text, []byte{'\n'})
	}
	return text, err
}

// About returns the latest finding about a machine, and whether there is one.
func About(all []Finding, m job.Machine) (latest Finding, found bool) {
	for _, f := range all {
		if f.Machine.Is(m) && (!found || f.Time.After(latest.Time)) {
			latest, found = f, true
		}
	}
	return latest, found
}
