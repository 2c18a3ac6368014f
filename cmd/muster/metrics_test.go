package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-run/muster/test/stage"
)

// The binary that is given to people answers Prometheus, where it was told --http: the agent becomes its larger build, and the workers are as always.
// What it has counted does not get less when a round ends, nor when the agent dies and another takes over, whoever asks meanwhile. One that has no larger
// build says so, and trains.
func TestMetrics(t *testing.T) {
	t.Parallel()
	exe, gate := stage.Build(t), filepath.Join(t.TempDir(), "gate")
	for local := range 2 {
		if err := syscall.Mkfifo(fmt.Sprintf("%s%d", gate, local), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	let := func(local int, word string) { // a worker go on: its shell waits until somebody opens its gate
		if err := os.WriteFile(fmt.Sprintf("%s%d", gate, local), []byte(word+"\n"), 0); err != nil {
			t.Fatal(err)
		}
	}
	script := `echo "rank $RANK of $WORLD_SIZE"; read word < "$0$LOCAL_RANK"; [ "$word" = well ]`
	p := startProgram(t, t.TempDir(), []string{"MUSTER_HTTP=127.0.0.1:0"}, exe, "run", "--nproc-per-node", "2", "--max-restarts", "1", "--", "sh", "-c", script, gate)
	p.says("the status page is at http://")
	_, at, _ := strings.Cut(p.out.String(), "the status page is at ")
	at, _, _ = strings.Cut(at, "\n")
	last := map[string]float64{}
	scrape := func() (map[string]float64, error) {
		text, err := get(at + "metrics")
		if err != nil {
			return nil, err
		}
		values := growing(text)
		for name, before := range last {
			if values[name] < before {
				t.Errorf("%s was %v, and is %v", name, before, values[name])
			}
		}
		last = values
		check := exec.Command("promtool", "check", "metrics")
		check.Stdin = strings.NewReader(text)
		if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("promtool (make prepare installs it): %v\n%s", err, out)
		}
		return values, nil
	}
	stands := func(round int) {
		t.Helper()
		for rank := range 2 {
			p.saysTimes(fmt.Sprintf("rank %d of 2", rank), round+1)
		}
		want := map[string]float64{
			`muster_output_lines_total{stream="stdout"}`: float64(2 * (round + 1)), `muster_output_dropped_lines_total{to="console"}`: 0,
			`muster_rounds_ended_total{cause="failed"}`: float64(round), `muster_detection_duration_seconds_count`: float64(round), `muster_rendezvous_duration_seconds_count`: float64(round + 1),
		}
		var wrong []string
		for limit := time.Now().Add(patience); time.Now().Before(limit); { // workers may write before the agent has counted that they were started
			values, err := scrape()
			if err != nil {
				t.Fatal(err)
			}
			wrong = nil
			for name, want := range want {
				if got, some := values[name]; !some || got != want {
					wrong = append(wrong, fmt.Sprintf("round %d: %s is %v, want %v", round, name, got, want))
				}
			}
			if wrong == nil {
				return
			}
		}
		t.Error(strings.Join(wrong, "\n"))
	}
	stands(0)
	let(1, "badly")
	stands(1)
	dead, asked := make(chan bool), make(chan int)
	go func() {
		n := 0
		defer func() { asked <- n }()
		for {
			if _, err := scrape(); err == nil { // else it died over the answer
				n++
			}
			select {
			case <-dead:
				return
			default:
			}
		}
	}()
	p.killAgent()
	close(dead)
	if <-asked == 0 {
		t.Error("nobody answered")
	}
	stands(1)
	let(0, "well")
	let(1, "well")
	p.ends(0)

	p = muster(t, t.TempDir(), []string{"MUSTER_HTTP=127.0.0.1:0"}, "run", "true")
	p.ends(0, "no metrics: this muster was built without metrics")
}

func get(url string) (string, error) {
	r, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != 200 {
		err = fmt.Errorf("%s: %s", r.Status, text)
	}
	return string(text), err
}

// growing is what must not get less in a scrape, but for what is of one process.
func growing(text string) map[string]float64 {
	values, kinds := map[string]float64{}, map[string]string{}
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); strings.HasPrefix(line, "# TYPE muster_") {
			kinds[words[2]] = words[3]
		}
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if i := strings.LastIndexByte(line, '}'); i > 0 {
			name, value = line[:i+1], strings.TrimSpace(line[i+1:])
		}
		base, _, _ := strings.Cut(name, "{")
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			if short, ok := strings.CutSuffix(base, part); ok && kinds[short] == "histogram" {
				base = short
			}
		}
		if (kinds[base] == "counter" || kinds[base] == "histogram") && base != "muster_worker_cpu_seconds_total" {
			values[name], _ = strconv.ParseFloat(value, 64)
		}
	}
	return values
}
