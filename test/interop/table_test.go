package interop

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// others are the scripts that are played besides the trainings.
var others = []training{
	{script: "ddp", python: "debian", of: "torch"},
	{script: "accelerate_bf16", python: "launchers", of: "accelerate torch"},
	{script: "deepspeed_zero1", python: "launchers", of: "deepspeed torch"},
	{script: "deepspeed_pdsh", python: "launchers", of: "deepspeed torch"},
	{script: "deepspeed_autotuning", python: "autotuning", of: "deepspeed torch"},
	{script: "mpi4py_allreduce", python: "openmpi", of: "openmpi mpi4py"},
	{script: "mpi4py_allreduce", python: "openmpi4", of: "openmpi mpi4py"},
}

// row is one of the table of what was run: of what, which versions, by which script or test, what was asserted, and when.
var row = regexp.MustCompile("(?m)^\\| ([^|]+) \\| ([^|]+) \\| `(\\w+)` \\| ([^|]+) \\| 20\\d\\d-\\d\\d-\\d\\d \\|$")

// The table that people read has a row for everything that is played, with the versions that are pinned, and none for what is not.
func TestTable(t *testing.T) {
	text, err := os.ReadFile("../../docs/frameworks.md")
	if err != nil {
		t.Fatal(err)
	}
	section := string(text)[strings.Index(string(text), "## What was run"):]
	rows := row.FindAllStringSubmatch(section, -1)
	if n := strings.Count(section, "\n| ") - 1; len(rows) != n { // but for the head
		t.Errorf("%d of the table's %d rows can be read", len(rows), n)
	}
	told := map[int]bool{}
	for _, c := range append(others, trainings...) {
		found := false
		for i, r := range rows {
			if r[3] == c.script && c.pinned(t, r[2]) {
				found, told[i] = true, true
			}
		}
		if !found {
			t.Errorf("docs/frameworks.md has no row of `%s` with the versions that requirements/%s.txt pins of %s", c.script, c.python, c.of)
		}
	}
	for i, r := range rows {
		if !told[i] && !isTest(t, r[3]) {
			t.Errorf("docs/frameworks.md tells of `%s` with %s, which nothing plays", r[3], r[2])
		}
	}
}

// pinned reports whether a text has the versions that a training's requirements pin.
func (c training) pinned(t *testing.T, versions string) bool {
	t.Helper()
	pins := map[string]string{}
	for _, file := range c.files() {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range pin.FindAllStringSubmatch(string(text), -1) {
			pins[m[1]] = m[2]
		}
	}
	if c.python == "debian" {
		pins["torch"] = "1.13.1" // of bookworm
	}
	for name := range strings.FieldsSeq(c.of) {
		if version := pins[name]; version == "" || !regexp.MustCompile(`(^|\s)`+regexp.QuoteMeta(version)+`(\s|,|$)`).MatchString(versions) {
			return false
		}
	}
	return true
}

// files are those in which it is pinned what a training needs.
func (c training) files() []string {
	files := []string{"../requirements.txt"}
	switch c.python {
	case "debian":
		return nil
	case "launchers":
		return append(files, "../launchers.txt")
	}
	return append(files, "requirements/"+c.python+".txt")
}

var pin = regexp.MustCompile(`(?m)^([a-z][\w-]*)(?:\[\w+\])?==([\d.]+)$`)

// isTest reports whether Go has a test of that name, which make test runs.
func isTest(t *testing.T, name string) bool {
	t.Helper()
	for _, dir := range []string{"../../cmd/muster", "../platforms", "../torch"} {
		files, err := filepath.Glob(dir + "/*_test.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		for _, file := range files {
			if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)") {
				return err == nil
			}
		}
	}
	return false
}

// Each script is played, with requirements that are there.
func TestScripts(t *testing.T) {
	played, needed := map[string]bool{}, map[string]bool{}
	for _, c := range append(others, trainings...) {
		played["scripts/"+c.script+".py"] = true
		for _, file := range c.files() {
			if !strings.HasPrefix(file, "../") {
				needed[file] = true
			}
		}
	}
	for dir, all := range map[string]map[string]bool{"scripts/*.py": played, "requirements/*.txt": needed} {
		files, err := filepath.Glob(dir)
		if err != nil || len(files) != len(all) {
			t.Errorf("%s: %d files, %v; %d are played", dir, len(files), err, len(all))
		}
		for _, file := range files {
			if !all[file] {
				t.Errorf("nothing plays %s", file)
			}
		}
	}
}
