package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/topology"
)

// observeFlags are those of `muster init --observe`.
func observeFlags(on *bool, c *launcher.Config) []cli.Flag {
	c.NodeRank, c.OnHang, c.OnExit, c.Serve, c.LastCall = -1, "dump", "stop", "auto", 30*time.Second
	return []cli.Flag{
		&cli.BoolFlag{Name: "observe", Destination: on, Usage: "name hangs of a job that torchrun or another launcher runs, and never act: docs/observe.md"},
		&cli.StringFlag{Name: "evidence", Destination: &c.Evidence, Usage: "`DIR` for evidence of hangs (with the run)"},
		&cli.StringFlag{Name: "verdict", Destination: &c.VerdictFile, Usage: "`FILE` for the verdict as JSON, when the command has ended"},
		&cli.GenericFlag{Name: "http", Value: pageAddress{&c.HTTP}, Usage: "`ADDR` of the status page: [HOST]:PORT, or :8080-8090, the first free (none)"},
		&cli.GenericFlag{Name: "on-hang", Value: choice{&c.OnHang, "observe dump restart exclude-node"}, Hidden: true, Usage: "`WHAT` to do when no rank advances: observe, dump (dump)"},
		&cli.GenericFlag{Name: "hang-timeout", Value: seconds{&c.HangTimeout}, Hidden: true, Usage: "`TIME` after which that is a hang (10m)"},
		&cli.GenericFlag{Name: "hang-floor", Value: seconds{&c.HangFloor}, Hidden: true, Usage: "`TIME` before which it is none (30s)"},
		&cli.GenericFlag{Name: "hang-start-timeout", Value: seconds{&c.HangStart}, Hidden: true, Usage: "`TIME` before which it is none while the job has not trained yet (20m)"},
		&cli.GenericFlag{Name: "hang-busy-after", Value: seconds{&c.HangBusyAfter}, Hidden: true, Usage: "`TIME` before which it is none while the rank that is waited for is at work (--hang-timeout)"},
		&cli.GenericFlag{Name: "nnodes", Value: nodes{&c.Least, &c.Nodes}, Hidden: true, Usage: "`N` nodes that are observed (as the command or the platform says)"},
		&cli.GenericFlag{Name: "node-rank", Value: number{&c.NodeRank, 0, 1 << 20}, Hidden: true, Usage: "`I` number of this node, from 0 (the same)"},
		&cli.StringFlag{Name: "rdzv-endpoint", Destination: &c.Endpoint, Hidden: true, Usage: "`HOST:PORT` where those that observe meet; not the command's own port (a port beside it)"},
		&cli.StringFlag{Name: "rdzv-id", Destination: &c.JobID, Hidden: true, Usage: "`ID` name of the job, the same on all its nodes"},
		&cli.StringFlag{Name: "token-file", Destination: &c.TokenFile, Hidden: true, Usage: "`FILE` with a secret of the job's nodes, the same on all; or MUSTER_TOKEN"},
		&cli.StringFlag{Name: "local-addr", Destination: &c.LocalAddr, Hidden: true, Usage: "`ADDR` at which this node is reached best"},
	}
}

// notObserved are flags of muster run that whoever only looks on has no use for, and why.
var notObserved = map[string]string{
	"events":  "it decides nothing; what it sees is in --verdict, on standard error, and on the page",
	"journal": "it decides nothing that could be judged again",
	"log-dir": "the workers' output is the launcher's",
}

// alone reports that a flag says nothing without --observe. A variable may be meant for what init starts.
func (f *initFlags) alone(x *cli.Context) error {
	for _, o := range observeFlags(new(bool), new(launcher.Config)) {
		if by := givenBy(x)[o.Names()[0]]; strings.HasPrefix(by, "-") {
			return wrong("init: %s goes with --observe", by)
		}
	}
	return nil
}

// passive refuses what would be to act. A variable may be meant for what init starts; then evidence is kept, and the verdict's file is not
// ours.
func (f *initFlags) passive(x *cli.Context) error {
	if !strings.HasPrefix(givenBy(x)["verdict"], "-") {
		f.watch.VerdictFile = ""
	}
	if f.watch.OnHang == "observe" || f.watch.OnHang == "dump" {
		return nil
	}
	if strings.HasPrefix(givenBy(x)["on-hang"], "-") {
		return wrong("init: --on-hang %s is to act, and --observe never does", f.watch.OnHang)
	}
	f.watch.OnHang = "dump"
	return nil
}

// observed prepares the command to be looked at. It starts whatever that comes to.
func (f *initFlags) observed(x *cli.Context) (done func()) {
	observing(x, &f.watch)
	out, err := launcher.OpenLookout(f.watch)
	if err != nil {
		fmt.Fprintln(os.Stderr, "muster: nobody observes this job:", err)
		return func() {}
	}
	f.opt.Env, f.opt.LookOn, f.opt.Note = out.Environ(f.watch), true, out.Dir
	return out.Close
}

func observing(x *cli.Context, c *launcher.Config) {
	c.Argv, c.From, c.Host = x.Args().Slice(), givenBy(x), thisHost()
	c.Root, c.Version = topology.Root("/"), version()
	c.Environ = without(os.Environ(), launcher.TokenVariable, etcdUserVariable) // which another launcher has no use for
	c.Log = newLog(os.Stderr)
}

// closeTime bounds how long what an observer has open keeps the container from its end.
const closeTime = time.Second

// observe is the second process of `muster init --observe`.
func (f *initFlags) observe(x *cli.Context, news <-chan pid1.Told) error {
	observing(x, &f.watch)
	left, closed := make(chan report.Ending, 1), make(chan struct{})
	go func() {
		defer close(closed)
		launcher.Observe(f.watch, news, func(e report.Ending) { left <- e })
	}()
	e := <-left
	f.lastWords(e)
	select {
	case <-closed:
	case <-time.After(closeTime):
	}
	if !e.OK() {
		return exit(e.Code)
	}
	return nil
}

// lastWords are on standard error, and where the platform looks for them.
func (f *initFlags) lastWords(e report.Ending) {
	if !e.OK() {
		f.watch.Log.Error(e.Sentence)
	}
	if path := os.Getenv(terminationLog); path != "" || silent(pid1.DefaultWords) {
		pid1.LeaveWords(path, report.Words(e.Verdict))
	}
}

// silent reports whether nothing stands in a file: what the command itself left there for the platform stays.
func silent(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() == 0
}
