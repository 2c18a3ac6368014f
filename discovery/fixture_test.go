package discovery

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/muster-run/muster/job"
)

// A testCase is one node, and what is to be understood of it.
type testCase struct {
	name   string
	host   job.Host
	expect map[string]any
	env    []string
	files  map[string]string
	again  func(env []string, files map[string]string) job.Host
}

// cases are all nodes that are written down: those of two files in testdata, made by hand, those of testdata/platforms, as real
// operators made them, and those of testdata/examples, as test/platforms makes them of the manifests under examples.
func cases(t testing.TB) (all []testCase) {
	t.Helper()
	all = slices.Concat(byHand(t, "facts.yaml"), byHand(t, "versions.yaml"), byOperators(t))
	if len(all) < 39+246 {
		t.Fatalf("%d nodes: some are missing", len(all))
	}
	return all
}

func byHand(t testing.TB, file string) (all []testCase) {
	var written []struct {
		Name, Hostname, Subdomain string
		Env, Files                map[string]string
		GPUs                      int `yaml:"gpus"`
		Expect                    map[string]any
	}
	b, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(b, &written); err != nil {
		t.Fatal(err)
	}
	for _, w := range written {
		var env [][2]string
		for _, name := range slices.Sorted(maps.Keys(w.Env)) {
			env = append(env, [2]string{name, w.Env[name]})
		}
		p := Pod{Hostname: w.Hostname, Subdomain: w.Subdomain, HostNetwork: w.Subdomain == "", Env: env, Files: w.Files, Expect: w.Expect}
		all = append(all, p.testCase(w.Name, w.GPUs))
	}
	return all
}

func byOperators(t testing.TB) (all []testCase) {
	files, err := filepath.Glob("testdata/[pe]*/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f, err := ParseFixture(b)
		if err != nil {
			t.Fatalf("%s %v", file, err)
		}
		for _, p := range f.Pods {
			all = append(all, p.testCase(strings.TrimSuffix(filepath.Base(file), ".json")+"/"+p.Name, f.GPUs))
		}
	}
	return all
}

func (p Pod) testCase(name string, gpus int) testCase {
	c := testCase{name: name, host: p.Host(gpus), expect: p.Expect, env: p.Host(gpus).Environ, files: p.Files}
	c.again = func(env []string, files map[string]string) job.Host {
		q := p
		q.Env, q.Files = nil, files
		for _, kv := range env {
			name, value, _ := strings.Cut(kv, "=")
			q.Env = append(q.Env, [2]string{name, value})
		}
		return q.Host(gpus)
	}
	return c
}

// reading is what `muster discover --json` would print.
func (c testCase) reading(t testing.TB) map[string]any {
	t.Helper()
	b, err := json.Marshal(Detect(c.host).Reading(c.host))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestFixtures(t *testing.T) {
	for _, c := range append(cases(t), byHand(t, "several.yaml")...) {
		t.Run(c.name, func(t *testing.T) {
			got := c.reading(t)
			if c.expect["needs"] == "nodes" { // either of them is right, a number is not
				if got["error"] == nil && got["rule"] != "single" {
					t.Fatalf("it needs a number of nodes, and there is no error: %v", got)
				}
				return
			}
			if got["error"] != nil && c.expect["error"] == nil && c.expect["nodes"] != nil {
				t.Errorf("error: %v", got["error"])
			}
			for key, want := range c.expect {
				if why := compare(key, want, got, c.expect); why != "" {
					t.Errorf("%s: %s; got %v", key, why, got)
				}
			}
		})
	}
}

// compare says what is wrong with one value; "" if nothing is.
func compare(key string, want any, got, all map[string]any) string {
	value := got[key]
	switch {
	case key == "hostAlternatives" || key == "nprocAlternatives":
		return ""
	case key == "host" && want == "self":
		if value == "self" || got["rank"] == 0.0 || got["index"] == 0.0 {
			return ""
		}
	case key == "host" && all["hostAlternatives"] != nil && slices.Contains(all["hostAlternatives"].([]any), value):
		return ""
	case key == "error":
		if text, _ := value.(string); strings.Contains(text, want.(string)) {
			return ""
		}
	case key == "role" && want == "PSERVER": // paddle-operator's word; fixtures of the operator itself say ps
		want = "ps"
	case key == "notRun" && want == nil:
		if value == nil {
			return ""
		}
	case want == nil: // nobody said, or it is settled when they meet; the port is ours to choose
		if _, number := value.(float64); !number || key == "port" {
			return ""
		}
	}
	if fmt.Sprint(value) != fmt.Sprint(want) {
		return fmt.Sprintf("%v, want %v", value, want)
	}
	return ""
}
