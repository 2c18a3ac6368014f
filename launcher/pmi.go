package launcher

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/muster-run/muster/control"
	"github.com/muster-run/muster/framework"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/lazy"
	"github.com/muster-run/muster/pmi"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/worker"
)

// This file is how MPI's processes become a world: each node has a process that serves PMI to its workers for a round, a child of
// the first process's as the workers' store is, so that it outlives the agent. It listens at a socket in the run's private directory. The
// agent makes each worker's connection, which that inherits. Nodes exchange what their workers put in the round's store on the leader's node.

// A pmiServer is that process, of one round.
type pmiServer struct {
	round int
	path  string // its socket; how far each worker has come is beside it
	child *proc.Child
	said  atomic.Bool // that no worker speaks

	watcher *pmi.Watcher
	heard   chan pmi.Event   // closed when no more can be heard
	events  <-chan pmi.Event // the same, until it was seen to be closed

	began  bool          // a process of the world has called MPI_Init, on this node or on another
	silent []worker.Exit // of workers that ended well before that, and never spoke
}

func newPMI(run string, round int) *pmiServer {
	return &pmiServer{round: round, path: filepath.Join(run, fmt.Sprintf("pmi-%d", round))}
}

func (p *pmiServer) stages() string { return p.path + ".stages" }

// openPMI starts the process that serves this round's workers, if they need one, unless an agent before this one had.
func (r *round) openPMI(at start) error {
	if !r.plan.Framework.PMI || r.pmi != nil && r.pmi.round == at.Round {
		return nil
	}
	r.pmi.close(r.c)
	r.pmi = newPMI(r.run, at.Round)
	if err := r.pmi.start(r.c, r.pmiArgs(at)); err != nil {
		return fail(job.ExitSystem, "", "serve PMI to the workers: %w", err)
	}
	r.save() // before a worker has a connection to it
	return nil
}

// pmiArgs tell the server what world it serves.
func (r *round) pmiArgs(at start) []string {
	args := []string{"--world", r.mapping(), "--node", strconv.Itoa(r.session.Rank), "--name", kvsName(r.session.World, at.Round)}
	if at.Exchange != 0 {
		args = append(args, "--store", net.JoinHostPort(r.line.host, strconv.Itoa(at.Exchange)))
	}
	return args
}

// kvsName is a word of its own for each round of each job.
func kvsName(w job.World, round int) string {
	id := sha256.Sum256([]byte(w.ID))
	return fmt.Sprintf("muster_%x_%d_%d", id[:4], w.Generation, round)
}

func (p *pmiServer) start(c Config, args []string) error {
	_ = os.Remove(p.path) // of an agent that died as it came so far
	ln, err := control.Named(p.path, func(at *net.UnixAddr) (*net.UnixListener, error) { return net.ListenUnix("unix", at) })
	if err != nil {
		return err
	}
	defer ln.Close() // the child has it
	ln.SetUnlinkOnClose(false)
	socket, err := ln.File()
	if err != nil {
		return err
	}
	defer socket.Close()
	stages, err := os.Create(p.stages())
	if err != nil {
		return err
	}
	defer stages.Close()
	p.child, err = c.First.Start(context.Background(), proc.Spec{
		Argv:   append([]string{"/proc/self/exe", "pmi"}, args...), // this program, also when its file was replaced
		Output: true,
		Files:  []*os.File{socket, stages},
	})
	if err != nil {
		return err
	}
	return p.watch()
}

// watch begins to hear of what workers say, until close.
func (p *pmiServer) watch() (err error) {
	if p.watcher, err = control.Named(p.path, func(at *net.UnixAddr) (*pmi.Watcher, error) { return pmi.Watch(at.Name) }); err != nil {
		return err
	}
	p.heard = make(chan pmi.Event, 1)
	p.events = p.heard
	go func() {
		defer close(p.heard)
		for e, err := p.watcher.Next(); err == nil; e, err = p.watcher.Next() {
			p.heard <- e
		}
	}()
	return nil
}

// told delivers it.
func (p *pmiServer) told() <-chan pmi.Event {
	if p == nil {
		return nil
	}
	return p.events
}

// ended delivers the end of the server, which should not come.
func (p *pmiServer) ended() <-chan proc.Exit {
	if p == nil || p.child == nil {
		return nil
	}
	return p.child.Exit
}

// close ends the server: its workers are gone.
func (p *pmiServer) close(c Config) {
	if p == nil {
		return
	}
	if p.child != nil {
		c.end(p.child)
	}
	if p.watcher != nil {
		p.watcher.Close()
		for range p.heard { // until the goroutine has ended
		}
	}
	_, _ = os.Remove(p.path), os.Remove(p.stages()) // else with the directory
}

// files are those that a worker inherits: at framework.PMIDescriptor its connection.
func (p *pmiServer) files(t job.Task) ([]*os.File, error) {
	if p == nil {
		return nil, nil
	}
	conn, err := control.Named(p.path, func(at *net.UnixAddr) (*os.File, error) { return pmi.Connect(at.Name, t.LocalRank) })
	if err != nil {
		return nil, err
	}
	return []*os.File{conn}, nil
}

// come is how far the workers have come.
func (p *pmiServer) come() []byte {
	b, _ := os.ReadFile(p.stages()) // nobody has said anything where it is not there
	return b
}

// judge is the end of a worker in MPI's sense: MPI_Abort has a code of its own, and one that ended well and left a world without a word, or
// never entered it, has failed, for the others wait for it for ever. Where nobody has entered one by then, it ended well until somebody does.
func (p *pmiServer) judge(e worker.Exit) job.Exit {
	if p == nil || e.Exit.Sent {
		return e.Exit
	}
	come := p.come()
	switch r := pmi.RecordOf(come, e.Task.LocalRank); {
	case r.Stage == pmi.Aborted:
		return job.Exit{Code: max(int(r.Code), 1)}
	case !e.Exit.OK() || r.Stage == pmi.Finished:
		return e.Exit
	case r.Stage == pmi.Began || p.began || len(bytes.Trim(come, "\x00")) > 0:
		return job.Exit{Code: 1}
	}
	p.hush(e)
	return e.Exit
}

// hush remembers a worker that ended well and never spoke, until somebody does.
func (p *pmiServer) hush(e worker.Exit) {
	p.silent = append(p.silent, e)
	if p.watcher != nil {
		p.watcher.Await()
	}
}

// inherit remembers those of whose end an agent before this one knew.
func (p *pmiServer) inherit(ended []job.Ended) {
	for i, e := range ended {
		failed := slices.ContainsFunc(ended[i+1:], func(later job.Ended) bool { return later.LocalRank == e.LocalRank })
		if !failed && e.Exit.OK() && pmi.RecordOf(p.come(), e.LocalRank).Stage == pmi.Silent {
			p.hush(worker.Exit{Task: job.Task{Rank: e.Rank, LocalRank: e.LocalRank}, PID: e.PID, Exit: e.Exit, At: time.Now()})
		}
	}
}

// worldBegan fails those that had ended well without it.
func (r *round) worldBegan() {
	silent := r.pmi.silent
	r.pmi.began, r.pmi.silent = true, nil
	for _, e := range silent {
		e.Exit = job.Exit{Code: 1}
		r.watch.ended(e.Task.LocalRank, e.PID, false)
		r.post(finished{r.ended(e), r.failure(e)})
	}
}

// explain says so.
func (p *pmiServer) explain(f *job.Failure, e worker.Exit) {
	if p == nil || f.Exit.Code == e.Process.Code {
		return
	}
	switch pmi.RecordOf(p.come(), e.Task.LocalRank).Stage {
	case pmi.Aborted:
		f.Evidence = append(f.Evidence, job.Evidence{Kind: "mpi-abort", Text: fmt.Sprintf("it called MPI_Abort with %d", f.Exit.Code)})
	case pmi.Began:
		f.Evidence = append(f.Evidence, job.Evidence{Kind: "mpi-unfinished", Text: fmt.Sprintf("it ended with %d, but without MPI_Finalize", e.Process.Code)})
	case pmi.Silent:
		f.Evidence = append(f.Evidence, job.Evidence{Kind: "mpi-unfinished", Text: fmt.Sprintf("it ended with %d, but without MPI_Init, which others have called", e.Process.Code)})
	}
}

// hear acts upon what the workers said. When the server is gone, ok is false.
func (r *round) hear(e pmi.Event, ok bool) {
	switch {
	case !ok:
		r.pmi.events = nil
	case e.Began:
		r.worldBegan()
	default:
		r.abort(e.Local)
	}
}

// abort kills a worker that called MPI_Abort: it waits for that.
func (r *round) abort(local int) {
	if pids := r.group.PIDs(); local < len(pids) {
		_ = r.c.First.Signal(pids[local], syscall.SIGKILL, proc.Leader) // what it started follows; it may have ended
	}
}

// lateMPI is when workers that have not called MPI_Init are told of.
const lateMPI = 15 * time.Second

// alone returns what there is to say of workers of which nobody ever spoke: each of them may be a world of its own. pids are those that live; late
// says that some should have spoken.
func (p *pmiServer) alone(w job.World, pids []int, late bool) string {
	if p == nil || w.Size() == 1 || p.said.Load() || len(bytes.Trim(p.come(), "\x00")) > 0 {
		return ""
	}
	why := ""
	for _, pid := range pids {
		if found := openMPI(pid); found != "" {
			why = fmt.Sprintf("process %d has loaded Open MPI (%s), so that each of them is a world of one rank", pid, found)
			break
		}
	}
	if why == "" && !late || p.said.Swap(true) {
		return ""
	}
	why = cmp.Or(why, "if they are programs of another MPI than MPICH, Intel MPI and MVAPICH, each of them is a world of one rank")
	return fmt.Sprintf("no worker of this node has called MPI_Init as --framework %s understands it; %s. Open MPI's programs are started by its mpirun, "+
		"for which muster can be ssh (docs/no-ssh.md)", framework.MPI, why)
}

// warnAlone says so when a worker has ended well, and when the last one has.
func (r *round) warnAlone(last bool) {
	if r.pmi != nil && len(r.pmi.silent) > 0 {
		if text := r.pmi.alone(r.session.World, r.group.PIDs(), last); text != "" {
			r.c.Log.Warn(text)
		}
	}
	if last {
		if text := r.watch.loadedAlone(); text != "" {
			r.c.Log.Warn(text)
		}
	}
	if text := r.arrivals.alone(last && r.arrivals.over()); text != "" {
		r.c.Log.Warn(text)
	}
}

// exchange is what serves the store that processes of muster's own need, on several nodes, or the framework's workers; nil: neither does.
func (r *round) exchange() []string {
	switch {
	case r.plan.Framework.Rendezvous:
		return []string{"horovod", "--world", r.mapping(), "--empty", r.run}
	case r.plan.Framework.PMI && len(r.session.World.Members) > 1:
		return r.c10dStore()
	}
	return nil
}

// mapping is the world as a few words, however large.
func (r *round) mapping() string {
	var slots []int
	for _, m := range r.session.World.Members {
		slots = append(slots, m.Slots)
	}
	return pmi.NewWorld(slots).String()
}

// openMPILibrary is one that every program of Open MPI has, and no other MPI's does.
var openMPILibrary = lazy.Regexp(`libopen-(pal|rte)\.so[.0-9]*`)

// maxMaps bounds what is read of a process's list of mapped files.
const maxMaps = 4 << 20

// openMPI is the library of Open MPI that a process has loaded; "": none, or nobody can know.
func openMPI(pid int) string { return string(openMPILibrary().Find(mapsOf(pid))) }

// mapsOf is a process's list of mapped files; none where nobody can know.
func mapsOf(pid int) []byte {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil
	}
	defer f.Close()
	maps, err := io.ReadAll(io.LimitReader(f, maxMaps))
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return maps
}
