package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/report/events"
)

// An upgrade is a death of this agent at a time of our choosing: the first process starts the other program in its place,
// which takes over as after any death.

const (
	triedTime  = 10 * time.Second       // for a program to say its version
	answerTime = 100 * time.Millisecond // for our last answer to arrive
	maxVersion = 200                    // bytes of it
)

// upgrade lets the program in a file follow this agent, after a look at whether it is a muster.
func (d *desk) upgrade(ctx context.Context, path string) (any, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("upgrade to %.200q: give an absolute path", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("upgrade: %w", err)
	}
	defer file.Close()
	version, err := d.tried(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("upgrade to %s: %w", path, err)
	}
	if err := d.c.First.Succeed(file); err != nil {
		return nil, fmt.Errorf("upgrade to %s: %w", path, err)
	}
	d.c.keep(keptWay, d.c.First.Life())
	d.c.note(events.Line{Level: events.Info, Event: events.UpgradeAccepted, Version: version, Message: "this agent makes way for " + version})
	time.AfterFunc(answerTime, func() { os.Exit(0) }) // without a goodbye
	return fmt.Sprintf("this agent makes way for %s; the workers go on", version), nil
}

// predecessor is the agent from which this one takes over, by what became of it.
func (c Config) predecessor() string {
	if c.upgraded() {
		return "the agent that made way"
	}
	return "an agent that died"
}

// upgraded reports whether this agent is the first of the program for which another one made way. Where it finds that it cannot go on, the first process has that one.
func (c Config) upgraded() bool {
	var who int
	old := c.First.Legacy()
	return old != nil && json.Unmarshal(old.Blobs[keptWay], &who) == nil && who == c.First.Life()-1
}

// tried runs "path version" and returns what it says.
func (d *desk) tried(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, triedTime)
	defer cancel()
	child, err := d.c.First.Start(ctx, proc.Spec{Argv: []string{path, "version"}, Env: d.c.Environ})
	if err != nil {
		return "", err
	}
	defer child.Stdout.Close()
	defer child.Stderr.Close()
	select {
	case e := <-child.Exit:
		if e.Status() != 0 {
			return "", fmt.Errorf("%q %v", "version", e)
		}
	case <-ctx.Done():
		_ = d.c.First.Signal(child.PID, syscall.SIGKILL, proc.Leader)
		return "", errors.New("it does not say its version")
	}
	text, _ := io.ReadAll(io.LimitReader(child.Stdout, maxVersion))
	version := strings.TrimSpace(string(text))
	if !strings.HasPrefix(version, "muster ") || strings.Contains(version, "\n") {
		return "", fmt.Errorf("it is no muster: its version is %q", version)
	}
	return version, nil
}
