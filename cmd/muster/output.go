package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/launcher"
)

// outputFlags say where the workers' output goes and how it looks, torchrun's first.
func outputFlags(c *launcher.Config) []cli.Flag {
	c.Output.Quota = launcher.DefaultQuota
	return []cli.Flag{
		&cli.StringFlag{Name: "log-dir", Destination: &c.LogDir, Usage: "`DIR` for log files: DIR/ID_HOST_…/attempt_0/LOCAL_RANK/stdout.log"},
		&cli.GenericFlag{Name: "redirects", Aliases: []string{"r"}, Value: &c.Output.Redirects, Usage: "`WHAT` goes to files only: 0 none, 1 stdout, 2 stderr, 3 both, 0:1,1:2"},
		&cli.GenericFlag{Name: "tee", Aliases: []string{"t"}, Value: &c.Output.Tee, Usage: "`WHAT` goes to files and the console (3 with --log-dir)"},
		&cli.GenericFlag{Name: "ranks", Value: &c.Output.Ranks, Usage: "`0,7` or 0-3: whose output the console shows (all)"},
		&cli.GenericFlag{Name: "local-ranks-filter", Value: &c.Output.LocalRanks, Hidden: true, Usage: "`0,1` local ranks whose output the console shows (all)"},
		&cli.GenericFlag{Name: "log-quota", Value: size{&c.Output.Quota}, Hidden: true, Usage: "`SIZE` that the log files of one stream may have; then the oldest part goes (256M; 0: no limit)"},
		&cli.BoolFlag{Name: "fold", Destination: &c.Style.Fold, Hidden: true, Usage: "show equal lines of several ranks as one: [ranks 1-7] ..."},
		&cli.BoolFlag{Name: "bare", Destination: &c.Style.Bare, Hidden: true, Usage: "show lines as the workers write them, without [rank N]"},
		&cli.GenericFlag{Name: "log-format", Value: format{&c.Style.JSON}, Hidden: true, Usage: "`text|json` of the console; json is an object for each line"},
		&cli.GenericFlag{Name: "progress-regex", Value: &c.Output.Progress, Hidden: true, Usage: "`REGEX` of output lines by which a worker advances; (...) in it is the step"},
		&cli.GenericFlag{Name: "stdin", Value: &c.Output.Stdin, Hidden: true, Usage: "`RANK` that gets standard input (none)"},
	}
}

// styled completes how the console looks with what this process knows.
func styled(c *launcher.Config) error {
	if c.Style.Fold && c.Style.JSON {
		return wrong("run: %s and %s: lines of several ranks are no lines of one; drop one of them", c.From["fold"], c.From["log-format"])
	}
	c.Style.Color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	c.Style.Node = c.Host.Hostname
	return nil
}

// size is a number of bytes as a flag: 500000, 64K, 256M, 2G, also 256MiB.
type size struct{ bytes *int64 }

// minSize is what log files need to hold anything.
const minSize = 4 << 10

func (s size) Set(text string) error {
	digits := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(text), "B"), "I")
	factor := int64(1)
	for i, unit := range []string{"K", "M", "G", "T"} {
		if rest, ok := strings.CutSuffix(digits, unit); ok {
			digits, factor = rest, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseUint(digits, 10, 62)
	if err != nil || int64(n) > (1<<62)/factor || n > 0 && int64(n)*factor < minSize {
		return fmt.Errorf("%q is no size: give 64M, 2G or a number of bytes from %d; 0 is no limit", text, minSize)
	}
	*s.bytes = int64(n) * factor
	return nil
}

func (s size) String() string { return "" }

// format is whether lines are for people or machines, as a flag.
type format struct{ json *bool }

func (f format) Set(text string) error {
	if text != "text" && text != "json" {
		return fmt.Errorf("%q is neither text nor json", text)
	}
	*f.json = text == "json"
	return nil
}

func (f format) String() string { return "" }
