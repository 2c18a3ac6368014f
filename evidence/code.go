package evidence

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
)

// codes is what an exit code means by muster's table (docs/exit-codes.md), and what to do. Those that stand for a
// signal are made from the signals' own table, and the rest are a worker's own.
var codes = map[int]struct{ means, do string }{
	job.ExitOK:         {"all workers of all nodes ended well", ""},
	1:                  {"the worker that failed first ended with 1, as Python does after an exception; also its codes 128 and 193 to 255", "read the sentence: it has the exception"},
	job.ExitUsage:      {"wrong use of muster, or a configuration that contradicts itself; or a worker's own 2, as Python's argparse ends", "read the sentence: it names the flag, the variable or the argument"},
	job.ExitPeers:      {"peers never came", "look whether all nodes were started, with one endpoint and one job id; the sentence names who is missing"},
	job.ExitRefused:    {"the nodes do not fit together, or a node does not fit the job", "compare --nnodes, the node numbers and the slots of all nodes, and whether each has its GPUs"},
	job.ExitStore:      {"the meeting point did not answer, or was away when the nodes were to meet", "check the endpoint's name and port from this node, and that its node was started"},
	job.ExitStranger:   {"another program has the port that the job needs", "look who has it (`ss -ltnp`), or choose another port"},
	job.ExitInternal:   {"a fault of muster itself", "report it, with the output"},
	job.ExitSystem:     {"the system refused what muster needs: processes, ports, files", "look at `ulimit -u`, `ulimit -n`, the pids limit of the container, full file systems, and a port below 1024 for who is not root"},
	job.ExitDeadline:   {"the job's limit of time passed (--deadline)", "raise the limit, or save a checkpoint when SIGTERM comes and go on from it"},
	job.ExitDesync:     {"the ranks waited for each other in different collectives: an error in the script", "all ranks must call the same collectives in the same order, and with the same sizes: look for a branch that depends on the rank or its data"},
	job.ExitHung:       {"the job hung, and --on-hang had it end", "the verdict names the rank, and where it was; see docs/hangs.md"},
	job.ExitSame:       {"a worker failed in the same way at the same step as in the round before", "another round would end the same: look at that step's data and code"},
	job.ExitNoProgress: {"several rounds in a row failed before the first step (--max-idle-rounds)", "the script does not start: the first failure says why"},
	job.ExitSlowStart:  {"the workers were not started in time (--start-timeout)", "look which node came late: the lines above say who was missing"},
	120:                {"a worker died of SIGBUS: " + signals[unix.SIGBUS].means + "; or its own 120, when Python could not write its last output", "look at the size of /dev/shm first: docker --shm-size=16g, or in Kubernetes an emptyDir with medium Memory"},
	124:                {"a worker died of a signal that has no code of its own; or its own 124, as timeout(1) ends when time is up", "read the sentence: it names the signal"},
	125:                {"the worker's own 125, as docker and timeout(1) end when they failed themselves", "read its last lines"},
	job.ExitNotExec:    {"the script or program is there but cannot be executed", "check its mode, its first line, and that it was built for this CPU"},
	job.ExitNotFound:   {"the script or program is not there, or a library of it is not", "check the path, the image and PATH"},
	128:                {"a program's own 128, which stands for no signal; muster itself makes 1 of it", "read its last lines"},
	job.ExitINT:        {"the job was told to stop by SIGINT, as by Ctrl-C", "start it again when you want it"},
	job.ExitRetry:      {"infrastructure: an agent or a node was lost, or a machine or the network made the job hang", "start it again; if one node is lost again and again, take it out"},
	137:                {"a worker was killed by SIGKILL, and not by muster: mostly for want of memory", "compare the memory limit with what the job uses; else look for a deleted or evicted pod"},
	job.ExitTERM:       {"the job was told to stop by SIGTERM or SIGHUP, as a scheduler does; or somebody sent SIGTERM to a worker", "nothing, if it was preempted; else look who sent it"},
	255:                {"a program failed with -1 or 255, as ssh does when it cannot connect; muster itself makes 1 of it", "read its last lines"},
}

// ExitCode explains an exit status of muster, and what other programs mean by one that muster does not use: in a
// line, and what to do after a semicolon.
func ExitCode(code int) string {
	if c, ok := codes[code]; ok {
		return sentence(c.means, c.do)
	}
	for n := unix.SIGHUP; n <= unix.SIGSYS; n++ { // 114 to 123
		if c := signals[n]; c.means != "" && code == (job.Exit{Signal: int(n)}).Status() {
			return sentence(fmt.Sprintf("a worker died of %s: %s", job.SignalName(n), c.means), c.do)
		}
	}
	switch n := signal(job.Exit{Code: code}); {
	case code < 0 || code > 255:
		return fmt.Sprintf("%d is no exit code: they go from 0 to 255", code)
	case n != 0:
		c := signals[n]
		means := fmt.Sprintf("a program died of %s, by a shell's count of 128+%d; muster itself would end with %d", job.SignalName(n), int(n), (job.Exit{Signal: int(n)}).Status())
		return sentence(means, c.do)
	case code > 128:
		return sentence("a program's own code; muster itself makes 1 of it", "read its last lines, and what it says about its codes")
	}
	return sentence("the code of the worker that failed first, which has chosen it itself", "read its last lines, and what it says about its codes")
}

func sentence(means, do string) string {
	if do == "" {
		return means
	}
	return means + "; " + do
}
