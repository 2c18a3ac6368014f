package dialects

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The real torchrun is not in PATH for muster's side: a line that begins with python is given to muster as it is.
func TestTorchrun(t *testing.T) {
	t.Parallel()
	python := python(t)
	s := open(t)
	d := drive(t, s.dir, python, "scripts/drive_torchrun.py")
	bin := linked(t, "torchrun")
	path := strings.Join([]string{bin, filepath.Dir(python), "/usr/bin", "/bin"}, ":")
	lines := linesOf(t, "torchrun")
	if len(lines) < 30 {
		t.Fatalf("%d command lines", len(lines))
	}
	for i, l := range lines {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			t.Log(l.text)
			dumps := t.TempDir()
			ours := l
			ours.text = strings.Replace(l.text, "python -m", filepath.Join(bin, "muster")+" python -m", 1)
			end := s.underMuster(t, ours, path)
			d.run(t, s.commands(t, l, dumps, path))
			compare(t, workersIn(t, dumps), end(), append(l.but, "MASTER_ADDR"))
		})
	}
}
