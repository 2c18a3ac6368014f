package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/control"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report"
)

func statusCommand() *cli.Command {
	var a agent
	var asJSON, asPage, watch bool
	return &cli.Command{
		Name: "status", Usage: "show how the running job stands", ArgsUsage: "[flags]",
		Description: "Asks this node's agent, in the container where it runs:\n\n  muster status --watch",
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "json", Destination: &asJSON, Usage: "for programs: docs/control.md"},
			&cli.BoolFlag{Name: "html", Destination: &asPage, Usage: "the status page as a file: docs/status-page.md"},
			&cli.BoolFlag{Name: "watch", Destination: &watch, Usage: "again each second, until the job has ended"},
		}, a.flags()...),
		Action: func(x *cli.Context) error {
			if x.Args().Present() {
				return wrong("status: takes no arguments, got %q", x.Args().First())
			}
			if asPage {
				return printPage(&a, asJSON || watch)
			}
			show := showText
			switch {
			case asJSON && watch:
				show = showLine
			case asJSON:
				show = showJSON
			case watch && isTerminal(os.Stdout):
				show = showScreen
			}
			return printStatus(&a, watch, show)
		},
	}
}

// printStatus shows the status, or, if that is wanted, watches it.
func printStatus(a *agent, watch bool, show func(io.Writer, report.Status)) error {
	if watch {
		return watchStatus(a, show)
	}
	s, err := a.status(askTime)
	if err == nil {
		show(os.Stdout, s)
	}
	return err
}

// watchStatus shows the status each second until the job has ended, says how it did, and ends with its code. Meanwhile another agent may take this
// one's place.
func watchStatus(a *agent, show func(io.Writer, report.Status)) error {
	if err := a.stick(); err != nil {
		return err
	}
	heard, ended := 0, make(chan job.Verdict, 1)
	for late := time.Now(); ; {
		var s report.Status
		err := a.ask(askTime, control.Request{Do: "status"}, &s)
		if err == nil && s.PID != heard {
			if err = a.hearOutcome(ended); err == nil {
				heard = s.PID
			}
		}
		pause := time.Second
		switch {
		case err == nil:
			show(os.Stdout, s)
			late = time.Now().Add(askTime)
		case a.left(err) && time.Now().Before(late):
			pause = insistPause
		default:
			pause = 0
		}
		select {
		case v := <-ended:
			return sayOutcome(v)
		case <-time.After(pause):
		}
		switch {
		case pause == 0 && heard != 0:
			return fmt.Errorf("%w; how the job ended is not known", err)
		case pause == 0:
			return err
		}
	}
}

// hearOutcome makes the agent tell how the job ends. One of an older version cannot.
func (a *agent) hearOutcome(ended chan<- job.Verdict) error {
	tell, err := a.await(control.Request{Do: "outcome"})
	if err != nil {
		if a.left(err) {
			return err
		}
		return nil
	}
	go func() { // until then, or until the agent dies
		var v job.Verdict
		if tell(context.Background(), &v) == nil {
			select {
			case ended <- v:
			default: // it was told already
			}
		}
	}()
	return nil
}

func sayOutcome(v job.Verdict) error {
	if v.OK() {
		fmt.Fprintln(os.Stderr, "muster: the job has ended:", report.Plain(v.Sentence))
		return nil
	}
	fmt.Fprintf(os.Stderr, "muster: the job has ended: %s; exit %d\n", report.Plain(v.Sentence), v.Code)
	return exit(v.Code)
}

// printPage writes the page as it is now.
func printPage(a *agent, otherwise bool) error {
	if otherwise {
		return wrong("status: --html goes with neither --json nor --watch")
	}
	var page string
	if err := a.ask(askTime, control.Request{Do: "page"}, &page); err != nil {
		return err
	}
	_, err := io.WriteString(os.Stdout, page)
	return err
}

// askTime is how long an agent may take to answer what it knows.
const askTime = 5 * time.Second

func showText(w io.Writer, s report.Status) { io.WriteString(w, s.Text(time.Now())) }

func showJSON(w io.Writer, s report.Status) { w.Write(s.JSON()) }

func showLine(w io.Writer, s report.Status) { json.NewEncoder(w).Encode(s) }

// showScreen fills the terminal anew.
func showScreen(w io.Writer, s report.Status) {
	rows, columns := 24, 80
	if size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ); err == nil && size.Row > 1 && size.Col > 1 {
		rows, columns = int(size.Row), int(size.Col)
	}
	io.WriteString(w, screen(s, time.Now(), rows, columns, os.Getenv("NO_COLOR") == ""))
}

// screen is the status on a terminal of so many rows and columns, by ECMA-48: home, each line in the place of what was there, and below it nothing. Sentences
// go on in the next line, tables are cut. Meanwhile the terminal breaks no lines of its own (DECAWM): it may take some characters for two columns wide.
func screen(s report.Status, now time.Time, rows, columns int, colours bool) string {
	type line struct{ text, colour string }
	var lines []line
	table := false
	for i, text := range strings.Split(strings.TrimSuffix(s.Text(now), "\n"), "\n") {
		table = table || text == ""
		colour := colourOf(s, i, text)
		for !table && len([]rune(text)) > columns {
			var first string
			first, text = broken(text, columns)
			lines = append(lines, line{first, colour})
		}
		lines = append(lines, line{text, colour})
	}
	if more := len(lines) - (rows - 1); more > 0 {
		lines = append(lines[:rows-2:rows-2], line{text: fmt.Sprintf("and %d more lines: muster status", more+1)})
	}
	var b strings.Builder
	b.WriteString("\x1b[?7l\x1b[H")
	for _, l := range lines {
		if short := []rune(l.text); len(short) > columns {
			l.text = string(short[:columns-1]) + "…"
		}
		if colours && l.colour != "" {
			l.text = "\x1b[" + l.colour + "m" + l.text + "\x1b[m"
		}
		b.WriteString("\x1b[K" + l.text + "\n") // in this order: a line may end where the cursor stays upon its last character
	}
	return b.String() + "\x1b[J\x1b[?7h"
}

// broken is what of a text fits into so many columns, up to a blank if there is one, and the rest of it, which is set in.
func broken(text string, columns int) (first, rest string) {
	all := []rune(text)
	at := columns
	for i := columns; i > columns/2; i-- {
		if all[i] == ' ' {
			at = i
			break
		}
	}
	rest = strings.TrimLeft(string(all[at:]), " ")
	if columns > 8 {
		rest = "  " + rest
	}
	return string(all[:at]), rest
}

// colourOf is that of a line, the first of which is that of all: red where something went wrong, yellow where a person should look. "": none.
func colourOf(s report.Status, at int, line string) string {
	const red, yellow, green = "31", "33", "32"
	tone := ""
	for _, r := range s.Ranks {
		switch r.State {
		case report.RankFailed, report.RankHung, report.RankLost:
			tone = red
		case report.RankSuspect, report.RankSilent, report.RankStraggles:
			tone = cmp.Or(tone, yellow)
		}
	}
	switch {
	case at == 0 && len(s.Causes) > 0:
		return "1;" + red
	case at == 0:
		return "1;" + cmp.Or(tone, green)
	}
	for _, sign := range []struct{ text, colour string }{
		{"went wrong: ", red}, {" failed", red}, {" hung", red}, {" lost", red}, {"hang: ", red}, {"straggler", yellow}, {"health: ", yellow}, {"mind: ", yellow}, {" suspect", yellow}, {" silent", yellow}, {"this may be a hang", yellow},
	} {
		if strings.Contains(line, sign.text) {
			return sign.colour
		}
	}
	return ""
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
