package platforms

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-run/muster/discovery"
)

// units makes a host of each NAME.env beside a unit: systemd gives what it starts the variables of the file that is there in their place.
func units(t testing.TB, c *cluster, example string) {
	unit, at := directives(t, example), "/etc/systemd/system/muster-train.service"
	files, err := filepath.Glob(filepath.Join(examples, example, "*.env"))
	if err != nil || unit["EnvironmentFile"] == "" {
		t.Fatalf("%s: %v, %v", example, unit, err)
	}
	for nth, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".env")
		p := &pod{Command: strings.Fields(unit["ExecStart"]), WorkingDir: unit["WorkingDirectory"], Restart: unit["Restart"], names: []string{name}, bare: true}
		p.Name, p.Hostname, p.Namespace, p.IP, p.HostNetwork = name, name, c.namespace, c.ip(name, nth), true
		p.Files = map[string]string{unit["EnvironmentFile"]: string(text), at: unitOf(t, example)}
		for _, kv := range discovery.ParseEnv(text) {
			name, value, _ := strings.Cut(kv, "=")
			p.Env = append(p.Env, [2]string{name, value})
		}
		c.made = append(c.made, p)
	}
}

// directives are those of a unit.
func directives(t testing.TB, example string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(unitOf(t, example)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			all[name] = value
		}
	}
	return all
}

// unitOf is the text of an example's unit.
func unitOf(t testing.TB, example string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(examples, example, "muster-train.service"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
