// Package evidence gathers what a person needs to understand a death or a hang: what the last lines mean, whether memory or a
// file system ran out, what an exit code says, where threads are. It looks and returns; it decides nothing and keeps nothing.
package evidence

import (
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
)

// Seen is what was found around the end of a worker. Its zero value is of a machine that shows nothing.
type Seen struct {
	Tail   []string // the worker's last lines, as many as are kept; the failure itself carries fewer
	Ended  string   // the exception that ended its program, or the begin of its line; "": that is not known
	OOM    OOM      // since the worker was started
	Shared Space    // /dev/shm, right after the worker's end
	Full   []Space  // what Disk found
}

// Explain says in a clause why a worker probably ended as it did, and in another what to do about it. Both are empty
// when nothing is known beyond the exit itself, and when the end was muster's own wish.
func Explain(f job.Failure, s Seen) (found job.Evidence, hint string) {
	if f.Exit.Sent || f.Exit.OK() || f.Exit.Err != "" {
		return found, ""
	}
	tail := s.Tail
	if len(tail) == 0 {
		tail = f.Tail
	}
	sig, known := Recognise(f.Exception, s.Ended, tail)
	switch n := signal(f.Exit); {
	case n == unix.SIGKILL:
		return killed(s.OOM)
	case n == unix.SIGBUS && sig.Kind != loaderBus:
		return busError(s)
	case sig.Kind == loaderKilled && s.OOM.Kills > 0:
		return job.Evidence{Kind: outOfMemory, Text: s.OOM.clause()}, memoryHint(s.OOM)
	case known:
		return job.Evidence{Kind: sig.Kind, Text: s.with(sig)}, sig.Hint
	case s.OOM.Kills > 0:
		return job.Evidence{Kind: outOfMemory, Text: "meanwhile " + s.OOM.clause()}, memoryHint(s.OOM)
	case n != 0 && signals[n].means != "":
		return job.Evidence{Kind: "signal", Text: signals[n].means}, signals[n].do
	case len(s.Full) > 0:
		return s.fullDisk()
	}
	return found, ""
}

func (s Seen) fullDisk() (job.Evidence, string) {
	return job.Evidence{Kind: diskFull, Text: s.Full[0].String()}, kinds[diskFull].do
}

// with is what a signature means, and the figures that belong to it.
func (s Seen) with(sig Signature) string {
	switch {
	case (sig.Kind == sharedFull || sig.Kind == loaderBus) && s.Shared.Size > 0:
		return sig.Meaning + ": " + s.Shared.String()
	case (sig.Kind == diskFull || sig.Kind == diskWrite) && len(s.Full) > 0:
		return sig.Meaning + ": " + s.Full[0].String()
	}
	return sig.Meaning
}

// killed explains a SIGKILL that muster did not send. Without a counter that rose nobody can say who did.
func killed(o OOM) (found job.Evidence, hint string) {
	switch {
	case o.Kills > 0:
		return job.Evidence{Kind: outOfMemory, Text: o.clause()}, memoryHint(o)
	case o.Known:
		return job.Evidence{Kind: "killed", Text: "its container counts no kill for want of memory"},
			"look for a deleted or evicted pod, a node short of memory, an administrator: `kubectl describe pod`, the node's kernel log"
	}
	return job.Evidence{Kind: "killed", Text: "whether for want of memory cannot be seen here"},
		"compare what the job used with its memory limit; else look for a deleted or evicted pod, or an administrator"
}

func memoryHint(o OOM) string {
	if o.Known && !o.Own {
		return "the container was below its own limit, so a limit above it or the machine itself ran out: request as much memory as the job uses"
	}
	return "raise the container's memory limit, or use less: fewer data-loader workers, less prefetch; files in /dev/shm count too"
}

// busError explains a SIGBUS: nearly always memory of a file that could not be provided. What the dead process alone
// held in /dev/shm is free again when we look, so a small one is worth a word even when it is not full.
func busError(s Seen) (found job.Evidence, hint string) {
	switch {
	case s.OOM.Kills > 0:
		return job.Evidence{Kind: outOfMemory, Text: "meanwhile " + s.OOM.clause()}, memoryHint(s.OOM)
	case s.Shared.Full(), s.Shared.small():
		return job.Evidence{Kind: sharedFull, Text: s.Shared.String()}, kinds[sharedFull].do
	case len(s.Full) > 0:
		return s.fullDisk()
	}
	return job.Evidence{Kind: "signal", Text: signals[unix.SIGBUS].means}, signals[unix.SIGBUS].do
}

// signal is the signal that ended a worker: its own, or the one that a shell's code of 128+n speaks of.
func signal(e job.Exit) syscall.Signal {
	if e.Signal == 0 && e.Code > 128 && e.Code <= 128+64 {
		return syscall.Signal(e.Code - 128)
	}
	return syscall.Signal(e.Signal)
}

// signals is what a signal means in training when nothing else is known. SIGKILL and SIGBUS depend on more.
var signals = map[syscall.Signal]struct{ means, do string }{
	unix.SIGHUP:  {"its terminal or session was closed", "start it where nobody hangs up"},
	unix.SIGINT:  {"somebody interrupted it", "look who pressed Ctrl-C or sent SIGINT"},
	unix.SIGQUIT: {"somebody asked it for a core dump", "look who pressed Ctrl-\\ or sent SIGQUIT"},
	unix.SIGILL:  {"it ran an instruction that this CPU does not have", "use a build for this CPU, or an older instruction set (AVX-512 wheels on an older host)"},
	unix.SIGTRAP: {"it hit a breakpoint or an assertion of its runtime", "read its last lines"},
	unix.SIGABRT: {"a library in it gave up", "read its last lines: glibc, C++ and NCCL's watchdog say why before they abort"},
	unix.SIGBUS:  {"memory of a mapped file could not be provided", "look for a data file that got shorter while it was read, a full file system, or hugepages that ran out"},
	unix.SIGFPE:  {"native code divided by zero", "run it with PYTHONFAULTHANDLER=1 to see where"},
	unix.SIGSEGV: {"native code touched memory that is not there", "run it with PYTHONFAULTHANDLER=1 to see where; an extension built for another PyTorch or CUDA, or a driver older than the libraries, is the usual reason"},
	unix.SIGSYS:  {"it used a system call that its seccomp profile forbids", "allow the call in the container's seccomp profile"},
	unix.SIGPIPE: {"whoever read its output went away", "look at the program that its output was piped to"},
	unix.SIGXCPU: {"it used up its CPU time", "raise `ulimit -t`"},
	unix.SIGXFSZ: {"a file grew beyond its limit", "raise `ulimit -f`"},
	unix.SIGUSR1: {"it got SIGUSR1 and has no handler for it", "look who sends it (Slurm's --signal does), and handle it in the script"},
	unix.SIGUSR2: {"it got SIGUSR2 and has no handler for it", "look who sends it, and handle it in the script"},
	unix.SIGTERM: {"somebody asked it to stop", "look who: a scheduler, an operator, or a script of the job itself"},
}

// Size is n bytes for people: "64 MiB", "1.5 GiB".
func Size(n uint64) string {
	for shift, unit := range []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"} {
		if v := float64(n) / float64(uint64(1)<<(10*shift)); v < 1023.95 || unit == "EiB" {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") + " " + unit
		}
	}
	panic("unreachable")
}
