package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/dialect"
	"github.com/muster-run/muster/install"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher"
)

func installCommand() *cli.Command {
	var names linkNames
	return &cli.Command{
		Name: "install", Usage: "put this program into a directory, such as a volume for images that lack it", ArgsUsage: "DIR [--links]",
		Description: "Where a pod's init container does so, no image need be built anew: docs/images.md.\n\n" +
			"  muster install /opt/muster --links\n\n" +
			"A file is whole or not there, and what is there already stays. Of other programs' files none is replaced.",
		Flags: []cli.Flag{&cli.GenericFlag{Name: "links", Value: &names, Usage: "`[=NAME,...]` links to it beside it: of all launchers, or of these; also sshd, ssh, pdsh, tini, dumb-init"}},
		Action: func(x *cli.Context) error {
			args := x.Args().Slice()
			if len(args) > 1 { // DIR --links
				rest, _, err := normalise(allFlags(x), args[1:])
				if err != nil {
					return wrong("install: %v", err)
				}
				args = append(args[:1], slices.DeleteFunc(rest, func(arg string) bool { return strings.HasPrefix(arg, "--links=") })...)
			}
			if len(args) != 1 || args[0] == "" {
				return wrong("install: give one DIR, and names of links behind =; for example: muster install /opt/muster --links=torchrun,accelerate")
			}
			return installIn(args[0], names)
		},
	}
}

// installIn says what it did in one line.
func installIn(dir string, links []string) error {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return &launcher.Error{Code: job.ExitSystem, Err: fmt.Errorf("install: %w", err), Hint: "is /proc mounted?"}
	}
	defer self.Close()
	var done install.Done
	err = unlessBusy(
		func() (err error) { done, err = install.Into(dir, self, builtFrom(), links); return err },
		func() {
			fmt.Fprintf(os.Stderr, "muster: %s: %v; waiting for it, %v at most\n", dir, install.ErrBusy, busyTime)
		})
	if foreign := (install.Foreign{}); errors.As(err, &foreign) {
		return wrong("install: %v; nothing was written: move it away, or give another directory", err)
	}
	if err != nil {
		return &launcher.Error{Code: job.ExitSystem, Err: fmt.Errorf("install: %w", err)}
	}
	how := "is"
	if !done.Fresh {
		how = "was already"
	}
	line := fmt.Sprintf("%s %s muster %s", done.Path, how, version())
	if len(links) > 0 {
		line += ", with links " + strings.Join(links, " ")
	}
	fmt.Println(line)
	if done.NoExec {
		fmt.Fprintf(os.Stderr, "muster: %s is mounted noexec here: nothing in it can be run\n", dir)
	}
	return nil
}

// busyTime is how long a large program may take to be written to a slow volume.
const busyTime = 2 * time.Minute

// unlessBusy tries, and while another one is at work says so once and tries again.
func unlessBusy(try func() error, say func()) error {
	for late := time.Now().Add(busyTime); ; time.Sleep(insistPause) {
		err := try()
		if !errors.Is(err, install.ErrBusy) {
			return err
		}
		if say(); time.Now().After(late) {
			return fmt.Errorf("%w, for %v; if none is, some process holds a lock on the directory (lslocks)", err, busyTime)
		}
		say = func() {}
	}
}

// builtFrom is in every build of this program: what Go notes of the main package.
func builtFrom() string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return "path\tgithub.com/muster-run/muster/cmd/muster"
	}
	return "path\t" + info.Path
}

// linkNames are those of programs in whose place muster can be called.
type linkNames []string

// answersTo are all such names.
func answersTo() []string {
	names := append(dialect.Programs(), "tini", "tini-static", "docker-init", "dumb-init")
	for _, s := range stands() {
		if s.doc != "" {
			names = append(names, s.name)
		}
	}
	return names
}

func (v *linkNames) Set(text string) error {
	*v = nil
	switch yes, err := truth(text); {
	case yes == "true":
		*v = dialect.Programs()
		return nil
	case err == nil:
		return nil
	}
	for name := range strings.SplitSeq(text, ",") {
		if !slices.Contains(answersTo(), name) {
			return fmt.Errorf("muster does not stand in for %q; it does for %s", name, strings.Join(answersTo(), ", "))
		}
		if !slices.Contains(*v, name) {
			*v = append(*v, name)
		}
	}
	return nil
}

func (v *linkNames) choices() []string { return answersTo() }

func (v *linkNames) String() string { return "" }

// IsBoolFlag tells the flag package that --links may stand alone.
func (v *linkNames) IsBoolFlag() bool { return true }
