package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/allow"
	"github.com/muster-run/muster/framework"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/report/events"
	"github.com/muster-run/muster/report/web"
	"github.com/muster-run/muster/topology"
)

// jobFlags are the flags that say what the job is; `run` and `env` share them.
func jobFlags(c *launcher.Config) []cli.Flag {
	c.NodeRank, c.WorkerStore, c.Serve = -1, "auto", "auto"
	c.JoinTimeout, c.StopTimeout, c.Grace = 15*time.Minute, 5*time.Second, 25*time.Second
	c.ExcludeFor, c.SuspectsFor = 10*time.Minute, 7*24*time.Hour
	c.JoinPolicy, c.LastCall, c.RejoinTimeout, c.Backoff = "now", 30*time.Second, 10*time.Minute, 30*time.Second
	return append([]cli.Flag{
		&cli.GenericFlag{Name: "nnodes", Value: nodes{&c.Least, &c.Nodes}, Usage: "`N` nodes, or MIN:MAX; what the platform says, else 1"},
		&cli.StringFlag{Name: "nproc-per-node", Destination: &c.NProc, Usage: "`N` workers on this node, or gpu, cpu, auto (one per GPU, else one)"},
		&cli.GenericFlag{Name: "node-rank", Value: number{&c.NodeRank, 0, 1 << 20}, Usage: "`I` number of this node, from 0; else nodes are ranked by place and name"},
		&cli.StringFlag{Name: "place", Destination: &c.Place, Hidden: true, Usage: "`PLACE` of this node in the network, for ranks that are near: rack=R,switch=S, or RACK/SWITCH; none; what the platform says"},
		&cli.StringFlag{Name: "place-file", Destination: &c.PlaceFile, Hidden: true, Usage: "`FILE` with the places of nodes: lines such as gpu[01-16] rack=R,switch=S"},
		&cli.StringFlag{Name: "rdzv-endpoint", Destination: &c.Endpoint, Usage: "`HOST:PORT` where the nodes meet; the node of that name hosts it (port 29400), or etcd://HOST:PORT,..."},
		&cli.StringFlag{Name: "rdzv-id", Destination: &c.JobID, Usage: "`ID` name of the job, the same on all its nodes"},
		&cli.GenericFlag{Name: "attempt", Value: number{&c.Attempt, 0, 1 << 30}, Hidden: true, Usage: "`N` times that the platform started this job before, the same on all its nodes (0, or what it says)"},
		&cli.StringFlag{Name: "master-addr", Destination: &c.MasterAddr, Usage: "`HOST` where node 0 runs, instead of --rdzv-endpoint"},
		&cli.GenericFlag{Name: "master-port", Value: port(&c.MasterPort), Usage: "`PORT` that goes with --master-addr"},
		&cli.BoolFlag{Name: "standalone", Destination: &c.Standalone, Usage: "this node alone, whatever the platform says"},
		&cli.BoolFlag{Name: "module", Aliases: []string{"m"}, Destination: &c.Module, Usage: "run a Python module, as python -m does"},
		&cli.GenericFlag{Name: "join-timeout", Value: wait{&c.JoinTimeout}, Usage: "`TIME` to wait for all nodes (15m)"},
		&cli.GenericFlag{Name: "node-timeout", Value: silence{&c.NodeTimeout}, Hidden: true, Usage: "`TIME` without a word after which a node is given up, the same on all nodes (10s)"},
		&cli.GenericFlag{Name: "stop-timeout", Value: seconds{&c.StopTimeout}, Usage: "`TIME` from TERM to KILL after a failure (5s)"},
		&cli.GenericFlag{Name: "grace", Value: seconds{&c.Grace}, Usage: "`TIME` from TERM to KILL when this job is told to stop (25s)"},
		&cli.GenericFlag{Name: "worker-store", Value: choice{&c.WorkerStore, "auto agent rank0"}, Usage: "`WHO` hosts the workers' store: auto, agent, rank0"},
		&cli.GenericFlag{Name: "debug", Value: &debugged{&c.Debug}, Hidden: true, Usage: "`[=CMD]` that each worker runs instead of training, sleep if not given; see muster exec"},
		&cli.GenericFlag{Name: "http", Value: pageAddress{&c.HTTP}, Usage: "`ADDR` of the status page: [HOST]:PORT, or :8080-8090, the first free (none)"},
		&cli.StringFlag{Name: "verdict", Destination: &c.VerdictFile, Usage: "`FILE` for the verdict as JSON, when the job has ended"},
		&cli.StringFlag{Name: "journal", Destination: &c.JournalFile, Hidden: true, Usage: "`FILE` for the events of the job, for muster replay"},
		&cli.GenericFlag{Name: "events", Value: eventLog{&c.EventsFile}, Hidden: true, Usage: "`FILE` for a line of JSON for each thing that is seen and decided, %h the host, %j the job; - standard output; fd:N (none)"},
		&cli.StringFlag{Name: "token-file", Destination: &c.TokenFile, Hidden: true, Usage: "`FILE` with a secret of the job's nodes, the same on all; or MUSTER_TOKEN"},
		&cli.GenericFlag{Name: "store-allow", Value: allowed{&c.StoreAllow}, Hidden: true, Usage: "`LIST` of addresses and networks that may come to the stores, with commas; world: to the workers' store the job's nodes (everybody)"},
		&cli.StringFlag{Name: "local-addr", Destination: &c.LocalAddr, Hidden: true, Usage: "`ADDR` at which this node is reached best"},
		&cli.GenericFlag{Name: "serve", Value: choice{&c.Serve, "auto yes no"}, Hidden: true, Usage: "`auto|yes|no` whether this node hosts the meeting point"},
		&cli.GenericFlag{Name: "worker-port", Value: port(&c.WorkerPort), Hidden: true, Usage: "`PORT` of the workers' store; a free one"},
		&cli.BoolFlag{Name: "uneven", Destination: &c.Uneven, Hidden: true, Usage: "nodes may have different numbers of workers"},
		&cli.StringFlag{Name: "framework", Destination: &c.Framework, Hidden: true, Usage: "`NAME` of the contract with the workers: " + strings.Join(framework.Names(), ", ") + "; else what the platform or the script says"},
		&cli.GenericFlag{Name: "ps", Value: number{&c.Servers, 0, 1 << 16}, Hidden: true, Usage: "`N` of the nodes, the last ones, are parameter servers (0): tensorflow, paddle"},
		&cli.BoolFlag{Name: "no-python", Destination: &c.NoPython, Hidden: true, Usage: "run even a .py as a program of its own"},
		&cli.GenericFlag{Name: "max-restarts", Value: number{&c.MaxRestarts, 0, 1 << 20}, Usage: "`N` times a job whose worker failed is started again on all nodes (0)"},
		&cli.GenericFlag{Name: "restart-window", Value: seconds{&c.RestartWindow}, Hidden: true, Usage: "`TIME` after which a round that ran so long makes the count of restarts begin anew (none)"},
		&cli.GenericFlag{Name: "restart-backoff", Value: seconds{&c.Backoff}, Hidden: true, Usage: "`TIME` to pause at most when rounds fail one after the other; the first restart is at once (30s)"},
		&cli.StringFlag{Name: "state-dir", Destination: &c.StateDir, Hidden: true, Usage: "`DIR` that outlives the container, to count restarts over several"},
		&cli.StringFlag{Name: "suspects", Destination: &c.Suspects, Hidden: true, Usage: "`DIR` that jobs share, to remember machines that failed them; spares take their place"},
		&cli.GenericFlag{Name: "suspects-for", Value: seconds{&c.SuspectsFor}, Hidden: true, Usage: "`TIME` for which a machine is suspect (168h)"},
		&cli.GenericFlag{Name: "spares", Value: number{&c.Spares, 0, 1 << 10}, Usage: "`K` nodes beyond --nnodes, which stand by to take a lost one's place (0)"},
		&cli.GenericFlag{Name: "last-call", Value: seconds{&c.LastCall}, Hidden: true, Usage: "`TIME` to wait for more than the fewest nodes (30s)"},
		&cli.GenericFlag{Name: "rdzv-timeout", Value: seconds{&c.RejoinTimeout}, Hidden: true, Usage: "`TIME` that nodes which lost one wait for another world; 0: they end (10m)"},
		&cli.GenericFlag{Name: "exclude-after", Value: number{&c.ExcludeAfter, 0, 1 << 20}, Hidden: true, Usage: "`N` rounds that failed on a node, after which it is left out, where others can do without it (never)"},
		&cli.GenericFlag{Name: "exclude-for", Value: seconds{&c.ExcludeFor}, Hidden: true, Usage: "`TIME` for which it is left out (10m)"},
		&cli.GenericFlag{Name: "join-policy", Value: choice{&c.JoinPolicy, "now at-restart never"}, Hidden: true, Usage: "`now|at-restart|never` when late comers are let into a job that runs"},
		&cli.GenericFlag{Name: "rdzv-backend", Value: backend{c}, Hidden: true, Usage: "`NAME` of what they meet in: c10d, which a node hosts, or etcd, as --rdzv-endpoint etcd://... says, too"},
	}, slices.Concat(etcdFlags(&c.Etcd), ncclFlags(c), hangFlags(c), stoppingFlags(c), outputFlags(c), torchrunFlags(c))...)
}

// silence is the one after which a node is given up, as a flag.
type silence struct{ d *time.Duration }

func (v silence) Set(text string) error {
	var d time.Duration
	if err := (seconds{&d}).Set(text); err != nil {
		return err
	}
	if d < job.MinNodeTimeout || d > job.MaxNodeTimeout {
		return fmt.Errorf("%v: give %v to %v", d, job.MinNodeTimeout, job.MaxNodeTimeout)
	}
	*v.d = d
	return nil
}

func (v silence) String() string { return seconds(v).String() }

// pageAddress is where the status page is served, as a flag.
type pageAddress struct{ at *string }

func (v pageAddress) Set(text string) error {
	if _, err := web.ParseAddress(text); err != nil {
		return err
	}
	*v.at = text
	return nil
}

func (v pageAddress) String() string { return "" }

// allowed is who may come, as a flag.
type allowed struct{ rule *allow.Rule }

func (v allowed) Set(text string) (err error) {
	r, err := allow.Parse(text)
	if err == nil {
		*v.rule = r
	}
	return err
}

func (v allowed) String() string { return "" }

// etcdUserVariable may hold a password of muster's own, which workers have no use for.
const etcdUserVariable = "MUSTER_ETCD_USER"

// eventLog is where the events go, as a flag.
type eventLog struct{ file *string }

func (v eventLog) Set(text string) error {
	if err := events.Pattern(text); err != nil {
		return err
	}
	*v.file = text
	return nil
}

func (v eventLog) String() string { return "" }

// configure completes c with what only the process itself knows.
func configure(x *cli.Context, c *launcher.Config) {
	c.Argv = x.Args().Slice()
	c.Dialect = asked(x)
	c.Notes = append(c.Notes, c.Dialect.Notes...)
	c.From = givenBy(x)
	c.Host = thisHost()
	c.Root = topology.Root("/")
	c.Environ = without(os.Environ(), launcher.TokenVariable, etcdUserVariable, understoodVariable, noSSH, flagsVariable)
	c.Version = version()
	c.Notes = append(c.Notes, misspelt(allFlags(x), c.Environ)...)
}

// without is an environment that lacks these variables.
func without(environ []string, names ...string) []string {
	return slices.DeleteFunc(environ, func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(names, name)
	})
}

func thisHost() job.Host {
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "localhost" // a name for people; nothing depends on it
	}
	hostname = strings.Map(func(r rune) rune { // the kernel takes any
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, hostname)
	dir, _ := os.Getwd() // which may have been removed
	return job.Host{
		Getenv: os.Getenv, ReadFile: readCarried, Hostname: hostname, Dir: dir,
		Environ: os.Environ(), List: listed, Addresses: addresses, GPUs: func() int { return visible(topology.Root("/"), os.LookupEnv) },
	}
}

// addresses are those of this machine's interfaces; none if they cannot be read.
func addresses() (all []string) {
	nets, _ := net.InterfaceAddrs()
	for _, n := range nets {
		if p, err := netip.ParsePrefix(n.String()); err == nil {
			all = append(all, p.Addr().String())
		}
	}
	return all
}

// listed are the names of the files in a directory; none if there is no such thing.
func listed(dir string) (names []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func runCommand() *cli.Command {
	var c launcher.Config
	return &cli.Command{
		Name: "run", Usage: "take part in a job", ArgsUsage: "[flags] script.py [argument...]",
		Description: "Starts one worker per GPU on this node, together with the other nodes of the job, and ends as the job\n" +
			"ends. A script is run by python -u; anything else as it is:\n\n" +
			"  muster run --nnodes 2 --rdzv-endpoint host0:29400 train.py --lr 1e-4\n" +
			"  muster run --nproc-per-node 2 -- ./a.out",
		Flags:  jobFlags(&c),
		Action: func(x *cli.Context) error { return run(x, c) },
	}
}

// terminationLog is the variable that names the file for the last words.
const terminationLog = "MUSTER_TERMINATION_LOG"

// run is both processes: the first one, which starts this program again, and the agent that it starts.
func run(x *cli.Context, c launcher.Config) (err error) {
	c.Host = thisHost()
	if pid1.Agent() && c.InEtcd() {
		c.OpenEtcd = etcdOpener() // perhaps as another program
	}
	if pid1.Agent() && c.HTTP != "" {
		c.Metrics, err = metricsOpener() // the same
		if err != nil {
			c.Notes = append(c.Notes, "no metrics: "+err.Error())
		}
	}
	first, err := pid1.Connect()
	if errors.Is(err, pid1.ErrNone) {
		if err := checkPassed(c.EventsFile, givenBy(x)["events"]); err != nil {
			return err
		}
		return status(pid1.Main(pid1.Config{
			TerminationLog: os.Getenv(terminationLog), Grace: c.StopTimeout, LostCode: job.ExitRetry,
		}))
	}
	if err != nil {
		return err
	}
	defer func() {
		if r := recover(); r != nil { // no goodbye: the first process shall say that the agent died
			panic(r)
		}
		first.Close(exitCode(err))
	}()
	configure(x, &c)
	c.Machine = sync.OnceValues(func() (topology.Machine, error) { return topology.Probe(c.Root) })
	go c.Machine() // beside all that must be done before it is needed, which waits for it; who ends before that ends the program
	defer func(began time.Time) { leaveVerdict(c.VerdictFile, began, err) }(time.Now())
	if err := styled(&c); err != nil {
		return err
	}
	remove, err := savePID(c.Dialect.PIDFile)
	if err != nil {
		return err
	}
	defer remove()
	c.First = first
	c.Midway = !mainProcess("/proc", os.Getppid())
	if c.Console, err = first.OpenConsole(0, os.Stdout, os.Stderr, c.Style); err != nil {
		return err
	}
	c.Log = newLog(c.Console.Stderr())
	return finish(c, launcher.Run(context.Background(), c).Verdict)
}

// checkPassed reports that the events are to go to a descriptor that nobody passed to this process, for one of its own may have that number, or to a socket. A variable may have
// been meant for another program, which started this one.
func checkPassed(where, by string) error {
	number, is := strings.CutPrefix(where, "fd:")
	if !is {
		return nil
	}
	fd, _ := strconv.Atoi(number) // it was looked at
	why, hint, at := fmt.Sprintf("no descriptor %d was passed to muster", fd), fmt.Sprintf(", as by %d>>FILE", fd), unix.Stat_t{}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
		if err := unix.Fstat(fd, &at); err != nil || at.Mode&unix.S_IFMT != unix.S_IFSOCK {
			return nil
		}
		why, hint = fmt.Sprintf("descriptor %d is a socket", fd), "; give a file or a pipe"
	}
	if strings.HasPrefix(by, "-") {
		return wrong("--events %s: %s", where, why+hint)
	}
	fmt.Fprintf(os.Stderr, "muster: %s=%s: %s, and events are written nowhere\n", by, where, why)
	return os.Unsetenv(by)
}

// leaveVerdict leaves the verdict on what ended before there was a job, which leaves its own: its end is an error without a word.
func leaveVerdict(file string, began time.Time, why error) {
	if file == "" || why == nil || why.Error() == "" {
		return
	}
	v := launcher.VerdictOf(&launcher.Error{Code: exitCode(why), Err: why})
	e := report.Ending{Verdict: v, Host: thisHost().Hostname, Node: -1, Began: began, Ended: time.Now(), Version: version()}
	if err := e.Write(file); err != nil {
		fmt.Fprintln(os.Stderr, "muster:", err)
	}
}

// finish says how the job ended: to people, and to whoever asks why the container ended.
func finish(c launcher.Config, v job.Verdict) error {
	if v.OK() {
		c.Log.Debug(v.Sentence)
	} else {
		if v.Hint != "" {
			c.Log.Info("hint: " + v.Hint)
		}
		c.Log.Error(fmt.Sprintf("%s; exit %d", v.Sentence, v.Code)) // last, where people and log collectors look first
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	c.Console.Close(ctx) // what cannot be written in two seconds is lost, and was counted
	if err := c.First.LastWords(report.Words(v)); err != nil && !errors.Is(err, pid1.ErrLost) {
		fmt.Fprintln(os.Stderr, "muster: last words:", err)
	}
	return status(v.Code)
}

// status is an exit code as an error.
func status(code int) error {
	if code == 0 {
		return nil
	}
	return exit(code)
}
