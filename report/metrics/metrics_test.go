package metrics

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/test/golden"
)

// status is a job of two nodes, seen from node 0, after a hang.
func status() report.Status {
	zero, one, three, quiet := 0, 1, 3, 1.5
	return report.Status{
		Job: "j1", Host: "ann", Version: "v1", Began: time.Unix(1767323045, 678e6), Phase: report.Running, Node: &zero, World: 4, Round: 1, MaxRestarts: 3, Alarms: 1,
		Nodes: []report.StatusNode{{Name: "ann"}, {Name: "bob", Done: true}}, Clashes: []string{"x"}, Health: []string{"a", "b"}, Stall: "this may be a hang",
		Workers: []report.StatusWorker{
			{Rank: 0, LocalRank: 0, PID: 7, Step: 41, Beats: "recorder", Quiet: &quiet, CPU: 12.5, Memory: 1 << 30},
			{Rank: 1, LocalRank: 1, PID: 8, Step: 40, Beats: "none: torch is not there", Exit: &job.Exit{Code: 3}},
		},
		Ranks:      []report.StatusRank{{State: report.RankRuns}, {Rank: 1, State: report.RankFailed}, {Rank: 2, Node: 1, State: report.RankRuns}, {Rank: 3, Node: 1, State: report.RankStraggles}},
		Stragglers: []job.Straggler{{Rank: 3, Node: "bob", Lost: 0.25, Last: 0.75, Step: 250 * time.Millisecond}},
		Spent: &job.Account{
			Turns: job.Turns{
				Meetings:   job.Times{Count: 3, Seconds: 13, Within: [len(job.TimesBounds)]uint64{2: 2, 3: 1}},
				Detections: job.Times{Count: 1, Seconds: 40, Within: [len(job.TimesBounds)]uint64{5: 1}},
				Recoveries: job.Times{Count: 1, Seconds: 226, Within: [len(job.TimesBounds)]uint64{7: 1}},
			},
			Older: job.Spent{Rounds: 1, Seconds: map[string]float64{"train": 10}, Ranks: map[string]float64{"train": 40}, Ends: map[string]int{job.OOM: 1}},
			Laps: []job.Lap{
				{World: 4, Meet: 2 * time.Second, Load: 58 * time.Second, Train: 20 * time.Minute, Detect: 40 * time.Second, Stop: 5 * time.Second, Over: true, Class: job.Hung, Node: &one, Host: "bob", Rank: &three},
				{Round: 1, World: 4, Meet: time.Second, Load: time.Minute, Redo: 2 * time.Minute, Train: 10 * time.Minute},
			},
		},
	}
}

// counts are what node 0 of that job has counted, on a machine with a GPU and an adapter.
func counts() report.Counts {
	errors := 2
	return report.Counts{
		Store: &report.StoreCounts{Clients: 3, Keys: 12, Crowded: 7, Commands: map[string]report.Times{
			"COMPARE_SET": {Count: 5, Seconds: 0.004, Within: map[float64]uint64{0.0001: 3, 0.001: 4, 0.01: 5}},
			"SET":         {Count: 1, Seconds: 0.00005, Within: map[float64]uint64{0.0001: 1, 0.001: 1, 0.01: 1}},
		}},
		Output:    &report.OutputCounts{Bytes: [2]uint64{1000, 20}, Lines: [2]uint64{50, 1}, Unshown: 3},
		Preflight: []report.FindingCount{{Check: "gpu-link", Result: "warn", Count: 2}},
		Broke:     []report.FindingCount{{Check: "hca", Result: "fail", Count: 1}},
		Beating:   []report.BeatAge{{Rank: 0, LocalRank: 0, Age: 700 * time.Millisecond}},
		Meters: job.Meters{
			Ports: []job.PortMeter{{Device: "mlx5_0", Port: 1, Up: true, Rate: 50e9, Counters: map[string]uint64{
				"port_rcv_data": 4000, "port_xmit_data": 8000, "port_rcv_packets": 7, "port_xmit_packets": 9, "port_xmit_wait": 11, "link_downed": 1, "out_of_sequence": 2, "np_cnp_sent": 3,
			}}, {Device: "rdmap0s6", Port: 1, Counters: map[string]uint64{"rx_bytes": 1, "tx_bytes": 2, "rx_pkts": 3, "tx_pkts": 4}}},
			Devices: []job.DeviceMeter{
				{Name: "GPU0", Place: "0000:1b:00.0", Speed: 32e9, MaxSpeed: 32e9, Lanes: 8, MaxLanes: 16, Errors: map[string]uint64{"correctable": 3, "nonfatal": 0, "fatal": 0}, Uncorrected: &errors},
				{Name: "mlx5_0", Place: "0000:18:00.0"},
			},
		},
	}
}

func scrape(t testing.TB, s report.Status, c report.Counts) string {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(func() report.Status { return s }, func() report.Counts { return c }).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// Names and meanings are a promise: docs/metrics.md has them all. Prometheus' own tool finds nothing to say of them.
func TestMetrics(t *testing.T) {
	whole := scrape(t, status(), counts())
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes", "process_open_fds", "muster_first_process_resident_memory_bytes"} {
		if !strings.Contains(whole, "\n"+name+" ") {
			t.Errorf("no %s", name)
		}
	}
	text := ours(whole)
	golden.File(t, "testdata/metrics.txt", text)
	for _, c := range []struct {
		report.Status
		report.Counts
	}{{status(), counts()}, {}, {Status: report.Status{Phase: report.Meeting, Job: "\xff\n\"", Host: strings.Repeat("é", 300)}}} {
		text := scrape(t, c.Status, c.Counts)
		if strings.Contains(text, "NaN") {
			t.Errorf("NaN:\n%s", text)
		}
		check := exec.Command("promtool", "check", "metrics")
		check.Stdin = strings.NewReader(text)
		if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("promtool (make prepare installs it): %v\n%s", err, out)
		}
	}
	docs, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(string(docs), "| `"+name[1]) {
			t.Errorf("docs/metrics.md does not tell of %s", name[1])
		}
	}
}

// ours are the lines that tell nothing of this process.
func ours(text string) string {
	var all strings.Builder
	for line := range strings.Lines(text) {
		if !regexp.MustCompile(`^(# \w+ )?(go_|process_|muster_first_process_)`).MatchString(line) {
			all.WriteString(line)
		}
	}
	return all.String()
}
