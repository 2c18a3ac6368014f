package dialects

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A driver runs command lines of a real launcher. See scripts/drive_*.py.
type driver struct {
	in  *json.Encoder
	out *json.Decoder
}

func drive(t *testing.T, dir, python, script string) driver {
	t.Helper()
	path, err := filepath.Abs(script)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, path)
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
	t.Log(script, hello.Ready)
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
			t.Fatalf("the real launcher ends with %d: %s", code, said)
		}
	}
}

func TestAccelerate(t *testing.T) {
	python := python(t)
	s := open(t, "../../dialect/testdata/conf", "../../dialect/testdata/home")
	d := drive(t, s.dir, python, "scripts/drive_accelerate.py")
	path := strings.Join([]string{build(t, "accelerate"), filepath.Dir(python), "/usr/bin", "/bin"}, ":")
	lines := linesOf(t, "accelerate")
	if len(lines) < 30 {
		t.Fatalf("%d command lines", len(lines))
	}
	for i, l := range lines {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			t.Log(l.text)
			dumps := t.TempDir()
			ours := s.underMuster(t, l, path)
			d.run(t, s.commands(t, l, dumps, path))
			compare(t, workersIn(t, dumps), ours(), l.but)
		})
	}
}
