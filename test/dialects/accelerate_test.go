package dialects

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestAccelerate(t *testing.T) {
	t.Parallel()
	python := python(t)
	s := open(t, "../../dialect/testdata/conf", "../../dialect/testdata/home")
	d := drive(t, s.dir, python, "scripts/drive_accelerate.py")
	path := strings.Join([]string{linked(t, "accelerate"), filepath.Dir(python), "/usr/bin", "/bin"}, ":")
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
