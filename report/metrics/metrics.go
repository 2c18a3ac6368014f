// Package metrics tells how a job stands in Prometheus' form. docs/metrics.md describes every name.
//
// All of it comes from one status and from what the node has counted, at the moment of a scrape: nothing is counted here, so that an agent that takes
// over goes on where the one before it was. Series of single ranks are those of this node's own workers, so that their number does not grow with the
// world.
package metrics

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report"
)

// Handler answers scrapes by what status and counts tell, in the form that is asked for, and with what the Go runtime and the kernel tell of the agent
// and of the first process, which is its parent. (Prometheus' own handler brings compression along, which is larger than all the rest, for answers of
// some kilobytes.)
func Handler(status func() report.Status, counts func() report.Counts) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(&collector{status, counts})
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		all, err := r.Gather()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		form := expfmt.Negotiate(q.Header)
		w.Header().Set("Content-Type", string(form))
		to := expfmt.NewEncoder(w, form)
		for _, family := range all {
			if to.Encode(family) != nil {
				return // who asked has gone
			}
		}
	})
}

// A metric is one name.
type metric struct {
	*prometheus.Desc
	kind prometheus.ValueType
}

var all []metric

func name(kind prometheus.ValueType, name, help string, labels ...string) metric {
	m := metric{prometheus.NewDesc("muster_"+name, help, labels, nil), kind}
	all = append(all, m)
	return m
}

func gauge(n, help string, labels ...string) metric {
	return name(prometheus.GaugeValue, n, help, labels...)
}

func counter(n, help string, labels ...string) metric {
	return name(prometheus.CounterValue, n, help, labels...)
}

// histogram is a name whose kind [teller.tell] does not need.
func histogram(n, help string, labels ...string) metric {
	return name(prometheus.UntypedValue, n, help, labels...)
}

// Every name, by what it tells of. Those of what is counted are in counts.go.
var (
	buildInfo = gauge("build_info", "The muster that runs; always 1.", "version")
	jobInfo   = gauge("job_info", "The job, and the node whose agent tells this; always 1.", "job_id", "host")
	started   = gauge("agent_start_time_seconds", "When this node's agent began, in seconds since 1970.")
	phase     = gauge("phase", "1 for the phase in which the job is on this node, 0 for the others.", "phase")

	node        = gauge("node_rank", "This node's group rank; node 0 leads, and knows of all nodes.")
	world       = gauge("world_size", "Workers in the world.")
	nodes       = gauge("nodes", "Nodes of the world by how they stand, as far as this node knows.", "state")
	ranks       = gauge("ranks", "Ranks of the world by how they stand, as far as this node knows.", "state")
	round       = gauge("round", "Rounds before this one.")
	maxRestarts = gauge("max_restarts", "Rounds that may follow the first.")

	ended     = counter("rounds_ended_total", "Rounds that are over, by what ended them.", "cause")
	parts     = gauge("spent_seconds", "The job's time by what it went on, in seconds.", "part") // no counters: that training had stopped is known later
	rankParts = gauge("spent_rank_seconds", "The job's time by what it went on, in seconds times the workers of the world.", "part")
	ratio     = gauge("effective_training_time_ratio", "The share of all time, times workers, that was spent on training which was not done again.")
	meeting   = gauge("rendezvous_seconds", "What the last meeting took, until the workers were started.")
	detection = gauge("detection_seconds", "What it took to see the last interruption.")
	recovery  = gauge("recovery_seconds", "What it took from the last interruption until training was as far as before.")

	meetings   = histogram("rendezvous_duration_seconds", "What meetings took, until the workers were started, in seconds.")
	detections = histogram("detection_duration_seconds", "What it took to see what went wrong, and to tell all to stop, in seconds; of rounds that failed.")
	recoveries = histogram("recovery_duration_seconds", "What it took from the end of training until it was as far as before, in seconds.")

	stalled  = gauge("stalled", "1 while no rank advances, and that looks like a hang.")
	alarms   = counter("false_alarms_total", "Standstills that were called a hang, and were none.")
	clashes  = gauge("timeout_clashes", "Time-outs of the framework that do not go with muster's.")
	causes   = gauge("causes", "What went wrong in this round, as far as this node heard.")
	health   = gauge("health_notes", "What is told of machines that broke during the job, the last few.")
	lost     = gauge("straggler_lost_ratio", "Share of the time in which others had entered more collectives than this rank; the worst few.", "rank", "node")
	last     = gauge("straggler_last_ratio", "Share of the times at which any rank was behind at which it was this one; the worst few.", "rank", "node")
	stepTime = gauge("straggler_step_seconds", "How long a step takes where a rank lags.", "rank", "node")

	workers = gauge("workers", "Workers of this node by how they stand.", "state")
	up      = gauge("worker_up", "1 while a worker of this node runs.", "rank", "local_rank")
	step    = gauge("worker_step", "Steps of training, as far as they can be counted.", "rank", "local_rank")
	quiet   = gauge("worker_quiet_seconds", "Since when a worker tells of no progress.", "rank", "local_rank")
	beats   = gauge("worker_heartbeats", "1 where a worker tells of its progress.", "rank", "local_rank")
	cpu     = counter("worker_cpu_seconds_total", "CPU time of a worker itself, without its children.", "rank", "local_rank")
	memory  = gauge("worker_resident_memory_bytes", "Resident memory of a worker itself.", "rank", "local_rank")
)

// phases are all that there are, so that each has a series.
var phases = []string{report.Starting, report.Meeting, report.Running, report.Stopping, report.Paused, report.Leaving, report.Parked, report.Observing}

// collector tells what a status holds.
type collector struct {
	status func() report.Status
	counts func() report.Counts
}

// Describe names all.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range all {
		to <- m.Desc
	}
}

// Collect tells all, of one moment.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	t := teller(to)
	s := c.status()
	t.tell(buildInfo, 1, s.Version)
	t.tell(jobInfo, 1, report.Plain(s.Job), report.Plain(s.Host))
	t.tell(started, float64(s.Began.UnixMilli())/1000)
	for _, p := range phases {
		t.tell(phase, is(s.Phase == p), p)
	}
	t.world(s)
	t.time(s.Spent)
	t.trouble(s)
	t.workers(s.Workers)
	t.counted(c.counts())
	t.ours()
}

type teller chan<- prometheus.Metric

func (t teller) tell(m metric, value float64, labels ...string) {
	t <- prometheus.MustNewConstMetric(m.Desc, m.kind, value, labels...)
}

func is(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func (t teller) world(s report.Status) {
	t.tell(world, float64(s.World))
	t.tell(round, float64(s.Round))
	t.tell(maxRestarts, float64(s.MaxRestarts))
	if s.Node != nil {
		t.tell(node, float64(*s.Node))
	}
	states := map[string]int{"present": 0, "done": 0, "stopped": 0, "gone": 0}
	for _, n := range s.Nodes {
		switch {
		case n.Gone:
			states["gone"]++
		case n.Clear:
			states["stopped"]++
		case n.Done:
			states["done"]++
		default:
			states["present"]++
		}
	}
	for state, n := range states {
		t.tell(nodes, float64(n), state)
	}
	stand := map[string]int{}
	for _, r := range s.Ranks {
		stand[r.State]++
	}
	for _, state := range report.RankStates {
		t.tell(ranks, float64(stand[state]), state)
	}
}

// causesOf are what rounds may have ended by, so that each has a series before it happens.
var causesOf = []string{job.Failed, job.Killed, job.NotStarted, job.OOM, job.Preempted, job.Lost, job.Refused, job.Late, job.Hung, job.Succeeded, job.Ordered, job.Grown}

func (t teller) time(a *job.Account) {
	if a == nil {
		a = &job.Account{}
	}
	sum := a.Sum()
	t.times(meetings, ofTurns(a.Turns.Meetings))
	t.times(detections, ofTurns(a.Turns.Detections))
	t.times(recoveries, ofTurns(a.Turns.Recoveries))
	for _, part := range job.Parts {
		t.tell(parts, sum.Seconds[part], part)
		t.tell(rankParts, sum.Ranks[part], part)
	}
	t.tell(ratio, sum.Ratio())
	unknown := 0
	for _, n := range sum.Ends {
		unknown += n
	}
	if n := len(a.Laps); n > 0 && a.Laps[n-1].Over && a.Laps[n-1].Class == "" {
		unknown-- // by what it ended may still be told
	}
	for _, cause := range causesOf {
		t.tell(ended, float64(sum.Ends[cause]), cause)
		unknown -= sum.Ends[cause]
	}
	t.tell(ended, float64(unknown), "unknown") // this node was not told
	if len(a.Laps) == 0 {
		return
	}
	t.tell(meeting, a.Laps[len(a.Laps)-1].Meet.Seconds())
	if n := len(a.Laps); n > 1 {
		before, now := a.Laps[n-2], a.Laps[n-1]
		t.tell(detection, before.Detect.Seconds())
		t.tell(recovery, (before.Detect + before.Stop + now.Meet + now.Load + now.Redo).Seconds())
	}
}

func (t teller) trouble(s report.Status) {
	t.tell(stalled, is(s.Stall != ""))
	t.tell(alarms, float64(s.Alarms))
	t.tell(clashes, float64(len(s.Clashes)))
	t.tell(causes, float64(len(s.Causes)))
	t.tell(health, float64(len(s.Health)))
	for _, l := range s.Stragglers {
		rank, host := strconv.Itoa(l.Rank), report.Plain(l.Node)
		t.tell(lost, l.Lost, rank, host)
		t.tell(last, l.Last, rank, host)
		t.tell(stepTime, l.Step.Seconds(), rank, host)
	}
}

func (t teller) workers(own []report.StatusWorker) {
	states := map[string]int{"running": 0, "done": 0, "failed": 0}
	for _, w := range own {
		rank, local := strconv.Itoa(w.Rank), strconv.Itoa(w.LocalRank)
		switch {
		case w.Exit == nil:
			states["running"]++
		case w.Exit.OK():
			states["done"]++
		default:
			states["failed"]++
		}
		t.tell(up, is(w.Exit == nil), rank, local)
		t.tell(step, float64(w.Step), rank, local)
		t.tell(beats, is(w.Beats != "" && !strings.HasPrefix(w.Beats, "none")), rank, local)
		if w.Quiet != nil {
			t.tell(quiet, *w.Quiet, rank, local)
		}
		if w.Exit == nil {
			t.tell(cpu, w.CPU, rank, local)
			t.tell(memory, float64(w.Memory), rank, local)
		}
	}
	for state, n := range states {
		t.tell(workers, float64(n), state)
	}
}
