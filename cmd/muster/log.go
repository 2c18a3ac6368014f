package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/muster-run/muster/report"
)

// lines is a log for people: one line a record, "muster:" before it, what went wrong in words.
type lines struct {
	mu    *sync.Mutex
	w     io.Writer
	level slog.Level
	attrs string
}

// newLog writes to w. MUSTER_LOG=debug says more, MUSTER_LOG=error less.
func newLog(w io.Writer) *slog.Logger {
	level := slog.LevelInfo
	if err := level.UnmarshalText([]byte(os.Getenv("MUSTER_LOG"))); err != nil {
		level = slog.LevelInfo
	}
	return slog.New(lines{mu: new(sync.Mutex), w: w, level: level})
}

func (l lines) Enabled(_ context.Context, level slog.Level) bool { return level >= l.level }

func (l lines) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString("muster: " + r.Message + l.attrs)
	r.Attrs(func(a slog.Attr) bool {
		b.WriteString(attr(a))
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := io.WriteString(l.w, report.Plain(b.String())+"\n")
	return err
}

func attr(a slog.Attr) string { return " " + a.Key + "=" + a.Value.String() }

func (l lines) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		l.attrs += attr(a)
	}
	return l
}

// WithGroup is not used in this program; names stay as they are.
func (l lines) WithGroup(string) slog.Handler { return l }
