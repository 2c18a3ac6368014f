package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// The manual page is as both formatters want it, and has every command and flag that people may use.
func TestManual(t *testing.T) {
	dir := t.TempDir()
	p := muster(t, dir, nil, "man")
	p.ends(0)
	if i := strings.IndexFunc(p.out.String(), func(r rune) bool { return r > unicode.MaxASCII }); i >= 0 {
		t.Errorf("a terminal without UTF-8 does not show all of %.40q", p.out.String()[max(0, i-20):])
	}
	file := filepath.Join(dir, "muster.1")
	if err := os.WriteFile(file, []byte(p.out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{
		{"mandoc", "-Tlint", "-Wstyle", file},
		{"man", "--warnings=w", "--encoding=UTF-8", "--local-file", "--troff-device=utf8", "--ditroff", file},
	} {
		cmd := exec.Command(argv[0], argv[1:]...)
		var wrong strings.Builder
		cmd.Stderr = &wrong
		if argv[0] == "mandoc" {
			cmd.Stdout = &wrong
		}
		if err := cmd.Run(); err != nil || wrong.Len() > 0 {
			t.Errorf("%s: %v\n%s", argv[0], err, &wrong)
		}
	}
	cmd := exec.Command("man", "--local-file", file)
	cmd.Env = append(os.Environ(), "MANWIDTH=400", "MAN_KEEP_FORMATTING=", "PAGER=cat", "LC_ALL=C.UTF-8")
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"muster - starts distributed training", "run [flags] script.py [argument...]", "--nnodes N\n", "-m, --module\n", "ctl upgrade [flags] FILE",
		"    muster run --nproc-per-node 2 -- ./a.out\n", "MUSTER_TERMINATION_LOG\n", "138    infrastructure: ", "paddle start a job as python -m paddle.distributed.launch does",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if strings.Contains(string(text), "serve PMI-1") {
		t.Error("the page has what muster starts itself")
	}
}
