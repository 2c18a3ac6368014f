package platforms

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/muster-run/muster/test/stage"
)

var update = flag.Bool("update", false, "write what the examples' pods are, and what their READMEs show of them, anew")

// An example is one of the directories under examples with a manifest, and what its job is.
type example struct {
	name   string
	gpus   int
	ranks  []int          // of the pods, in the order in which they are listed; -1: none
	expect map[string]any // of all pods
	roles  []string       // of each
	play   *play
}

var all = []example{
	{
		name: "pytorchjob-volcano", gpus: 8, ranks: []int{0, 1, 2, 3},
		expect: map[string]any{"rule": "pytorchjob", "nodes": 4, "host": "sdxl-lora-master-0", "port": 23456, "nproc": 8},
		play:   &play{files: map[string]string{"/app/lora-scripts/sd-scripts/sdxl_train.py": "testdata/together.py"}},
	},
}

// pods are those that the operator would make of an example's manifest.
func (e example) pods(t testing.TB, c *cluster) []*pod {
	t.Helper()
	manifests := read(t, e.name)
	c.namespace, c.node, c.port = "default", func(nth int) string { return fmt.Sprintf("gpu-node-%d", nth+1) }, 41233
	for _, m := range manifests {
		if m.Metadata.Namespace != "" {
			c.namespace = m.Metadata.Namespace
		}
		m.model(t)(t, c, m)
	}
	if len(c.made) != len(e.ranks) {
		t.Fatalf("%s makes %d pods, not %d", e.name, len(c.made), len(e.ranks))
	}
	for i, p := range c.made {
		p.Expect = maps.Clone(e.expect)
		if p.Expect["rank"] = nil; e.ranks[i] >= 0 {
			p.Expect["rank"] = e.ranks[i]
		}
		if e.roles != nil {
			p.Expect["role"] = e.roles[i]
		}
	}
	return c.made
}

// Each example's pods are written down for muster discover, and its README shows what that says of them. Whoever changes a manifest sees what
// becomes of it.
func TestExamples(t *testing.T) {
	muster := stage.Build(t)
	for _, e := range all {
		t.Run(e.name, func(t *testing.T) {
			pods := e.pods(t, &cluster{ip: func(_ string, nth int) string { return fmt.Sprintf("10.244.%d.7", nth+1) }})
			var text bytes.Buffer
			j := json.NewEncoder(&text)
			j.SetEscapeHTML(false)
			j.SetIndent("", " ")
			if err := j.Encode(map[string]any{"source": "examples/" + e.name, "gpus": e.gpus, "pods": pods}); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("../../discovery/testdata/examples", e.name+".json")
			golden(t, file, text.Bytes())
			said, err := exec.Command(muster, "discover", "--fixture", file).CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, said)
			}
			shows(t, filepath.Join(examples, e.name, "README.md"), string(said))
		})
	}
}

// golden is a file that has what was found.
func golden(t *testing.T, file string, want []byte) {
	t.Helper()
	if got, _ := os.ReadFile(file); bytes.Equal(got, want) {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the manifest makes; go test ./test/platforms -update, and read the diff", file)
	}
	if err := os.WriteFile(file, want, 0o644); err != nil {
		t.Fatal(err)
	}
}

// shows is a README in which the table stands, indented.
func shows(t *testing.T, file, said string) {
	t.Helper()
	var want strings.Builder
	for line := range strings.Lines(said) {
		want.WriteString("    " + strings.TrimRight(line, " \n") + "\n")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), want.String()) {
		return
	}
	if !*update {
		t.Errorf("%s does not show\n%s", file, &want)
	}
	if err := os.WriteFile(file, table.ReplaceAll(text, []byte(want.String())), 0o644); err != nil {
		t.Fatal(err)
	}
}

// table is what muster discover prints, as a README has it.
var table = regexp.MustCompile(`(?m)^    pod .*\n(    .*\n)*`)

// Every directory with a manifest is here.
func TestAll(t *testing.T) {
	here := map[string]bool{"pytorch-ddp": true} // a script, for all of them
	for _, e := range all {
		here[e.name] = true
	}
	dirs, err := os.ReadDir(examples)
	if err != nil || len(dirs) != len(here) {
		t.Errorf("%d examples, %v; %d are held to what they say", len(dirs), err, len(here))
	}
	for _, d := range dirs {
		if !here[d.Name()] {
			t.Errorf("nothing holds %s to what it says", d.Name())
		}
	}
}
