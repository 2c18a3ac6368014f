package hang

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// launcher is the command line of real torchrun on two nodes, of which muster knows nothing but what stands here. In 1.13 "no redirects", the
// default, is an error under Python 3.11; to redirect a rank that is not there is none.
const launcher = "-m torch.distributed.run --nnodes=2 --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint h0:29500 --rdzv_id job --max_restarts 3 -r 9:1 -t 9:1"

// observe starts torchrun under muster init --observe on both nodes.
func (s *stage) observe(muster, torch string, args ...string) {
	for i := range s.nodes {
		line := []string{muster, "init", "-s", "--observe", "--hang-floor", floor.String(), "--hang-busy-after", busy.String(), "--verdict", s.verdictFile(i)}
		line = append(line, "--", python(s.t, torch))
		line = slices.Concat(line, strings.Fields(launcher), []string{script(s.t)}, args)
		// In the agent's store torchrun 2.15 leaves the addresses of the round before, and no other round comes about.
		s.run(i, []string{"PYTHONUNBUFFERED=1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"}, line...)
	}
}

func (s *stage) verdictFile(i int) string {
	return filepath.Join(s.dir, s.nodes[i].name, "verdict.json")
}

// ask runs a muster command on a node.
func (s *stage) ask(i int, argv ...string) string {
	n := s.nodes[i]
	cmd := exec.Command("nsenter", append([]string{"-m", "-u", "-i", "-n", "-p", "-t", fmt.Sprint(n.init.Process.Pid), "--"}, argv...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Join(s.dir, n.name))
	out, _ := cmd.CombinedOutput() // it says what is wrong
	return string(out)
}

// soon asks a node until it says so, as long as anything runs.
func (s *stage) soon(i int, words string, argv ...string) {
	s.t.Helper()
	said := ""
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if said = s.ask(i, argv...); regexp.MustCompile(words).MatchString(said) {
			return
		}
		s.mu.Lock()
		over := s.over
		s.mu.Unlock()
		if over > 0 {
			break
		}
	}
	s.t.Errorf("h%d: %s said %s; want %s", i, argv, said, words)
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
}

func (s *stage) verdicts() (all [2]ended) {
	s.t.Helper()
	for i := range all {
		b, err := os.ReadFile(s.verdictFile(i))
		s.must(err)
		s.must(json.Unmarshal(b, &all[i]))
	}
	return all
}

// TestObserve looks on while torchrun trains. It names a rank that holds up the others, on both nodes, and does nothing to it: training
// goes on when the rank does.
func TestObserve(t *testing.T) {
	muster := build(t)
	for _, c := range []struct{ scene, torch string }{{"nap", "debian"}, {"stop", "newest"}} {
		t.Run(c.scene, func(t *testing.T) {
			t.Parallel()
			s := openStage(t, muster)
			s.observe(muster, c.torch, c.scene, "--rank", "2", "--at", "50", "--steps", "70", "--long", "40")
			hang := regexp.MustCompile(`hang: rank 2 \(h1, local 0, pid (\d+)\) has(?: not entered| been in) `)
			named := func(l line) bool { return l.verdict() && hang.MatchString(l.text) }
			said := s.until("a hang", named)
			for i := range s.nodes {
				s.until(fmt.Sprintf("it on h%d", i), func(l line) bool { return l.node == i && named(l) })
				s.soon(i, hang.String(), muster, "status")
				s.soon(i, "evidence of this node's workers is in", muster, "ctl", "dump")
				s.soon(i, "only observes", muster, "ctl", "stop")
			}
			if c.scene == "stop" {
				s.wake(1, hang.FindStringSubmatch(said.text)[1])
			} else if want := here(t, c.scene); !strings.Contains(said.text, want) {
				t.Errorf("%s; want %s", said.text, want)
			}
			if codes := s.end(); codes != [2]int{} {
				t.Errorf("exit codes %v", codes)
			}
			for i, v := range s.verdicts() {
				if v.Outcome != "succeeded" || v.World != 4 || v.Nodes != 2 || len(v.Standing) == 0 || !hang.MatchString(v.Standing[0].Message) || !v.Standing[0].False {
					t.Errorf("verdict of h%d: %+v", i, v)
				}
			}
		})
	}
}

// torchrun starts its workers again when one is killed: that is another round, and no hang.
func TestObserveRestart(t *testing.T) {
	t.Parallel()
	muster := build(t)
	s := openStage(t, muster)
	s.observe(muster, "newest", "kill", "--rank", "2", "--at", "30", "--steps", "300")
	s.until("the end of a rank", func(l line) bool { return l.text == "now kill" })
	for i := range s.nodes {
		s.soon(i, `"round": [1-3],(.|\n)*"step"`, muster, "status", "--json")
	}
	if codes := s.end(); codes != [2]int{} {
		t.Errorf("exit codes %v", codes)
	}
	if l, found := s.find(line.verdict); found {
		t.Errorf("of workers that were started again it was said: %s", l.text)
	}
	for i, v := range s.verdicts() {
		if v.Outcome != "succeeded" || v.World != 4 || v.Nodes != 2 {
			t.Errorf("verdict of h%d: %+v", i, v)
		}
	}
}
