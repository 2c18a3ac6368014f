package page

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// A program in C beats, with the compiler's sanitizers watching; outside a job it is told so, and nothing else.
func TestHeaderForC(t *testing.T) {
	dir := t.TempDir()
	source, program := filepath.Join(dir, "beat.c"), filepath.Join(dir, "beat")
	if err := os.WriteFile(source, []byte(inC), 0o600); err != nil {
		t.Fatal(err)
	}
	header, err := filepath.Abs("c")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("gcc", "-std=gnu99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-fsanitize=address,undefined", "-g", "-I", header,
		"-o", program, source).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p, path := newPage(t)
	short := filepath.Join(dir, "short")
	if err := os.WriteFile(short, []byte("MUSTERPG"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ page, want string }{{"", "2 2"}, {"/none", "2 2"}, {short, "22 22"}, {"/dev/zero", "22 22"}, {source, "22 22"}, {path, "0 0"}} {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), "MUSTER_PAGE="+c.page)
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != c.want {
			t.Errorf("%s: %q, %v; want %q", c.page, out, err, c.want)
		}
	}
	now, err := monotonic()
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Read()
	left := s.Until - now
	if err != nil || s.Steps != 500 || s.Beats != 2002 || s.Phase != "checkpoint" || left < 5*time.Minute || left > 10*time.Minute {
		t.Errorf("%+v, %v", s, err)
	}
}

const inC = `
#include "muster_beat.h"
#include <stdio.h>
#include <sys/wait.h>
int main(void) {
	int a = muster_beat_step(500), b = muster_beat_phase("checkpoint", 600), i;
	if (a == 0 && fork() == 0) {
		for (i = 0; i < 1000; i++)
			if (muster_beat_step(500) != 0)
				_exit(1);
		_exit(0);
	}
	for (i = 0; a == 0 && i < 1000; i++)
		if (muster_beat_step(500) != 0)
			return 1;
	if (a == 0 && (wait(&i) < 0 || i != 0))
		return 2;
	printf("%d %d", a, b);
	return 0;
}
`
