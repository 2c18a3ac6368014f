package main

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/dialect"
	"github.com/muster-run/muster/evidence"
	"github.com/muster-run/muster/job"
)

func manCommand() *cli.Command {
	return &cli.Command{
		Name: "man", Usage: "print the manual page, every command and flag",
		Description: "  muster man | man -l -\n  muster man > /usr/local/share/man/man1/muster.1",
		Action: func(*cli.Context) error {
			p := roff{os.Stdout}
			p.manual(buildDate())
			return nil
		},
	}
}

// buildDate is when the build's last change was made, or else the program itself.
func buildDate() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if day, _, ok := strings.Cut(s.Value, "T"); ok && s.Key == "vcs.time" {
				return day
			}
		}
	}
	info, err := os.Stat("/proc/self/exe")
	if err != nil {
		return "1970-01-01"
	}
	return info.ModTime().UTC().Format(time.DateOnly)
}

// A roff is a page written in the language of man(7).
type roff struct{ w io.Writer }

// plain is text that means itself, in every locale.
var plain = strings.NewReplacer("…", "...", `\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`)

// line writes one line of text, which is no request.
func (p roff) line(text string) {
	text = plain.Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	fmt.Fprintln(p.w, text)
}

// say writes words, in lines that are not long.
func (p roff) say(text string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(plain.Replace(line+word)) >= 78 {
			p.line(line)
			line = ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	p.line(line)
}

func (p roff) section(name string) { fmt.Fprintf(p.w, ".SH %s\n", name) }

// item is a word, or more, and what it means.
func (p roff) item(word, text string) {
	fmt.Fprintf(p.w, ".TP\n.B %s\n", plain.Replace(word))
	p.say(text)
}

// prose are paragraphs, with empty lines between them; lines that are indented are to be typed.
func (p roff) prose(text string) {
	typed, paragraph := false, true
	for line := range strings.Lines(strings.Trim(text, "\n")) {
		line = strings.TrimRight(line, " \n")
		is := strings.HasPrefix(line, "  ")
		switch {
		case line == "":
			paragraph = true
			continue
		case typed && !is:
			fmt.Fprintln(p.w, ".fi\n.RE\n.PP")
		case is && !typed:
			fmt.Fprintln(p.w, ".PP\n.RS 4\n.nf")
		case paragraph && !typed:
			fmt.Fprintln(p.w, ".PP")
		}
		if typed, paragraph = is, false; typed {
			p.line(line[2:])
		} else {
			p.say(line)
		}
	}
	if typed {
		fmt.Fprintln(p.w, ".fi\n.RE")
	}
}

// command is one of muster's, with those below it.
func (p roff) command(name string, c *cli.Command) {
	if c.Hidden {
		return
	}
	for _, sub := range c.Subcommands {
		p.command(name+" "+sub.Name, sub)
	}
	if len(c.Subcommands) > 0 {
		return
	}
	fmt.Fprintf(p.w, ".SS %s\n", plain.Replace(strings.TrimSpace(name+" "+c.ArgsUsage)))
	p.say(strings.ToUpper(c.Usage[:1]) + c.Usage[1:] + ".")
	p.prose(c.Description)
	for _, f := range c.Flags {
		p.item(flagNames(f), usageOf(f))
	}
}

// manual is the whole page.
func (p roff) manual(date string) {
	fmt.Fprintf(p.w, ".TH MUSTER 1 %q \"muster %s\" \"User Commands\"\n", date, version())
	p.section("NAME")
	p.say("muster - starts distributed training")
	p.section("SYNOPSIS")
	fmt.Fprintln(p.w, ".B muster run\n[\\fIflags\\fR] \\fIscript.py\\fR [\\fIargument\\fR ...]\n.br\n.B muster\n\\fIcommand\\fR [\\fIflags\\fR] ...")
	p.section("DESCRIPTION")
	p.say("The agents of a job find each other, agree who has which rank, start one worker for each GPU, stop all of them when one fails,\nand end with an exit status and a sentence that say what happened.")
	p.section("COMMANDS")
	for _, c := range commands() {
		p.command(c.Name, c)
	}
	p.section(`"OTHER LAUNCHERS"`)
	p.say("Behind muster, or by links of their names to it:")
	for _, d := range dialect.All() {
		p.item(d.Name, d.Doc)
	}
	for _, s := range stands() {
		if s.doc != "" {
			p.item(s.name, s.doc)
		}
	}
	p.section("ENVIRONMENT")
	p.say("Every flag is also a variable: MUSTER_ and its name, as MUSTER_NNODES. Beside these:")
	for _, v := range forPeople {
		p.item(v.name, v.text)
	}
	p.section(`"EXIT STATUS"`)
	const anybodys = 5
	for code := range job.ExitTERM + 1 {
		ours := code < 128 || slices.Contains([]int{job.ExitINT, killed, job.ExitRetry, job.ExitTERM}, code)
		if text := evidence.ExitCode(code); ours && text != evidence.ExitCode(anybodys) {
			p.item(fmt.Sprint(code), text)
		}
	}
	p.item("any other, to 113", evidence.ExitCode(anybodys))
	p.section("FILES")
	p.item("/dev/termination-log", "the last words, where there is such a file, as in every container of Kubernetes")
}
