package hang

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-run/muster/test/stage"
)

var (
	soak = flag.String("soak", "", "`FILE` that keeps for how long healthy trainings have been watched: another run goes on from there")
	long = flag.Duration("long", 30*time.Minute, "`TIME` in all, for -soak")
)

// calm are trainings of about a minute and a half in which nothing is wrong, and what is done to them meanwhile.
var calm = []struct {
	scene
	disturb func(j *job, over <-chan struct{})
}{
	{scene{name: "uneven", args: "--steps 300"}, nil},
	{scene{name: "slow", rank: 1, args: "--at 10 --steps 45"}, nil},
	{scene{name: "checkpoint", args: "--at 40 --long 4 --steps 250"}, nil},
	{scene{name: "upload", args: "--at 60 --long 8 --steps 250"}, nil},
	{scene{name: "evaluation", args: "--at 60 --long 8 --steps 250"}, nil},
	{scene{name: "evaluation0", args: "--at 60 --long 20 --steps 150"}, nil},
	{scene{name: "compile", args: "--at 0 --long 40 --steps 200"}, nil},
	{scene{name: "graph", args: "--at 40 --steps 300"}, nil},
	{scene{name: "well", args: "--steps 300"}, (*job).pauses},
	{scene{name: "well", args: "--steps 300 --pause 0.1"}, (*job).busies},
}

// A record is what the soak has come to so far.
type record struct {
	Minutes    float64 `json:"minutes"`
	Plays      int     `json:"plays"`
	Suspicions int     `json:"suspicions"` // that were taken back
}

// TestSoak watches healthy trainings, one after the other, for half an hour in all: not one is said to hang. `make soak` may be interrupted,
// and goes on where it was.
func TestSoak(t *testing.T) {
	if *soak == "" {
		return
	}
	*busy = max(*busy, 45*time.Second) // a rank may evaluate for longer than faults are given to be told
	muster, r := stage.Build(t), readRecord(t, *soak)
	for r.Minutes < long.Minutes() && !t.Failed() {
		c, torch := calm[r.Plays%len(calm)], []string{debian, newest, fsdp}[r.Plays/len(calm)%3]
		if torch == fsdp && c.name == "uneven" { // joins are DDP's
			c.name = "well"
		}
		began := time.Now()
		t.Run(c.name+", "+torch, func(t *testing.T) {
			r.Suspicions += c.watch(t, muster, torch, c.disturb)
		})
		if !t.Failed() {
			r.Minutes += time.Since(began).Minutes()
			r.Plays++
			r.write(t, *soak)
		}
		fmt.Printf("soak: %.1f of %.0f minutes, %d trainings, %d suspicions that were taken back\n", r.Minutes, long.Minutes(), r.Plays, r.Suspicions)
	}
}

func readRecord(t *testing.T, file string) (r record) {
	b, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return r
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		t.Fatalf("the soak so far, %s: %v; SOAK=fresh begins anew", file, err)
	}
	return r
}

func (r record) write(t *testing.T, file string) {
	b, err := json.Marshal(r)
	if err == nil {
		err = os.WriteFile(file, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// watch plays a healthy scene, and returns how often somebody was suspected.
func (c scene) watch(t *testing.T, muster, torch string, disturb func(*job, <-chan struct{})) (suspicions int) {
	j := open(t, muster)
	for i := range j.nodes {
		j.run(i, nil, c.argv(t, muster, torch)...)
	}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		if disturb != nil {
			disturb(j, over)
		}
	}()
	codes := j.end()
	close(over)
	<-done
	if codes != [2]int{} {
		t.Errorf("exit codes %v", codes)
	}
	for _, l := range j.Lines() {
		if verdict(l) || strings.Contains(l.Text, "false alarm") {
			t.Errorf("of a healthy training it was said: %s", l.Text)
		}
		if j.on(0, has("muster: this may be a hang: "))(l) {
			suspicions++
		}
	}
	return suspicions
}

// pauses lets an agent stand still for some seconds, again and again, and then the other one.
func (j *job) pauses(over <-chan struct{}) {
	for i := 0; ; i++ {
		if wait(over, 8*time.Second) {
			return
		}
		pid := j.nodes[i%2].Agent()
		if pid == 0 {
			continue
		}
		_ = syscall.Kill(pid, syscall.SIGSTOP) // it may have ended
		ended := wait(over, 5*time.Second)
		_ = syscall.Kill(pid, syscall.SIGCONT)
		if ended {
			return
		}
	}
}

// wait reports whether it is over before this time has passed.
func wait(over <-chan struct{}, d time.Duration) bool {
	select {
	case <-over:
		return true
	case <-time.After(d):
		return false
	}
}

// busies keeps all processors busy with something else, twice over.
func (j *job) busies(over <-chan struct{}) {
	cmd := exec.Command("sh", "-c", `for i in $(seq $((2 * $(nproc)))); do while :; do :; done & done; wait`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		j.t.Error(err)
		return
	}
	<-over
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // all of them
	_ = cmd.Wait()
}
