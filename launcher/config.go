package launcher

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"syscall"
	"time"

	"github.com/muster-run/muster/allow"
	"github.com/muster-run/muster/dialect"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/output"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/rendezvous/store"
	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/report/events"
	"github.com/muster-run/muster/topology"
)

// Config is everything that a person or a test may decide about a run. Zero values mean "not said":
// then the platform decides, then the default.
type Config struct {
	Argv     []string        // the script and its arguments, or any command
	Module   bool            // --module: Argv[0] is a Python module
	NoPython bool            // --no-python: Argv[0] is a program, also when it ends in .py
	Dialect  dialect.Request // what another launcher's words ask for beyond flags
	Debug    string          // --debug: what a shell runs in each worker's place; "": nothing

	Nodes      int    // --nnodes: MAX of MIN:MAX
	Least      int    // MIN; 0: the same
	Spares     int    // --spares: nodes beyond Nodes, which stand by
	NodeRank   int    // --node-rank; -1: not said
	Place      string // --place: where this node stands in the network
	PlaceFile  string // --place-file: where nodes stand
	NProc      string // --nproc-per-node: a number, gpu, cpu or auto
	Standalone bool   // --standalone: one node, whatever the platform says
	Uneven     bool   // --uneven: nodes may bring different numbers of slots

	JobID      string     // --rdzv-id
	Attempt    int        // --attempt: how often the platform has started this job before
	Backend    string     // --rdzv-backend: c10d, etcd; "": what the endpoint and the platform say
	Endpoint   string     // --rdzv-endpoint: HOST[:PORT], IPv6 in brackets; etcd://HOST[:PORT],...
	MasterAddr string     // --master-addr: where node 0 runs
	MasterPort int        // --master-port
	TokenFile  string     // --token-file: the job's token, which its nodes prove to each other that they have
	StoreAllow allow.Rule // --store-allow: who may come to the stores and the agents' line; the zero Rule: everybody
	LocalAddr  string     // --local-addr: the address that this node announces first
	Serve      string     // --serve: auto, yes, no: whether this node hosts the meeting point

	Etcd     Etcd
	OpenEtcd func(EtcdJob) (store.Store, error) // opens a store at once, which its first call connects

	Preflight string // --preflight: auto, off, strict
	Bind      string // --bind: auto, none, socket, numa, core; "": none

	Tune  string // --nccl-tune: auto, off, explain
	Rails string // --nccl-rails: tell, common, refuse

	Framework   string // --framework; "": what the platform or the script says
	Servers     int    // --ps: how many nodes are parameter servers
	WorkerStore string // --worker-store: auto, agent, rank0
	WorkerPort  int    // --worker-port; 0: a free one

	JoinTimeout   time.Duration // how long to wait for peers
	LastCall      time.Duration // --last-call: how long to wait for more than the fewest nodes
	RejoinTimeout time.Duration // --rdzv-timeout: how long those who are left wait for another world; 0: they end
	JoinPolicy    string        // --join-policy: now, at-restart, never: when late comers are let in
	NodeTimeout   time.Duration // --node-timeout: silence after which a node is given up; 0: KeepAlive
	KeepAlive     time.Duration // what torchrun's --rdzv-conf says of that; 0: job.NodeTimeout
	StopTimeout   time.Duration // after a failure: from TERM to KILL
	RestartWindow time.Duration // --restart-window: a round that ran so long forgives the failures before; 0: none does
	Backoff       time.Duration // --restart-backoff: the longest pause between failures in a row and another round
	ExcludeAfter  int           // --exclude-after: a node on which so many rounds failed is left out; 0: none is
	ExcludeFor    time.Duration // --exclude-for: for so long
	StateDir      string        // --state-dir: where the count of restarts outlives this agent
	Suspects      string        // --suspects: where jobs remember machines that failed them
	SuspectsFor   time.Duration // --suspects-for: how long
	MaxRestarts   int           // --max-restarts: rounds that may follow the first

	IdleRounds    int           // --max-idle-rounds: so many in a row may fail before the first step; 0: any number
	Evidence      string        // --evidence: where evidence of standstills is kept
	OnHang        string        // --on-hang: observe, dump, restart, exclude-node
	HangTimeout   time.Duration // --hang-timeout: a standstill that lasts so long is a hang, however long others took; 0: 10 min
	HangFloor     time.Duration // --hang-floor: none that is shorter is one; 0: 30 s
	HangStart     time.Duration // --hang-start-timeout: nor one so short before the world trains; 0: 20 min
	HangBusyAfter time.Duration // --hang-busy-after: nor one whose culprit is at work; 0: HangTimeout

	PreemptSignal syscall.Signal // --preempt-signal: what tells workers that the node is wanted
	SignalScope   proc.Scope     // --signal-scope: who of a worker's processes is told
	Deadline      time.Duration  // --deadline: from this agent's start to the job's end; 0: none
	StartTimeout  time.Duration  // --start-timeout: from this agent's start to the workers'; 0: none
	Success       string         // --success: all, rank0, node0; or trainers
	OnExit        string         // --on-worker-exit: stop, restart, leave; --clean says it in other words
	Park          string         // --park: auto, yes, no: whether the agent stays after success
	Midway        bool           // more may follow in the container when this agent has ended: it is not its main process
	SignalExit    string         // --signal-exit: fixed, posix
	Grace         time.Duration  // when this node is told to stop: from TERM to KILL

	LogDir string        // --log-dir: where the directory of this run's log files is made; "": a temporary one, if there are any
	Output output.Routes // --redirects, --tee, --ranks, …: where the workers' lines go; Dir is found by Run
	Style  output.Style  // how the console shows them

	HTTP        string                                                        // --http: where the status page is served beside the run's socket, as web.ParseAddress reads it; "": nowhere
	Metrics     func(func() report.Status, func() report.Counts) http.Handler // answers scrapes by what the functions tell; nil: nothing does
	VerdictFile string                                                        // --verdict: where to leave the verdict as JSON
	JournalFile string                                                        // --journal: where to leave what the judgement saw, for Replay
	EventsFile  string                                                        // --events: where lines go of what is seen and decided, as events.Options has it; "": nowhere

	Notes []string // what a person should know of the flags

	From map[string]string // flag name without dashes → who set it: "--nnodes", "MUSTER_NNODES"

	Host    job.Host
	Root    topology.Root
	Machine func() (topology.Machine, error) // under Root, if somebody has begun to read it; nil: it is read where it is needed
	Environ []string                         // what the user's environment holds; workers get it
	Version string
	First   First         // the first process, which starts and stops children
	Console *pid1.Console // standard output and error, the workers' and ours
	tellers *tellers      // of what is counted; nil: nothing is yet
	past    *heritage     // of an agent before this one, which had met the others; nil: there was none
	Log     *slog.Logger
	people  *slog.Logger // Log for what is an event of its own; nil: Log
	events  *events.Log  // nil: nobody wants them
	sim     simulated    // what a simulation has in the place of this machine
}

// getenv looks up the user's environment, of which the first of duplicates counts (getenv(3)). What another launcher would have
// set is over it.
func (c Config) getenv(name string) (string, bool) {
	if value, ok := c.Dialect.Env.Lookup(name); ok {
		return value, true
	}
	for _, kv := range c.Environ {
		if len(kv) > len(name) && kv[len(name)] == '=' && kv[:len(name)] == name {
			return kv[len(name)+1:], true
		}
	}
	return "", false
}

// An Error ends a run before or without a verdict of the world. Code is the exit status; Hint says what to do.
type Error struct {
	Code int
	Err  error
	Hint string
}

func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Err.Error()
	}
	return e.Err.Error() + "; " + e.Hint
}

func (e *Error) Unwrap() error { return e.Err }

// fail makes an Error.
func fail(code int, hint, format string, args ...any) *Error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...), Hint: hint}
}

// ExitCode returns the exit status for an error of Run.
func ExitCode(err error) int {
	var e *Error
	switch {
	case err == nil:
		return job.ExitOK
	case errors.As(err, &e):
		return e.Code
	default:
		return job.ExitInternal
	}
}
