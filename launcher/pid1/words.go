package pid1

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// DefaultWords is where Kubernetes puts a container's termination log.
const DefaultWords = "/dev/termination-log"

const maxWords = 1 << 10

// words is the termination log. nil: there is none.
type words struct {
	file *os.File
	size int // what stands in it
}

// openWords opens path, or what Kubernetes put there. It opens once, while there are descriptors.
func openWords(path string) *words {
	flags := os.O_WRONLY | unix.O_NONBLOCK // a pipe that nobody reads would stop us here
	if path == "" {
		path = DefaultWords
	} else {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		if !os.IsNotExist(err) || flags&os.O_CREATE != 0 {
			complain("no last words: %v", err)
		}
		return nil
	}
	info, err := f.Stat()
	if err == nil && canReplace(info) {
		return &words{f, int(min(info.Size(), 4*maxWords))}
	}
	f.Close()
	if path != os.DevNull {
		complain("no last words: %s is no file of its own", path)
	}
	return nil
}

// canReplace reports whether a file is one whose text can be replaced: not a pipe, and not the log that our own output goes to.
func canReplace(info os.FileInfo) bool {
	return info.Mode().IsRegular() && !slices.ContainsFunc([]*os.File{os.Stdout, os.Stderr}, func(f *os.File) bool {
		own, err := f.Stat()
		return err == nil && os.SameFile(own, info)
	})
}

// LeaveWords writes the last words of a job that ends before there is an agent. path is Config.TerminationLog.
func LeaveWords(path, text string) {
	w := openWords(path)
	if w != nil {
		w.write(text)
		w.file.Close()
	}
}

// write replaces what stands there. Wherever we are killed, one text or the other is left, never nothing and never a mix: one
// write covers all of the old text, and only then is the file cut.
func (w *words) write(text string) {
	if w == nil {
		return
	}
	text = clip(strings.TrimRight(text, "\n"), maxWords-1) + "\n"
	padded := []byte(text)
	if pad := w.size - len(padded); pad > 0 {
		padded = append(padded, bytes.Repeat([]byte{' '}, pad)...)
	}
	_, err := w.file.WriteAt(padded, 0)
	if err == nil {
		err = w.file.Truncate(int64(len(text)))
	}
	if err != nil {
		complain("last words: %v", err)
	}
	w.size = len(text)
}

// clip cuts text to at most n bytes, between characters.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
