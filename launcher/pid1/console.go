package pid1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/muster-run/muster/output"
)

// A Console is standard output and error, or two files in their place, to which the first process writes the lines of
// workers, and our own among them.
type Console struct {
	Number int // by which [proc.Lines] names it
	client *Client
	files  [2]*os.File
}

// OpenConsole lets the first process write to stdout and stderr; they stay the caller's. A console of that number which is
// open, for an agent before this one opened it, stays as it is.
func (c *Client) OpenConsole(number int, stdout, stderr *os.File, style output.Style) (*Console, error) {
	files, err := descriptors([]*os.File{stdout, stderr})
	if err != nil {
		return nil, fmt.Errorf("open the console: %w", err)
	}
	_, err = c.ask(context.Background(), message{Kind: askConsole, Console: number, Style: &style, files: files})
	if err != nil {
		return nil, fmt.Errorf("open the console: %w", err)
	}
	return &Console{number, c, [2]*os.File{stdout, stderr}}, nil
}

// Stdout returns a writer for lines of our own among the workers'. Each Write should be whole lines.
func (c *Console) Stdout() io.Writer { return lineWriter{c, 1} }

// Stderr is Stdout for standard error.
func (c *Console) Stderr() io.Writer { return lineWriter{c, 2} }

// Close delivers what waits, within the time of ctx, and closes the console. The error says how many lines were lost in all.
func (c *Console) Close(ctx context.Context) error {
	within := defaultKillTime
	if t, ok := ctx.Deadline(); ok {
		within = time.Until(t)
	}
	m, err := c.client.ask(context.WithoutCancel(ctx), message{Kind: askClose, Console: c.Number, Within: within})
	if err == nil && m.Text != "" {
		err = errors.New(m.Text)
	}
	return err
}

type lineWriter struct {
	*Console
	stream int
}

// Write hands b to the first process, or, when that is gone, to the file itself.
func (w lineWriter) Write(b []byte) (int, error) {
	if w.client.send(message{Kind: tellLines, Console: w.Number, Stream: w.stream, Data: b}) != nil {
		return w.files[w.stream-1].Write(b)
	}
	return len(b), nil
}
