package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// under returns the files below dir, by their paths without the parts that are random.
func under(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	paths, err := filepath.Glob(filepath.Join(dir, "*", "attempt_*", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		rest, _ := filepath.Rel(dir, path)
		_, rest, _ = strings.Cut(rest, "/")
		found[rest] = string(text)
	}
	return found
}

const talk = `echo "out $RANK"; echo "err $RANK" >&2; printf "$RANK%%\rend" >&2`

// torchrun's words: which streams go to files, to the console, or to both.
func TestLogs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flags, env string
		files      string // those of local rank 1
		console    string // its lines there
	}{
		{"--log-dir logs", "", "stderr stdout", "out err end"},
		{"--log-dir logs --redirects 3", "", "stderr stdout", ""},
		{"--log-dir logs -r 1", "", "stdout", "err end"},
		{"--log-dir logs -r 3 -t 1:2", "", "stderr stdout", "err end"},
		{"--log-dir logs --tee 0", "", "", "out err end"},
		{"--log-dir logs --ranks 0", "", "stderr stdout", ""},
		{"--log-dir logs --local-ranks-filter 1 -t 1", "", "stdout", "out err end"},
		{"", "PET_LOG_DIR=logs PET_REDIRECTS=1:1", "stdout", "err end"},
		{"-r 2", "PET_LOG_DIR=logs PET_REDIRECTS=3", "stderr", "out"},
		{"--log-dir /dev/null -r 3", "", "", "out err end"},
	} {
		t.Run(c.flags+" "+c.env, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			args := append(append([]string{"run", "--nproc-per-node", "2"}, strings.Fields(c.flags)...), "--", "sh", "-c", talk)
			p := muster(t, dir, strings.Fields(c.env), args...)
			p.ends(0)
			var files, console []string
			all := under(t, filepath.Join(dir, "logs"))
			for _, name := range []string{"stderr", "stdout"} {
				if text, ok := all["attempt_0/1/"+name+".log"]; ok {
					files = append(files, name)
					if want := map[string]string{"stdout": "out 1\n", "stderr": "err 1\n1%\rend"}[name]; text != want {
						t.Errorf("%s: %q, want %q", name, text, want)
					}
				}
			}
			for _, word := range []string{"out", "err", "end"} {
				for line := range strings.Lines(p.out.String()) {
					if strings.HasPrefix(line, "[rank 1] "+word) {
						console = append(console, word)
					}
				}
			}
			if got := strings.Join(files, " "); got != c.files {
				t.Errorf("files %q, want %q of %q", got, c.files, all)
			}
			if got := strings.Join(console, " "); got != c.console {
				t.Errorf("console %q, want %q", got, c.console)
			}
		})
	}
}

// Each round has its own files: what a failed one said is still there.
func TestLogsOfRounds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := muster(t, dir, nil, "run", "--max-restarts", "1", "--log-dir", "logs", "-r", "3", "--", "sh", "-c", `echo "round $TORCHELASTIC_RESTART_COUNT"; exit 5`)
	p.ends(5, "log files are in logs/")
	all := under(t, filepath.Join(dir, "logs"))
	for i := range 2 {
		if got := all[fmt.Sprintf("attempt_%d/0/stdout.log", i)]; got != fmt.Sprintf("round %d\n", i) {
			t.Errorf("attempt %d: %q", i, got)
		}
	}
}

// What a script fails of stays beside its log files, also where its streams have none, it works elsewhere, and the agent that
// started it is gone; and it is told.
func TestErrorFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := muster(t, dir, []string{"GO=" + filepath.Join(dir, "go")}, "run", "--max-restarts", "1", "--nproc-per-node", "2", "--log-dir", "logs", "--tee", "0", "--", "sh", "-c",
		`cd /; [ $RANK = 1 ] || exec sleep 1000; echo "up in $TORCHELASTIC_RESTART_COUNT"
		while [ ! -e $GO ]; do sleep 0.01; done
		echo "{\"message\": {\"message\": \"KeyError: $TORCHELASTIC_RESTART_COUNT\"}}" >$TORCHELASTIC_ERROR_FILE; exit 5`)
	p.says("up in 0")
	p.killAgent()
	signalFile(t, filepath.Join(dir, "go"))
	p.ends(5, "KeyError: 0; restart 1 of 1 follows", "KeyError: 1, after 1 restart")
	all := under(t, filepath.Join(dir, "logs"))
	for i := range 2 {
		if got := all[fmt.Sprintf("attempt_%d/1/error.json", i)]; !strings.Contains(got, fmt.Sprintf("KeyError: %d", i)) {
			t.Errorf("attempt %d: %q of %q", i, got, all)
		}
	}
}

// A base that is no directory is told before anybody waits.
func TestNoLogDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	muster(t, dir, nil, "run", "--log-dir", "file", "true").ends(71, "make a directory for log files: mkdir file: not a directory; say --log-dir")
}

// The other looks of the console.
func TestConsoleStyles(t *testing.T) {
	t.Parallel()
	run := func(flags string, vars ...string) *program {
		args := append(append([]string{"run", "--nproc-per-node", "3"}, strings.Fields(flags)...), "--", "sh", "-c", `cat; echo hello; sleep 0.01`)
		p := muster(t, t.TempDir(), vars, args...)
		p.ends(0)
		return p
	}
	if got := run("--fold --ranks 1").out.String(); got != "[rank 1] hello\n" {
		t.Errorf("%q", got)
	}
	if got := run("--fold").out.String(); strings.Count(got, "hello\n") > 3 || strings.Count(got, "hello\n") < 1 {
		t.Errorf("%q", got)
	}
	const missing = "but the world has ranks 0 to 2"
	beyond := run("--ranks 0-7,9 --stdin 3").out.String()
	for _, want := range []string{"--ranks names rank 9, " + missing, "--stdin names rank 3, " + missing} {
		if !strings.Contains(beyond, want) {
			t.Errorf("no %q in %q", want, beyond)
		}
	}
	json := run("", "MUSTER_LOG_FORMAT=json")
	host, _ := os.Hostname()
	for rank := range 3 {
		if want := fmt.Sprintf(`"rank":%d,"local_rank":%d,"node":"%s","stream":"stdout","line":"hello"}`, rank, rank, host); !strings.Contains(json.out.String(), want) {
			t.Errorf("no %s in %s", want, json.out.String())
		}
	}
	for line := range strings.Lines(json.out.String()) {
		if !strings.HasPrefix(line, `{"time":"`) {
			t.Errorf("no object: %q", line)
		}
	}
}

// Standard input is one rank's, on request; the others find an end.
func TestStdin(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]int{"": 0, "--stdin 1": 1} {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		p := startProgram(t, t.TempDir(), nil, "sh", "-c", `printf 'typed\n' | "$0" run --nproc-per-node 2 `+flag+` cat`, self)
		p.ends(0)
		if got := strings.Count(p.out.String(), "[rank 1] typed\n"); got != want || strings.Contains(p.out.String(), "[rank 0]") {
			t.Errorf("%s: %q", flag, p.out.String())
		}
	}
}
