package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/report/events"
	"github.com/muster-run/muster/test/freeport"
)

// eventsOf are the lines of a file. Each is as docs/events.schema.json has it, and the next after the one before: none is missing, and none comes twice.
func eventsOf(t *testing.T, path string) (all []events.Line) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return eventsIn(t, b)
}

func eventsIn(t *testing.T, text []byte) (all []events.Line) {
	t.Helper()
	last := map[string]uint64{}
	for line := range bytes.Lines(text) {
		var l events.Line
		if err := events.Check(line); err != nil {
			t.Errorf("%v:\n%s", err, line)
		} else if err := json.Unmarshal(line, &l); err != nil {
			t.Error(err)
		}
		if l.Seq != last[l.Run]+1 {
			t.Errorf("line %d follows on %d:\n%s", l.Seq, last[l.Run], line)
		}
		last[l.Run] = l.Seq
		all = append(all, l)
	}
	return all
}

// story is what lines tell, in short.
func story(all []events.Line) string {
	var words []string
	for _, l := range all {
		switch l.Event {
		case events.Note, events.NodeLeft, events.NodeRenewed, events.WorkersGone, events.FirstStep, // at times of their own
			events.NodeSilent, events.NodeHeard: // and these where the machine is busy
			continue
		}
		word := l.Event
		if l.Action != "" {
			word = l.Action
		}
		if l.Rank != nil {
			word += fmt.Sprint(" ", *l.Rank)
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

// Each node tells each thing that it sees and decides, once and in its order, whoever of its agents is killed meanwhile.
func TestEvents(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	all := startEach(t, [][]string{{"MUSTER_EVENTS=" + filepath.Join(dir, "0-%j")}, {"MUSTER_EVENTS=" + filepath.Join(dir, "1-%j")}}, "--nnodes", "2", "--max-restarts", "1", "--rdzv-id", "told", "--", "sh", "-c",
		`echo "up $RANK, round $TORCHELASTIC_RESTART_COUNT"; while [ ! -e `+dir+`/go$TORCHELASTIC_RESTART_COUNT ]; do sleep 0.01; done
		[ $TORCHELASTIC_RESTART_COUNT$RANK = 03 ] && exit 7; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; exec sleep 1000`)
	up := func(round int) {
		for rank := range 4 {
			all[rank/2].says(fmt.Sprintf("[rank %d] up %d, round %d", rank, rank, round))
		}
		for _, p := range all { // else another agent may be the one to hear of it
			p.reaches("running")
		}
	}
	up(0)
	all[0].killAgent()
	all[1].killAgent()
	signalFile(t, filepath.Join(dir, "go0"))
	up(1)
	all[1].killAgent()
	signalFile(t, filepath.Join(dir, "go1"))
	var told [2][]events.Line
	for n, p := range all {
		p.ends(0)
		told[n] = eventsOf(t, filepath.Join(dir, fmt.Sprintf("%d-told", n)))
	}
	begin := "agent-started, platform-read, rendezvous-begun, rendezvous-met, round-begun, workers-started, "
	for n, want := range []string{
		begin + "agent-took-over, worker-ended 3, stop, X, first-cause 3, restart, round-begun, workers-started, X, end, verdict",
		begin + "agent-took-over, worker-ended 3, stop, worker-ended 2, restart, round-begun, workers-started, agent-took-over, X, end, verdict",
	} {
		if got := worked.ReplaceAllString(story(told[n]), "X"); got != want {
			t.Errorf("node %d tells\n%s, not\n%s", n, got, want)
		}
	}
	for _, l := range told[0] {
		if l.Action == events.Restart && (!strings.Contains(l.Reason, "rank 3") || l.Policy["max_restarts"] != 1.0 || l.Policy["restarts"] != 1.0 || *l.Round != 0) {
			t.Errorf("the restart is told as %+v", l)
		}
		if l.Event == events.FirstCause && (*l.OfNode != 1 || *l.ExitCode != 7 || l.Class != "failed") {
			t.Errorf("the first cause is told as %+v", l)
		}
	}
}

// worked are the ends of several workers, and of nodes' work, whose order is chance.
var worked = regexp.MustCompile(`(worker-ended \d|node-done)(, (worker-ended \d|node-done))+`)

// A job that is told to end says who wanted it, in all its phases.
func TestEventsOfAnEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := muster(t, dir, nil, "run", "--events", "events", "--", "sh", "-c", "echo up; exec sleep 1000")
	p.says("up")
	p.reaches("running")
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.ends(143)
	const want = "agent-started, platform-read, rendezvous-begun, rendezvous-met, round-begun, workers-started, signal-received, end, stop, worker-ended 0, verdict"
	if got := story(eventsOf(t, filepath.Join(dir, "events"))); got != want {
		t.Errorf("it tells %s", got)
	}
	p = muster(t, dir, nil, "run", "--events", "alone", "--nnodes", "2", "--rdzv-endpoint", fmt.Sprintf("127.0.0.1:%d", freeport.Take(t)), "--", "true")
	p.says("meeting for ")
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.ends(143)
	if got := story(eventsOf(t, filepath.Join(dir, "alone"))); got != "agent-started, platform-read, rendezvous-begun, signal-received, end, verdict" {
		t.Errorf("it tells %s", got)
	}
	muster(t, dir, nil, "run", "--events", "refused", "--nnodes", "2", "--", "true").ends(2)
	if got := story(eventsOf(t, filepath.Join(dir, "refused"))); got != "agent-started, end, verdict" {
		t.Errorf("it tells %s", got)
	}
}

// The lines may go among the workers', and to a descriptor that muster was started with.
func TestEventsElsewhere(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		p := muster(t, t.TempDir(), nil, "run", "--events", "-", "--log-format", format, "--", "echo", "hello")
		p.ends(0)
		var ours []byte
		for line := range strings.Lines(p.out.String()) {
			if strings.HasPrefix(line, `{"schema":`) {
				ours = append(ours, line...)
			}
		}
		if all := eventsIn(t, ours); len(all) < 8 || all[len(all)-1].Event != events.Verdict {
			t.Errorf("%s: %s", format, story(all))
		}
	}
	dir := t.TempDir()
	for n, to := range []string{"", "fd:3", "fd:4"} { // the Go runtime has files open there
		flags, vars := " --events "+to, []string(nil)
		if to == "" {
			flags, vars = "", []string{"MUSTER_EVENTS=fd:3"}
		}
		p := startProgram(t, dir, vars, "sh", "-c", "exec "+executable(t)+" run"+flags+" -- true 3>&- 4>&-")
		p.ends([]int{0, 2, 2}[n], "was passed to muster")
	}
	startProgram(t, dir, nil, "sh", "-c", executable(t)+" run --events fd:7 -- true 7>>events").ends(0)
	if got := story(eventsOf(t, filepath.Join(dir, "events"))); !strings.HasSuffix(got, "verdict") {
		t.Errorf("descriptor 7 has %s", got)
	}
}

// A socket is no place for events.
func TestEventsToSocket(t *testing.T) {
	t.Parallel()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	socket := os.NewFile(uintptr(pair[0]), "socket")
	defer socket.Close()
	for flags, want := range map[string]struct {
		env, says string
		code      int
	}{
		"--events fd:7": {says: "--events fd:7: descriptor 7 is a socket; give a file or a pipe", code: 2},
		"":              {env: "MUSTER_EVENTS=fd:7", says: "MUSTER_EVENTS=fd:7: descriptor 7 is a socket, and events are written nowhere"},
	} {
		cmd := exec.Command("sh", "-c", `exec "$0" run `+flags+` -- true 7<&0`, executable(t))
		cmd.Env = []string{asMuster + "=1", atOnce, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir(), want.env}
		cmd.Stdin = socket
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != want.code || !strings.Contains(string(out), want.says) {
			t.Errorf("%s %s: exit code %d, want %d and %q:\n%s", flags, want.env, code, want.code, want.says, out)
		}
	}
}

// What cannot be written ends nothing, and is told once.
func TestEventsToNobody(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for where, says := range map[string]string{"/dev/full": "no space left on device", "nowhere/events": "no such file or directory"} {
		p := muster(t, dir, nil, "run", "--events", where, "--max-restarts", "3", "--", "sh", "-c", "[ $TORCHELASTIC_RESTART_COUNT = 3 ]")
		p.ends(0, says, "lines could not be written to "+where)
		if n := strings.Count(p.out.String(), says); n != 1 {
			t.Errorf("%s: told %d times", where, n)
		}
	}
	muster(t, dir, nil, "run", "--events", "pipe", "--", "true").ends(0)
	muster(t, dir, nil, "run", "--events", "%x", "--", "true").ends(2, `"%x"`, "%h is the host")
}

// What docs/events.md says to type does what it says there.
func TestEventsPage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	startNodes(t, 1, nil, "--max-restarts", "1", "--events", filepath.Join(dir, "events.jsonl"), "--", "sh", "-c", "exit 3")[0].ends(3)
	b, err := os.ReadFile(filepath.Join(dir, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "events-1.jsonl"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for line := range strings.Lines(string(page)) {
		if text, is := strings.CutPrefix(line, "    jq "); is {
			c := exec.Command("sh", "-c", "jq "+text)
			c.Dir = dir
			out, err := c.CombinedOutput()
			if err != nil || len(out) == 0 || bytes.Contains(out, []byte("null\tnull")) {
				t.Errorf("%s: %v\n%s", text, err, out)
			}
			ran++
		}
		if strings.HasPrefix(line, `    {"schema":`) {
			if err := events.Check([]byte(strings.TrimSpace(line) + "\n")); err != nil {
				t.Errorf("%v: %s", err, line)
			}
			ran++
		}
	}
	if ran < 6 {
		t.Errorf("%d things of the page were tried", ran)
	}
}

// A reader of a pipe has the lines as they come, and may come late.
func TestEventsByPipe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	p := muster(t, dir, nil, "run", "--events", pipe, "--", "sh", "-c", "echo up; exec sleep 1000")
	p.says("up")
	f, err := os.OpenFile(pipe, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewReader(f)
	var text []byte
	until := func(event string) {
		for !slices.ContainsFunc(eventsIn(t, text), func(l events.Line) bool { return l.Event == event }) {
			line, err := lines.ReadBytes('\n')
			if text = append(text, line...); err != nil {
				t.Fatalf("%v before %s:\n%s", err, event, text)
			}
		}
	}
	until(events.WorkersStarted)
	p.asks("ctl", "stop").ends(0)
	until(events.Verdict)
	p.ends(143)
	if _, err := lines.ReadByte(); err != io.EOF {
		t.Errorf("after the verdict: %v", err)
	}
}

// Who comes to read a pipe when agents have died that could write nothing has all the same lines, each once.
func TestEventsOfALateReader(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	p := startEach(t, [][]string{{"MUSTER_EVENTS=" + pipe}}, "--nproc-per-node", "1", "--max-restarts", "1", "--", "sh", "-c",
		`echo "up, round $TORCHELASTIC_RESTART_COUNT"; while [ ! -e `+dir+`/go$TORCHELASTIC_RESTART_COUNT ]; do sleep 0.01; done; exit $((7 - 7 * TORCHELASTIC_RESTART_COUNT))`)[0]
	for round := range 2 {
		p.says(fmt.Sprintf("up, round %d", round))
		p.reaches("running")
		p.killAgent()
		p.says("took over from an agent that died")
		p.reaches("running")
		if round == 0 {
			signalFile(t, filepath.Join(dir, "go0"))
		}
	}
	f, err := os.OpenFile(pipe, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	signalFile(t, filepath.Join(dir, "go1"))
	text, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	p.ends(0, pipe+": nobody reads it")
	const want = "agent-took-over, worker-ended 0, stop, first-cause 0, restart, round-begun, workers-started, agent-took-over, worker-ended 0, node-done, end, verdict"
	if got := story(eventsIn(t, text)); !strings.HasSuffix(got, want) {
		t.Errorf("it tells\n%s, not\n%s", got, want)
	}
}
