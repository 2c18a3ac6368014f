package metrics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-run/muster/test/freeport"
)

const monitoring = "../../examples/monitoring/"

// What we give for Prometheus says what it should: the alerts fire on what they are for, and on nothing else.
func TestRules(t *testing.T) {
	for _, args := range [][]string{{"check", "config", "prometheus.yml"}, {"check", "rules", "--lint-fatal", "rules.yml"}, {"test", "rules", "rules_test.yml"}} {
		c := exec.Command("promtool", args...)
		c.Dir = monitoring
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("promtool %v (make prepare installs it): %v\n%s", args, err, out)
		}
	}
}

// A real Prometheus with our configuration reads an agent, takes the alerts, and understands every panel of the dashboard; they ask for nothing that
// there is not.
func TestPrometheus(t *testing.T) {
	agent := httptest.NewServer(Handler(status, counts))
	defer agent.Close()
	p := startPrometheus(t, strings.TrimPrefix(agent.URL, "http://"))
	p.await(`muster_world_size`, "4")
	p.await(`ALERTS{alertname="MusterMachineAils", alertstate="firing"}`, "1")
	var rules struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError, Query string }
			}
		}
	}
	p.get("/api/v1/rules", &rules)
	if len(rules.Data.Groups) != 1 || len(rules.Data.Groups[0].Rules) < 18 {
		t.Errorf("%+v", rules)
	}
	known := exported(scrape(t, status(), counts()))
	for _, g := range rules.Data.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				t.Errorf("%s: %s %s", r.Name, r.Health, r.LastError)
			}
			known.has(t, r.Name, r.Query)
		}
	}
	empty := 0
	for _, query := range dashboard(t) {
		known.has(t, "the dashboard", query)
		if len(p.query(query)) == 0 {
			empty++
		}
	}
	if all := len(dashboard(t)); empty > all/2 { // what grows needs time; the rest is there at once
		t.Errorf("%d of %d queries of the dashboard find nothing", empty, all)
	}
}

// exported is what a scrape has: the labels of each name.
type series map[string]map[string]bool

var sample = regexp.MustCompile(`^(\w+)(?:\{(.*)\})? `)

func exported(text string) series {
	all := series{}
	for line := range strings.Lines(text) {
		if m := sample.FindStringSubmatch(line); m != nil && !strings.HasPrefix(line, "#") {
			labels := map[string]bool{"instance": true, "job": true} // from Prometheus
			for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(m[2], -1) {
				labels[l[1]] = true
			}
			all[m[1]] = labels
		}
	}
	return all
}

// has checks a query for names and labels that nothing has.
func (s series) has(t *testing.T, who, query string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`\b((?:muster|process|go)_\w+)(?:\{([^}]*)\})?`).FindAllStringSubmatch(query, -1) {
		labels, known := s[m[1]]
		if !known {
			t.Errorf("%s asks for %s, which is none", who, m[1])
		}
		for _, l := range regexp.MustCompile(`(\w+)\s*[=!]`).FindAllStringSubmatch(m[2], -1) {
			if known && !labels[l[1]] {
				t.Errorf("%s asks for a label %s of %s, which has none", who, l[1], m[1])
			}
		}
	}
}

// dashboard is every query of the dashboard, as Grafana would ask it for our job.
func dashboard(t *testing.T) (queries []string) {
	data, err := os.ReadFile(monitoring + "dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			queries = append(queries, strings.ReplaceAll(target.Expr, "$job", "j1"))
		}
	}
	if len(queries) < 12 {
		t.Fatalf("%d queries", len(queries))
	}
	return queries
}

type prometheusServer struct {
	t    *testing.T
	said *said
	url  string
}

// said is what a server writes.
type said struct {
	mu  sync.Mutex
	buf bytes.Buffer
	at  chan string // where it listens, once
}

var listens = regexp.MustCompile(`msg="Listening on" address=(127\.0\.0\.1:[1-9]\d*)`)

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf.Write(b)
	if m := listens.FindSubmatch(s.buf.Bytes()); m != nil && s.at != nil {
		s.at <- string(m[1])
		s.at = nil
	}
	return len(b), nil
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// startPrometheus starts one with the example's configuration, for one target.
func startPrometheus(t *testing.T, target string) *prometheusServer {
	dir := t.TempDir()
	config, err := os.ReadFile(monitoring + "prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("[node-0:8090, node-1:8090]", "["+target+"]", "scrape_interval: 15s", "scrape_interval: 1s\n  evaluation_interval: 1s").Replace(string(config))
	rules, err := os.ReadFile(monitoring + "rules.yml")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "rules.yml"), rules, 0o644)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	at := make(chan string, 1)
	out := &said{at: at}
	c := exec.Command("prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data", fmt.Sprintf("--web.listen-address=127.0.0.1:%d", freeport.Take(t)))
	c.Dir, c.Stdout, c.Stderr = dir, out, out
	if err := c.Start(); err != nil {
		t.Fatalf("make prepare installs it: %v", err)
	}
	done := make(chan struct{})
	go func() { c.Wait(); close(done) }()
	t.Cleanup(func() { c.Process.Kill(); <-done })
	select {
	case a := <-at:
		return &prometheusServer{t, out, "http://" + a}
	case <-done:
		t.Fatalf("prometheus ended:\n%s", out)
	case <-time.After(5 * time.Minute):
		t.Fatalf("prometheus does not listen:\n%s", out)
	}
	return nil
}

func (p *prometheusServer) get(path string, into any) {
	p.t.Helper()
	r, err := http.Get(p.url + path)
	if err != nil {
		p.t.Fatalf("%v\n%s", err, p.said)
	}
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != 200 && r.StatusCode != 503 { // it is not up yet
		p.t.Fatalf("%s: %s: %v\n%s", path, r.Status, err, data)
	}
	if r.StatusCode == 200 {
		if err := json.Unmarshal(data, into); err != nil {
			p.t.Fatalf("%s: %v\n%s", path, err, data)
		}
	}
}

// query asks, and returns the values.
func (p *prometheusServer) query(text string) (values []string) {
	p.t.Helper()
	var answer struct {
		Status, Error string
		Data          struct{ Result []struct{ Value [2]any } }
	}
	p.get("/api/v1/query?query="+url.QueryEscape(text), &answer)
	for _, r := range answer.Data.Result {
		values = append(values, fmt.Sprint(r.Value[1]))
	}
	return values
}

// await asks until the answer is that value.
func (p *prometheusServer) await(text, value string) {
	p.t.Helper()
	end := time.After(5 * time.Minute)
	for again := time.NewTicker(200 * time.Millisecond); ; {
		got := p.query(text)
		if len(got) == 1 && got[0] == value {
			again.Stop()
			return
		}
		select {
		case <-again.C:
		case <-end:
			p.t.Fatalf("%s is %q, want %s\n%s", text, got, value, p.said)
		}
	}
}
