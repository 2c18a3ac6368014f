package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A launcher turns a job into the command line of one of its agents.
type launcher struct {
	name  string
	runs  int
	agent func(j job, node int) []string
	slow  bool // a torchrun: it is spared what takes minutes
	plain bool // measured on one node, without files of output: what it does beyond is its torchrun's
}

// A job is what a scene asks for.
type job struct {
	nodes, workers int
	host           int // the node that is told to host the store; -1: the agents find out themselves
	worker         []string
	tee            bool // output goes to files and the console

	port int
	id   string
}

// launchers are muster and the torchruns that this machine has.
func launchers(o options) ([]launcher, error) {
	path, err := filepath.Abs(o.muster)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return nil, err
	}
	all := []launcher{{name: "muster", runs: o.runs, agent: musterAgent(path)}}
	if o.peers == 0 {
		return all, nil
	}
	for _, which := range []string{"debian", "newest"} {
		python, err := pythonOf(which)
		if err != nil {
			return nil, err
		}
		number, err := versionOf(python, "torch")
		if err != nil {
			return nil, err
		}
		all = append(all, launcher{name: "torchrun " + number, runs: o.peers, slow: true,
			agent: torchrunAgent(python, strings.HasPrefix(number, "1."))})
	}
	python, err := pythonOf("launchers")
	if err != nil {
		return nil, err
	}
	number, err := versionOf(python, "accelerate")
	if err != nil {
		return nil, err
	}
	return append(all, launcher{name: "accelerate " + number, runs: o.peers, plain: true, agent: accelerateAgent(python)}), nil
}

func pythonOf(which string) (string, error) {
	cmd := exec.Command("test/python", which)
	cmd.Stderr = os.Stderr
	path, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("test/python %s: %w", which, err)
	}
	return strings.TrimSpace(string(path)), nil
}

func versionOf(python, module string) (string, error) {
	version, err := exec.Command(python, "-c", "import "+module+" as m; print(m.__version__)").Output()
	if err != nil {
		return "", fmt.Errorf("%s: import %s: %w", python, module, err)
	}
	return strings.TrimSpace(string(version)), nil
}

func musterAgent(path string) func(job, int) []string {
	return func(j job, node int) []string {
		argv := []string{path, "run", "--nproc-per-node", fmt.Sprint(j.workers)}
		if j.nodes > 1 {
			argv = append(argv, "--nnodes", fmt.Sprint(j.nodes), "--node-rank", fmt.Sprint(node), "--rdzv-id", j.id,
				"--rdzv-endpoint", fmt.Sprintf("127.0.0.1:%d", j.port), "--local-addr", fmt.Sprintf("127.0.0.%d", node+1))
			if j.host >= 0 {
				argv = append(argv, "--serve", map[bool]string{true: "yes", false: "no"}[j.host == node])
			}
		}
		if j.tee {
			argv = append(argv, "-t", teeAll(j), "--log-dir", "logs")
		}
		return append(append(argv, "--"), j.worker...)
	}
}

// torchrunAgent gives torchrun what its newest version does by itself: a poll of the workers ten times a second. In the
// old one under Python 3.11 "no redirects", the default, is an error; to redirect a rank that is not there is none.
func torchrunAgent(python string, old bool) func(job, int) []string {
	return func(j job, node int) []string {
		argv := []string{python, "-m", "torch.distributed.run", "--no_python", "--monitor_interval", "0.1",
			"--nproc_per_node", fmt.Sprint(j.workers)}
		switch {
		case j.tee:
			argv = append(argv, "-r", teeAll(j), "-t", teeAll(j), "--log_dir", "logs")
		case old:
			argv = append(argv, "-r", "9:1", "-t", "9:1")
		}
		if j.nodes == 1 {
			return append(append(argv, "--standalone"), j.worker...)
		}
		argv = append(argv, "--nnodes", fmt.Sprint(j.nodes), "--rdzv_id", j.id, "--rdzv_backend", "c10d",
			"--rdzv_endpoint", fmt.Sprintf("127.0.0.1:%d", j.port))
		if !old {
			argv = append(argv, "--local_addr", "127.0.0.1")
		}
		if j.host >= 0 {
			argv = append(argv, "--rdzv_conf", fmt.Sprintf("is_host=%v", j.host == node))
		}
		return append(argv, j.worker...)
	}
}

// accelerateAgent leaves nothing to be asked or guessed. --multi_gpu, which needs no GPU to start workers, is how it becomes a torchrun.
func accelerateAgent(python string) func(job, int) []string {
	return func(j job, _ int) []string {
		argv := []string{python, "-m", "accelerate.commands.launch", "--no_python", "--num_machines", "1", "--num_cpu_threads_per_process", "1",
			"--mixed_precision", "no", "--dynamo_backend", "no", "--num_processes", fmt.Sprint(j.workers)}
		if j.workers == 1 {
			argv = append(argv, "--cpu")
		} else {
			argv = append(argv, "--multi_gpu", "--monitor_interval", "0.1")
		}
		return append(argv, j.worker...)
	}
}

// teeAll is standard output of all workers in torchrun's words; the old one does not know 3 under Python 3.11.
func teeAll(j job) string {
	var all []string
	for local := range j.workers {
		all = append(all, fmt.Sprintf("%d:1", local))
	}
	return strings.Join(all, ",")
}
