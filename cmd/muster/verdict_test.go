package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-run/muster/test/freeport"
)

// Every node leaves the same first cause in its verdict; node 0 knows how the workers of all nodes ended.
func TestVerdictFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	endpoint := fmt.Sprintf("127.0.0.1:%d", freeport.Take(t))
	var all []*program
	for n := range 2 {
		all = append(all, muster(t, dir, []string{"TORCHELASTIC_ERROR_FILE=" + dir + fmt.Sprintf("/error-%d.json", n)}, "run", "--nnodes", "2", "--node-rank", strconv.Itoa(n), "--nproc-per-node", "2",
			"--rdzv-endpoint", endpoint, "--max-restarts", "1", "--verdict", fmt.Sprintf("verdict-%d.json", n), "--", "sh", "-c",
			`if [ $RANK = 2 ]; then echo last words of $RANK; [ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 5; kill -SEGV $$; fi; exec sleep 1000`))
	}
	var got [2]struct {
		Schema, Outcome, Class, Message string
		ExitCode                        int `json:"exit_code"`
		First                           struct {
			Rank, Node int
			Signal     string
			Tail       []string
		}
		Rounds []struct {
			First struct {
				ExitCode int `json:"exit_code"`
			}
		}
		Ranks []struct {
			Rank, Node   int
			Host, Signal string
			ByMuster     bool `json:"by_muster"`
		}
	}
	for n, p := range all {
		p.ends(122)
		data, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("verdict-%d.json", n)))
		if err == nil {
			err = json.Unmarshal(data, &got[n])
		}
		if err != nil {
			t.Fatal(err)
		}
		v := got[n]
		if v.Schema != "muster.verdict/1" || v.Outcome != "failed" || v.Class != "killed" || v.ExitCode != 122 ||
			v.First.Rank != 2 || v.First.Node != 1 || v.First.Signal != "SIGSEGV" || !reflect.DeepEqual(v.First.Tail, []string{"last words of 2"}) ||
			len(v.Rounds) != 1 || v.Rounds[0].First.ExitCode != 5 {
			t.Errorf("node %d: %s", n, data)
		}
	}
	for n := range all {
		data, _ := os.ReadFile(fmt.Sprintf("%s/error-%d.json", dir, n))
		if !bytes.Contains(data, []byte(`"errorCode":122,"extraInfo":{"py_callstack":"last words of 2"`)) {
			t.Errorf("node %d left the error file %q", n, data)
		}
	}
	if got[0].Message != got[1].Message || !reflect.DeepEqual(got[0].First, got[1].First) {
		t.Errorf("not the same: %+v and %+v", got[0], got[1])
	}
	ended := map[int]string{}
	for _, r := range got[0].Ranks {
		ended[r.Rank] = fmt.Sprint(r.Node, r.Host, r.Signal, r.ByMuster)
	}
	host, _ := os.Hostname()
	want := map[int]string{0: "0" + host + "SIGTERMtrue", 1: "0" + host + "SIGTERMtrue", 2: "1" + host + "SIGSEGVfalse", 3: "1" + host + "SIGTERMtrue"}
	if !reflect.DeepEqual(ended, want) || len(got[1].Ranks) != 2 {
		t.Errorf("ranks of node 0: %v, want %v; %d of node 1", ended, want, len(got[1].Ranks))
	}
}

// Standard error by another name has the verdict among its lines, also when it is a file, and is no place for last words: they
// would take that of all other lines. A link to a file stays one.
func TestVerdictBehindLink(t *testing.T) {
	t.Parallel()
	for to, from := range map[string]string{"/proc/self/fd/2": "stderr", "stderr": "stderr", "there": "there"} {
		dir := t.TempDir()
		link := filepath.Join(dir, "link")
		if err := errors.Join(os.Symlink(to, link), os.WriteFile(filepath.Join(dir, "there"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		startProgram(t, dir, []string{"TMPDIR=" + t.TempDir(), "MUSTER_TERMINATION_LOG=stderr"}, "sh", "-c", `echo before >stderr; exec "$@" 2>>stderr`, "sh",
			self, "run", "--verdict", "link", "--", "sh", "-c", "echo of the worker >&2; exit 3").ends(3)
		if got, err := os.Readlink(link); err != nil || got != to {
			t.Errorf("link to %s: %q, %v", to, got, err)
		}
		lines, err := os.ReadFile(filepath.Join(dir, "stderr"))
		for _, want := range []string{"before\n", "of the worker\n", "; exit 3\n"} {
			if err != nil || !strings.Contains(string(lines), want) {
				t.Errorf("link to %s: %v, and no %q in %s", to, err, want, lines)
			}
		}
		verdict, err := os.ReadFile(filepath.Join(dir, from))
		if err != nil || !strings.Contains(string(verdict), `"exit_code": 3`) {
			t.Errorf("link to %s: %v, and no verdict in %s", to, err, verdict)
		}
	}
}
