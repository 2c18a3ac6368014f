package dialects

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A driver runs a launcher's command lines. See scripts/drive.py.
type driver struct {
	in  *json.Encoder
	out *json.Decoder
}

// drive starts a script that runs the real launcher, in a network of its own: launchers have ports that they take where nobody says one, and
// do otherwise where another one has them.
func drive(t *testing.T, dir, python, script string) driver {
	t.Helper()
	script, err := filepath.Abs(script)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--net", "sh", "-c", `ip link set lo up && exec "$0" "$@"`, python, script)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", script, err)
		}
	})
	d := driver{json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out))}
	var hello struct{ Ready string }
	if err := d.out.Decode(&hello); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s has %s", filepath.Base(script), hello.Ready)
	return d
}

// run runs a line on all its nodes.
func (d driver) run(t *testing.T, commands []command) {
	t.Helper()
	var ends struct{ Codes []int }
	if err := d.in.Encode(commands); err != nil {
		t.Fatal(err)
	}
	if err := d.out.Decode(&ends); err != nil {
		t.Fatal(err)
	}
	for i, code := range ends.Codes {
		if code != 0 {
			said, _ := os.ReadFile(commands[i].Log)
			t.Fatalf("it ends with %d: %s", code, said)
		}
	}
}
