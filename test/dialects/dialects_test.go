package dialects

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/test/freeport"
	"github.com/muster-run/muster/test/stage"
)

func TestMain(m *testing.M) { stage.Main(m, 2) }

// A worker is what one saw of its launcher. See scripts/worker.py.
type worker struct {
	Argv   []string
	Env    map[string]string
	Dir    string
	Cores  []int  // on which it may run
	Policy string // of NUMA, for its memory
}

// A line is a command line of testdata, with the variables that stand before it.
type line struct {
	text  string
	nodes int      // that run it at once
	but   []string // variables that differ, which stand behind it: # differs: NAME NAME
}

// linesOf reads testdata/NAME.lines.
func linesOf(t *testing.T, name string) (lines []line) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".lines")
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.Lines(string(text)) {
		if text = strings.TrimSpace(text); text == "" || text[0] == '#' {
			continue
		}
		text, but, _ := strings.Cut(text, " # differs: ")
		nodes := 1
		if strings.Contains(text, "{rank}") {
			nodes = 2
		}
		lines = append(lines, line{text, nodes, strings.Fields(but)})
	}
	return lines
}

// A command is what one node runs.
type command struct {
	Argv []string          `json:"argv"`
	Env  map[string]string `json:"env"`
	Log  string            `json:"log"`
}

// A scene is a directory in which launchers are called, and what both of them get to see.
type scene struct {
	dir string // where they run
	env map[string]string
}

// open makes a scene with the worker, and with the files of dirs.
func open(t *testing.T, dirs ...string) scene {
	t.Helper()
	s := scene{dir: t.TempDir()}
	script, err := os.ReadFile("scripts/worker.py")
	if err == nil {
		err = os.WriteFile(filepath.Join(s.dir, "worker.py"), script, 0o755)
	}
	for _, dir := range dirs {
		if err == nil {
			err = os.CopyFS(filepath.Join(s.dir, filepath.Base(dir)), os.DirFS(dir))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	s.env = map[string]string{"HOME": s.dir, "PWD": s.dir}
	return s
}

// commands are those of the line's nodes, whose workers write into dumps. A port is chosen anew with each call.
func (s scene) commands(t *testing.T, l line, dumps, path string) (commands []command) {
	t.Helper()
	port := strconv.Itoa(freeport.Take(t))
	for node := range l.nodes {
		text := strings.NewReplacer("{rank}", strconv.Itoa(node), "{port}", port, "{home}", filepath.Join(s.dir, "home")).Replace(l.text)
		c := command{Argv: words(t, text), Env: maps.Clone(s.env), Log: filepath.Join(dumps, fmt.Sprint("log", node))}
		for ; strings.Contains(c.Argv[0], "="); c.Argv = c.Argv[1:] {
			name, value, _ := strings.Cut(c.Argv[0], "=")
			c.Env[name] = value
		}
		c.Env["DUMPS"], c.Env["PATH"] = dumps, path
		commands = append(commands, c)
	}
	return commands
}

// words parts a line as a shell does.
func words(t *testing.T, text string) []string {
	t.Helper()
	out, err := exec.Command("sh", "-c", "printf '%s\\0' "+text).Output()
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// linked makes links of these names and its own to muster, and returns their directory.
func linked(t *testing.T, names ...string) string {
	t.Helper()
	dir, muster := t.TempDir(), stage.Build(t)
	for _, link := range append(names, "muster") {
		if err := os.Symlink(muster, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// python is the Python with the launchers.
func python(t *testing.T) string {
	t.Helper()
	path, err := exec.Command("../python", "launchers").Output()
	if err != nil {
		t.Fatalf("test/python launchers: %v", err)
	}
	return strings.TrimSpace(string(path))
}

// patience is how long a launcher may take with workers that end at once.
const patience = 6 * time.Minute

// run runs a command to its end. Its error has what it said.
func (c command) run(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if c.Env["HOST"] != "" { // a node of that name
		c.Argv = slices.Concat([]string{"unshare", "--uts", "sh", "-c", `hostname "$HOST" && exec "$0" "$@"`}, c.Argv)
	}
	cmd := exec.CommandContext(ctx, "env", c.Argv...) // which looks for the program in the command's own PATH
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, environ(c.Env), patience
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%q: %w: %s", c.Argv, err, out)
	}
	return nil
}

func environ(env map[string]string) (list []string) {
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	return list
}

// underMuster starts a line that links to muster run, and returns what gives its workers.
func (s scene) underMuster(t *testing.T, l line, path string) func() map[string]worker {
	t.Helper()
	dumps := t.TempDir()
	ends := make(chan error, l.nodes)
	for _, c := range s.commands(t, l, dumps, path) {
		go func() { ends <- c.run(t.Context(), s.dir) }()
	}
	return func() map[string]worker {
		for range l.nodes {
			if err := <-ends; err != nil {
				t.Error(err)
			}
		}
		return workersIn(t, dumps)
	}
}

// workersIn are those that wrote into a directory, by their ranks; "alone" is one without.
func workersIn(t *testing.T, dir string) map[string]worker {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]worker{}
	for _, file := range files {
		var w worker
		data, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(data, &w)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".json")] = w
	}
	return all
}

// ownVariables are those in which a worker of muster may differ from any launcher's, each with the reason. docs/dialects.md tells of them.
var ownVariables = map[string]string{
	"DUMPS":                          "this test's",
	"MASTER_PORT":                    "a free one of each round",
	"TORCHELASTIC_RUN_ID":            "the job's id, which muster makes",
	"TORCHELASTIC_ERROR_FILE":        "in a directory of each job's",
	"TORCHELASTIC_USE_AGENT_STORE":   "the workers' store is rank 0's, never an agent's",
	"TORCHELASTIC_SIGNALS_TO_HANDLE": "torchrun tells itself",
	"NODE_RANK":                      "muster gives more names of the same",
	"LOCAL_SIZE":                     "the same",
	"CROSS_RANK":                     "the same",
	"CROSS_SIZE":                     "the same",
	"NCCL_ASYNC_ERROR_HANDLING":      "the older name of torchrun's variable",
	"PYTHONUNBUFFERED":               "so that output comes when it is written",
	"TORCH_FR_BUFFER_SIZE":           "so that a hang can be named",
	"TORCH_NCCL_TRACE_BUFFER_SIZE":   "the same for older PyTorch",
	"MUSTER_PAGE":                    "muster's heartbeats",
	"MUSTER_BEAT_SOCKET":             "the same",
	"MUSTER_WORKER":                  "by which muster finds what a worker left",
}

// worldVariables tell a worker which one it is. Where the real launcher starts a single one and tells it nothing, muster does.
var worldVariables = strings.Fields("RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_NAME ROLE_RANK " +
	"ROLE_WORLD_SIZE MASTER_ADDR TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RESTART_COUNT TORCH_NCCL_ASYNC_ERROR_HANDLING")

// compare reports in what workers of muster differ from those of the real launcher. All are held against a single one.
func compare(t *testing.T, theirs, ours map[string]worker, but []string) {
	t.Helper()
	alone, one := theirs["alone"]
	if !one && len(theirs) != len(ours) || len(ours) == 0 {
		t.Fatalf("the real launcher started workers %q, muster %q", slices.Sorted(maps.Keys(theirs)), slices.Sorted(maps.Keys(ours)))
	}
	for _, rank := range slices.Sorted(maps.Keys(ours)) {
		its := theirs[rank]
		if one {
			its, but = alone, slices.Concat(worldVariables, but)
		}
		for _, difference := range differ(its, ours[rank], but) {
			t.Errorf("rank %s: %s", rank, difference)
		}
	}
}

// differ lists in what two workers differ.
func differ(theirs, ours worker, but []string) (list []string) {
	withoutHook(ours.Env)
	loopback(theirs.Env)
	if !slices.Contains(but, "argv") && !slices.Equal(theirs.Argv, ours.Argv) || theirs.Dir != ours.Dir {
		list = append(list, fmt.Sprintf("arguments %q in %s, muster gives %q in %s", theirs.Argv, theirs.Dir, ours.Argv, ours.Dir))
	}
	if !slices.Equal(theirs.Cores, ours.Cores) || theirs.Policy != ours.Policy {
		list = append(list, fmt.Sprintf("it runs on cores %v with memory %s, of muster on %v with %s", theirs.Cores, theirs.Policy, ours.Cores, ours.Policy))
	}
	names := maps.Clone(theirs.Env)
	maps.Copy(names, ours.Env)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		its, has := theirs.Env[name]
		value, is := ours.Env[name]
		if ownVariables[name] == "" && !slices.Contains(but, name) && (its != value || has != is) {
			list = append(list, fmt.Sprintf("%s: %s, muster gives %s", name, shown(its, has), shown(value, is)))
		}
	}
	return list
}

// withoutHook takes muster's own directory off the beginning of PYTHONPATH.
func withoutHook(env map[string]string) {
	first, rest, more := strings.Cut(env["PYTHONPATH"], ":")
	switch {
	case !strings.Contains(first, "/hook-"):
	case more:
		env["PYTHONPATH"] = rest
	default:
		delete(env, "PYTHONPATH")
	}
}

// loopback writes this machine's own address in one way: torchrun has two, of which it takes the other when its port is in use.
func loopback(env map[string]string) {
	if env["MASTER_ADDR"] == "localhost" {
		env["MASTER_ADDR"] = "127.0.0.1"
	}
}

func shown(value string, is bool) string {
	if !is {
		return "unset"
	}
	return strconv.Quote(value)
}
