package hang

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	jobs "github.com/muster-run/muster/job" // a job is something else here
	"github.com/muster-run/muster/test/stage"
)

// launcher is the command line of real torchrun on two nodes, of which muster knows nothing but what stands here. In 1.13 "no redirects", the
// default, is an error under Python 3.11; to redirect a rank that is not there is none.
const launcher = "-m torch.distributed.run --nnodes=2 --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint h0:29500 --rdzv_id job -r 9:1 -t 9:1"

// resiliency is that of NVIDIA's ft_launcher, a torchrun that has a process beside each rank, which hears from it. What has never heard from it
// waits for ten minutes.
const resiliency = "--nnodes=2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint h0:29500 --rdzv-id job --ft-initial-rank-heartbeat-timeout 600 --ft-rank-heartbeat-timeout 600"

// accelerates is that of accelerate, a torchrun that is told by each machine which it is. Its workers train on the CPU.
const accelerates = "launch --multi_gpu --num_processes 4 --num_machines 2 --main_process_ip h0 --main_process_port 29500 --mixed_precision no --dynamo_backend no --machine_rank "

// observe starts torchrun under muster init --observe on both nodes; it may start its workers again so often.
func (j *job) observe(muster, torch string, restarts int, args ...string) {
	for i := range j.nodes {
		line := []string{muster, "init", "-s", "--observe", "--hang-floor", floor.String(), "--hang-busy-after", busy.String(), "--verdict", j.verdictFile(i)}
		line = append(line, "--")
		switch python := stage.Python(j.t, torch); torch {
		case "resiliency":
			line = append(append(line, filepath.Join(filepath.Dir(python), "ft_launcher")), strings.Fields(resiliency)...)
		case "launchers":
			line = append(append(line, filepath.Join(filepath.Dir(python), "accelerate")), strings.Fields(accelerates+fmt.Sprint(i))...)
		default:
			line = append(append(line, python), strings.Fields(launcher)...)
		}
		line = slices.Concat(line, []string{"--max_restarts", fmt.Sprint(restarts), stage.File(j.t, script)}, args)
		// In the agent's store torchrun 2.15 leaves the addresses of the round before, and no other round comes about.
		j.run(i, []string{"PYTHONUNBUFFERED=1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"}, line...)
	}
}

func (j *job) verdictFile(i int) string {
	return filepath.Join(j.nodes[i].Dir, "verdict.json")
}

// soon asks a node until it says so, as long as anything runs.
func (j *job) soon(i int, words string, argv ...string) {
	j.t.Helper()
	said := ""
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if said = j.nodes[i].Ask(argv...); regexp.MustCompile(words).MatchString(said) {
			return
		}
		if !j.nodes[i].Program().Running() {
			break
		}
	}
	j.t.Errorf("h%d: %s said %s; want %s", i, argv, said, words)
}

// ended is what stands in a node's verdict.
type ended struct {
	Outcome  string `json:"outcome"`
	Code     int    `json:"exit_code"`
	World    int    `json:"world_size"`
	Nodes    int    `json:"nodes"`
	Standing []struct {
		Stage   string `json:"stage"`
		Message string `json:"message"`
		False   bool   `json:"false_alarm"`
	} `json:"standstills"`
	Stragglers []jobs.Straggler `json:"stragglers"`

	Message string  `json:"message"`
	First   *failed `json:"first"`
	Rounds  []struct {
		First *failed `json:"first"`
	} `json:"rounds"`
}

// failed is who failed first.
type failed struct {
	Rank int    `json:"rank"`
	Host string `json:"host"`
	PID  int    `json:"pid"`
}

func (j *job) verdicts() (all [2]ended) {
	j.t.Helper()
	for i := range all {
		b, err := os.ReadFile(j.verdictFile(i))
		j.must(err)
		j.must(json.Unmarshal(b, &all[i]))
	}
	return all
}

// TestObserve looks on while torchrun trains. It names a rank that holds up the others, on both nodes, and does nothing to it: training
// goes on when the rank does.
func TestObserve(t *testing.T) {
	t.Parallel()
	muster := stage.Build(t)
	for _, c := range []struct{ scene, torch string }{{"nap", "debian"}, {"stop", "newest"}, {"nap", "resiliency"}, {"nap", "launchers"}} {
		t.Run(c.scene+", "+c.torch, func(t *testing.T) {
			t.Parallel()
			j := open(t, muster)
			j.observe(muster, c.torch, 3, c.scene, "--rank", "2", "--at", "50", "--steps", "70", "--long", "40")
			hang := regexp.MustCompile(`hang: rank 2 \(h1, local 0, pid (\d+)\) has(?: not entered| been in) `)
			named := func(l line) bool { return verdict(l) && hang.MatchString(l.Text) }
			said := j.until("a hang", named)
			for i := range j.nodes {
				j.until(fmt.Sprintf("it on h%d", i), j.on(i, named))
				j.soon(i, hang.String(), muster, "status")
				j.soon(i, "evidence of this node's workers is in", muster, "ctl", "dump")
				j.soon(i, "only observes", muster, "ctl", "stop")
			}
			if c.scene == "stop" {
				j.wake(1, hang.FindStringSubmatch(said.Text)[1])
			} else if want := here(t, c.scene); !strings.Contains(said.Text, want) {
				t.Errorf("%s; want %s", said.Text, want)
			}
			if codes := j.end(); codes != [2]int{} {
				t.Errorf("exit codes %v", codes)
			}
			for i, v := range j.verdicts() {
				if v.Outcome != "succeeded" || v.World != 4 || v.Nodes != 2 || len(v.Standing) == 0 || !hang.MatchString(v.Standing[0].Message) || !v.Standing[0].False {
					t.Errorf("verdict of h%d: %+v", i, v)
				}
			}
		})
	}
}

// TestObserveFirst looks on while torchrun ends because a rank does, and names that one on both nodes, though ranks of both fail of it.
func TestObserveFirst(t *testing.T) {
	muster := stage.Build(t)
	for _, c := range []struct{ scene, torch, how string }{
		{"kill", "newest", "was killed by SIGKILL"},
		{"fail", "debian", "exited with code 1: ValueError: no sample 30"},
		{"fail", "newest", "exited with code 1: ValueError: no sample 30"},
	} {
		t.Run(c.scene+", "+c.torch, func(t *testing.T) {
			t.Parallel()
			j := open(t, muster)
			j.observe(muster, c.torch, 0, c.scene, "--rank", "2", "--at", "30", "--steps", "300")
			first := regexp.MustCompile(`^rank 2 on h1 \(node 1, local rank 0, pid (\d+)\) ` + c.how)
			for i := range j.nodes {
				j.until(fmt.Sprintf("the first one on h%d", i), j.on(i, func(l line) bool {
					said, is := strings.CutPrefix(l.Text, "muster: the first to fail: ")
					return is && first.MatchString(said)
				}))
			}
			if l, found := j.Find(has("trains apart")); found {
				t.Errorf("of a job whose size is the launcher's affair: %s", l.Text)
			}
			if codes := j.end(); codes != [2]int{1, 1} {
				t.Errorf("exit codes %v", codes)
			}
			for i, v := range j.verdicts() {
				if v.Outcome != "failed" || v.First == nil || v.First.Rank != 2 || v.First.Host != "h1" || v.First.PID == 0 || !first.MatchString(v.Message) || !strings.Contains(v.Message, "; then torch.distributed.run (pid ") {
					t.Errorf("verdict of h%d: %+v, first %+v", i, v, v.First)
				}
			}
		})
	}
}

// torchrun starts its workers again when one is killed: that is another round, and no hang.
func TestObserveRestart(t *testing.T) {
	t.Parallel()
	muster := stage.Build(t)
	j := open(t, muster)
	j.observe(muster, "newest", 3, "kill", "--rank", "2", "--at", "30", "--steps", "300")
	j.until("the end of a rank", func(l line) bool { return l.Text == "now kill" })
	for i := range j.nodes {
		j.soon(i, `"round": [1-3],(.|\n)*"step"`, muster, "status", "--json")
	}
	if codes := j.end(); codes != [2]int{} {
		t.Errorf("exit codes %v", codes)
	}
	if l, found := j.Find(verdict); found {
		t.Errorf("of workers that were started again it was said: %s", l.Text)
	}
	for i, v := range j.verdicts() {
		if v.Outcome != "succeeded" || v.World != 4 || v.Nodes != 2 || v.First != nil || len(v.Rounds) != 1 || v.Rounds[0].First.Rank != 2 {
			t.Errorf("verdict of h%d: %+v", i, v)
		}
	}
}
