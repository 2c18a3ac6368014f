package page

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// TraceFile is where the worker with the page at path leaves what its flight recorders hold, when AskTrace wants it: one JSON object
// with PyTorch's own dump of each, by the backend's name. It is there when it is complete.
func TraceFile(path string) string { return path + ".trace" }

// AskTrace lets the worker with the page at path write TraceFile, in place of one that is there. Its helper thread does so at its next
// turn, within a second; one that gets no turn, for somebody holds Python's lock, does not.
func AskTrace(path string) error {
	err := os.Remove(TraceFile(path))
	if err == nil || errors.Is(err, os.ErrNotExist) {
		err = ask(path, traceAt)
	}
	if err != nil {
		return fmt.Errorf("ask for a recording: %w", err)
	}
	return nil
}

// AskStacks lets the worker with the page at path append the stacks of all its threads to StackFile, at its helper thread's next turn. That
// thread holds Python's lock meanwhile, so nothing can come of it, unlike of StackSignal; and where somebody else keeps the lock, it does not.
func AskStacks(path string) error {
	if err := ask(path, stacksAt); err != nil {
		return fmt.Errorf("ask for stacks: %w", err)
	}
	return nil
}

// ask puts a number on the page that was never there.
func ask(path string, at int64) error {
	f, err := open(path, os.O_RDWR)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(order.AppendUint64(nil, uint64(time.Now().UnixNano())), at)
	return err
}

// MaxTrace is more than the hook writes.
const MaxTrace = 3 << 20

// Trace takes what the worker wrote; "": it has not, so far. The file goes, for it is in memory.
func Trace(path string) (string, error) {
	f, err := openRegular(TraceFile(path), os.O_RDONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read a recording: %w", err)
	}
	defer f.Close()
	defer os.Remove(TraceFile(path))
	text, err := io.ReadAll(io.LimitReader(f, MaxTrace))
	if err != nil {
		return "", fmt.Errorf("read a recording: %w", err)
	}
	return string(text), nil
}

// DropStacks empties StackFile, which is in memory: the worker with the page at path writes at its end.
func DropStacks(path string) error {
	f, err := openRegular(StackFile(path), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("drop stacks: %w", err)
	}
	defer f.Close()
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("drop stacks: %w", err)
	}
	return nil
}
