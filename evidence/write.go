package evidence

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// writeLimit is how long Write takes at the most.
const writeLimit = 5 * time.Second

// Write lays b out in files below dir, and returns where: DIR/JOB/round-0-20261122T001502Z/NODE, with a directory for each rank and,
// last of all, index.json, which says what is what. What somebody else has written there, who has the same dir, stays as it is: that is
// [fs.ErrExist]. If dir is on a file system that is dead, which may be what the job waits for, it gives up after five seconds; the
// goroutine that writes is left behind.
func (b Bundle) Write(ctx context.Context, dir string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	to, done := b.begin(ctx, dir)
	return to, await(ctx, to, done)
}

// begin writes in a goroutine of its own, which a dead file system may hold for ever.
func (b Bundle) begin(ctx context.Context, dir string) (to string, done <-chan error) {
	below := filepath.Join(plain(b.Job), fmt.Sprintf("round-%d-%s", b.Round, b.At.UTC().Format("20060102T150405Z")), plain(b.Node))
	ended := make(chan error, 1)
	go func() { ended <- b.write(ctx, dir, below) }()
	return filepath.Join(dir, below), ended
}

// await is the end of that, or of ctx.
func await(ctx context.Context, to string, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("write evidence to %s: it takes too long, the file system may be dead: %w", to, context.Cause(ctx))
	}
}

// write follows no link that leads out of dir: there another user may have planted it, where he can write to dir, too.
func (b Bundle) write(ctx context.Context, dir, to string) error {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = b.writeIn(ctx, dir, to)
	}
	if err != nil {
		return fmt.Errorf("write evidence: %w", err)
	}
	return nil
}

func (b Bundle) writeIn(ctx context.Context, dir, to string) error {
	in, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer in.Close()
	index := filepath.Join(to, "index.json")
	taken, err := take(in, index)
	if err != nil {
		return fmt.Errorf("in %s: %w", dir, err)
	}
	if err = b.fill(ctx, in, to, taken); err == nil {
		err = in.Rename(taken, index)
	}
	if err != nil {
		in.Remove(taken)
		return fmt.Errorf("in %s: %w", dir, err)
	}
	return nil
}

// take makes the file in which an index is written, if nobody else has it.
func take(in *os.Root, index string) (string, error) {
	name := index + ".new"
	if err := in.MkdirAll(filepath.Dir(index), 0o755); err != nil {
		return "", err
	}
	f, err := in.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return "", err
	}
	f.Close()
	if _, err := in.Lstat(index); err == nil {
		in.Remove(name)
		return "", &os.PathError{Op: "create", Path: index, Err: fs.ErrExist}
	}
	return name, nil
}

// fill writes everything, the index last.
func (b Bundle) fill(ctx context.Context, in *os.Root, to, index string) error {
	for _, p := range b.Pieces {
		if p.Text == "" {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := put(in, filepath.Join(to, plainPath(p.Name)), p.Text); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(b.index(), "", "  ")
	if err != nil {
		return err
	}
	return put(in, index, string(text)+"\n")
}

// index is b with sizes in place of texts.
func (b Bundle) index() any {
	type entry struct {
		Piece
		Bytes int `json:"bytes,omitempty"`
	}
	entries := make([]entry, len(b.Pieces))
	for i, p := range b.Pieces {
		entries[i] = entry{p, len(p.Text)}
		entries[i].Name, entries[i].Text = plainPath(p.Name), ""
	}
	return struct {
		Bundle
		Pieces []entry `json:"pieces"`
	}{b, entries}
}

func put(in *os.Root, name, text string) error {
	if err := in.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return in.WriteFile(name, []byte(text), 0o644)
}

// plainPath is the name of a piece as a path that leads nowhere else.
func plainPath(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = plain(part)
	}
	return filepath.Join(parts...)
}

// plain is a name that is one element of a path, whatever the user called his job and his hosts.
func plain(name string) string {
	name = strings.Map(func(r rune) rune {
		if r == '/' || r < ' ' {
			return '_'
		}
		return r
	}, name)
	if name == "" || strings.Trim(name, ".") == "" {
		return "_" + name
	}
	return name[:min(len(name), 200)]
}
