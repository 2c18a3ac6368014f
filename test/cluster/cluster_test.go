package cluster

import (
	"bufio"
	"flag"
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
	"text/tabwriter"
	"time"

	"github.com/muster-run/muster/test/stage"
)

var (
	scene = flag.String("scene", "", "`REGEXP` of the scenes to play; none if not given, for a cluster takes minutes to build")
	keep  = flag.String("keep", "", "`DIR` for the logs of the cluster's programs")
)

// patience bounds everything that is waited for; the machine may be busy with much else.
const patience = 10 * time.Minute

func TestMain(m *testing.M) { stage.Main(m, 1) }

// A cluster is what the scenes have.
type cluster struct {
	t     *testing.T
	bin   string // Kubernetes' programs
	stage *stage.Stage
	plane *stage.Machine
	nodes []*stage.Machine
	table strings.Builder

	leaves io.Writer // takes the names of directories
}

// TestScenes makes the cluster and plays the jobs one after the other.
func TestScenes(t *testing.T) {
	if *scene == "" {
		t.Log("no scene is asked for: make e2e")
		return
	}
	if !exists("/sys/fs/cgroup/memory") {
		t.Fatal("this takes control groups of version 1: boot with systemd.unified_cgroup_hierarchy=0")
	}
	chosen := regexp.MustCompile(*scene)
	if !slices.ContainsFunc(scenes, func(s playing) bool { return chosen.MatchString(s.name) }) {
		t.Fatalf("no scene is like %q", *scene)
	}
	began := time.Now()
	c := &cluster{t: t, bin: programs(t)}
	c.alone()
	archives := c.images()
	c.stage = stage.Open(t, 1)
	fmt.Fprintln(c.leaves, c.stage.Dir)
	c.stage.Dull = func(string) bool { return true } // it is in files
	t.Cleanup(c.showLogs)
	c.control()
	for i := range 2 {
		c.node(i, archives)
	}
	c.ready()
	took(&c.table, "the cluster", began, "two nodes, operators and names")
	for _, s := range scenes {
		if chosen.MatchString(s.name) {
			c.play(s.name, s.do)
		}
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "scene\ttook\tseen\n%s", &c.table)
	out.Flush()
}

// groups is the directory of the cluster's control groups, in each hierarchy.
const groups = "muster-e2e"

// sweeper holds the place of the only cluster. When nobody writes to it any more it removes the directories that it was told of, and the
// groups: they can go when their processes have ended, from the last to the first.
const sweeper = `
sweep() {
	for try in $(seq 600); do
		for dir in $dirs; do umount -R $dir/images/overlay; rm -rf $dir; done
		find /sys/fs/cgroup/*/$1 -depth -type d -exec rmdir {} +
		left=$(ls -d $dirs /sys/fs/cgroup/*/$1)
		[ "$left" ] || return 0
		sleep 0.1
	done
	echo $left
	return 1
}
dirs=
sweep $1
echo alone
while read -r dir; do dirs="$dirs $dir"; done
sweep $1`

// alone waits until this is the only cluster. What it leaves is removed also when this program is killed: by another, which outlives it.
func (c *cluster) alone() {
	c.t.Helper()
	cmd := exec.Command("flock", filepath.Join(cache(c.t), "cluster.lock"), "sh", "-c", sweeper, "sh", groups)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is not for it
	in, err := cmd.StdinPipe()
	c.fatal(err)
	out, err := cmd.StdoutPipe()
	c.fatal(err)
	c.fatal(cmd.Start())
	c.t.Cleanup(func() { // after the stage is closed
		in.Close()
		left, _ := io.ReadAll(out)
		if err := cmd.Wait(); err != nil {
			c.t.Errorf("what the cluster leaves: %v: %s", err, left)
		}
	})
	if said, err := bufio.NewReader(out).ReadString('\n'); said != "alone\n" {
		c.t.Fatalf("what another cluster left: %s, %v", said, err)
	}
	c.leaves = in
}

// scratch makes a directory, for as long as the test runs, on a disk: images with PyTorch are large.
func (c *cluster) scratch() string {
	c.t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "image-")
	if err == nil {
		_, err = fmt.Fprintln(c.leaves, dir)
	}
	c.fatal(err)
	return dir
}

func (c *cluster) fatal(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func took(table *strings.Builder, name string, since time.Time, seen string) {
	fmt.Fprintf(table, "%s\t%s\t%s\n", name, time.Since(since).Round(time.Second), seen)
}

// asks is a command for kubectl, on the machine of the control plane. It ends with this program.
func (c *cluster) asks(args ...string) *exec.Cmd {
	cmd := c.plane.Command("-m -u -n", append([]string{filepath.Join(c.bin, "kubectl"), "--kubeconfig", c.plane.Dir + "/admin.conf"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// kubectl says what it prints.
func (c *cluster) kubectl(args ...string) (string, error) {
	cmd := c.asks(args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Start()
	if err == nil {
		defer time.AfterFunc(patience+30*time.Second, func() { _ = cmd.Process.Kill() }).Stop()
		err = cmd.Wait()
	}
	said := strings.TrimSpace(out.String())
	if err != nil {
		return said, fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, said)
	}
	return said, nil
}

func (c *cluster) must(args ...string) string {
	c.t.Helper()
	said, err := c.kubectl(args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return said
}

// apply hands a text over.
func (c *cluster) apply(text string, args ...string) {
	c.t.Helper()
	file := filepath.Join(c.stage.Dir, "apply.yaml")
	c.write(file, text)
	c.must(append([]string{"apply", "--server-side", "--force-conflicts", "-f", file}, args...)...)
}

// until waits until something is so; to ask is cheap.
func (c *cluster) until(what string, so func() bool) {
	c.t.Helper()
	for late := time.Now().Add(patience); !so(); {
		if time.Now().After(late) {
			c.t.Fatalf("%s: not within %s", what, patience)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// run starts a program of the cluster on a machine. What it says is in a file.
func (c *cluster) run(m *stage.Machine, env []string, name string, args ...string) *stage.Program {
	path := name
	if own := filepath.Join(c.bin, name); exists(own) {
		path = own
	}
	return m.Run(env, append([]string{"sh", "-c", `exec "$0" "$@" > "$LOG" 2>&1`, path}, args...)...)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// showLogs tells what the cluster's programs said last, if something was wrong.
func (c *cluster) showLogs() {
	files, _ := filepath.Glob(c.stage.Dir + "/*/*.log")
	for _, file := range files {
		if *keep != "" {
			to := filepath.Join(*keep, strings.ReplaceAll(strings.TrimPrefix(file, c.stage.Dir+"/"), "/", "-"))
			if out, err := exec.Command("install", "-D", file, to).CombinedOutput(); err != nil {
				c.t.Errorf("%v: %s", err, out)
			}
		} else if c.t.Failed() {
			out, _ := exec.Command("tail", "-n", "5", file).CombinedOutput()
			c.t.Logf("%s:\n%s", file, out)
		}
	}
}

// TestSweeper: what a cluster was in goes when nobody is there to write any more.
func TestSweeper(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "stage")
	if err := os.MkdirAll(dir+"/node-1", 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", sweeper, "sh", "no-such-groups")
	cmd.Stdin = strings.NewReader(dir + "\n")
	if out, err := cmd.Output(); err != nil || string(out) != "alone\n" || exists(dir) {
		t.Errorf("%q, %v; its directory is there: %v", out, err, exists(dir))
	}
}
