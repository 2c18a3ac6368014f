package launcher

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/report"
)

// A BugReport is what an agent knows that may explain what it does, without the secrets.
type BugReport struct {
	PID   int    `json:"pid"`
	Parts []Part `json:"parts"`
}

// A Part is one file of it.
type Part struct {
	Name string `json:"name"`
	Data []byte `json:"data"`
}

func (d *desk) bugReport() BugReport {
	now, mask := d.now(), report.NewMask(d.c.Environ)
	parts := []Part{
		{"status.json", mask.JSON(d.status().JSON())},
		{"settings.txt", []byte(d.settings(mask))},
		{"environment.txt", []byte(mask.Environ(d.c.Environ))},
		{"goroutines.txt", []byte(mask.Text(string(goroutines())))},
	}
	if now.state != nil {
		parts = append(parts, Part{"journal", mask.JSON(now.saw.lines())})
	}
	if text := d.lastWords(); text != "" {
		parts = append(parts, Part{"last-words.txt", []byte(mask.Text(text))})
	}
	return BugReport{os.Getpid(), parts}
}

// settings is how this agent was called, and what was decided by whom.
func (d *desk) settings(mask report.Mask) string {
	var b strings.Builder
	fmt.Fprintf(&b, "muster %s, pid %d\n", d.c.Version, os.Getpid())
	fmt.Fprintf(&b, "called: %q\nworkers run: %q\n", mask.Args(os.Args), mask.Args(d.plan.Command))
	for _, s := range d.plan.Settings {
		fmt.Fprintf(&b, "%s: %s (%s)\n", s.Name, mask.Text(s.Value), s.From)
	}
	for _, note := range d.plan.Notes {
		fmt.Fprintf(&b, "note: %s\n", mask.Text(note))
	}
	return b.String()
}

// lastWords is what stands in the termination log, if there is one.
func (d *desk) lastWords() string {
	path, _ := d.c.getenv("MUSTER_TERMINATION_LOG")
	f, err := os.Open(cmp.Or(path, pid1.DefaultWords))
	if err != nil {
		return ""
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, 4<<10))
	return string(text)
}
