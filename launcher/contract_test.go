package launcher

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-run/muster/framework"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/rendezvous"
)

// The framework is what flags say, else the platform, else the script; and somebody is told by whom.
func TestPlanFramework(t *testing.T) {
	dir := t.TempDir()
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	keras, both := script("keras.py", "import tensorflow as tf\n"), script("both.py", "import jax\nimport tensorflow\n")
	long := script("long.py", strings.Repeat("#", maxScript)+"\nimport jax\n")
	run := func(argv ...string) func(*Config) {
		return func(c *Config) { c.Argv, c.Environ = argv, append(c.Environ, "PYTHON_EXEC=/bin/true") }
	}
	const tfAlone = `TF_CONFIG={"cluster":{"worker":["h:2222"]},"task":{"type":"worker","index":0}}`
	for _, c := range []struct {
		name string
		env  string
		set  func(*Config)
		want string // framework, by whom, slots, parameter servers, whose success counts
		note string
		err  string
	}{
		{"nothing", "", nil, "torch, default, 1, 0, ", "", ""},
		{"a flag", tfAlone, func(c *Config) { c.Framework, c.From = "jax", map[string]string{"framework": "--framework"} }, "jax, --framework, 1, 0, ", "", ""},
		{"no framework", "", func(c *Config) { c.Framework = "caffe" }, "", "", `--framework caffe: no framework "caffe"; there is torch, none, jax, tensorflow, paddle`},
		{"TF_CONFIG of nobody", "TF_CONFIG={}", nil, "torch, default, 1, 0, ", "", ""},
		{"TF_CONFIG of nobody, and a script", "TF_CONFIG={}", run(keras), "tensorflow, " + keras + " imports tensorflow, 1, 0, ", "TF_CONFIG={} names nobody: taken for none", ""},
		{"TFJob", tfAlone, nil, "tensorflow, TF_CONFIG, 1, 0, ", "", ""},
		{"TFJob of two nodes, settled by flags", tfAlone + " MASTER_ADDR=h WORLD_SIZE=x", func(c *Config) { c.Nodes, c.Endpoint = 2, "h" }, "tensorflow, TF_CONFIG, 1, 0, ", "", ""},
		{"standalone", tfAlone, func(c *Config) { c.Standalone = true }, "torch, default, 1, 0, ", "", ""},
		{"a script", "", run(keras), "tensorflow, " + keras + " imports tensorflow, 1, 0, ", keras + " imports tensorflow: --framework tensorflow; say --framework torch if that is wrong", ""},
		{"a script of two", "", run(both), "torch, default, 1, 0, ", both + " imports jax and tensorflow: --framework torch; say --framework if that is wrong", ""},
		{"a script on TFJob", tfAlone, run(both), "tensorflow, TF_CONFIG, 1, 0, ", "", ""},
		{"a script of PyTorch's launcher", tfAlone, func(c *Config) { run(keras)(c); c.Dialect.Command = c.Argv }, "torch, the launcher in whose words it was called, 1, 0, ", "", ""},
		{"a script without end", "", run(long), "torch, default, 1, 0, ", "", ""},
		{"a program", "", run("/bin/true", keras), "torch, default, 1, 0, ", "", ""},
		{"one process a node", "PET_NPROC_PER_NODE=4", func(c *Config) { c.Framework = "tensorflow" }, "tensorflow, default, 1, 0, ", "", ""},
		{"more by a flag", "", func(c *Config) { c.Framework, c.NProc = "tensorflow", "3" }, "tensorflow, default, 3, 0, ", "", ""},
		{"servers", "", func(c *Config) { c.Framework, c.Nodes, c.Endpoint, c.Servers = "paddle", 3, "h", 1 }, "paddle, default, 1, 1, trainers", "", ""},
		{"servers of the other kind", "", func(c *Config) { c.Framework, c.Nodes, c.Endpoint, c.Servers = "tensorflow", 3, "h", 1 }, "tensorflow, default, 1, 1, rank0", "", ""},
		{"servers, and whose success counts", "", func(c *Config) {
			c.Framework, c.Nodes, c.Endpoint, c.Servers, c.Success = "paddle", 3, "h", 1, "all"
			c.From = map[string]string{"success": "--success"}
		}, "paddle, default, 1, 1, all", "", ""},
		{"no servers", "", func(c *Config) { c.Nodes, c.Endpoint, c.Servers = 3, "h", 1 }, "", "", "--ps 1: torch has no parameter servers"},
		{"only servers", "", func(c *Config) { c.Framework, c.Nodes, c.Least, c.Endpoint, c.Servers = "paddle", 4, 2, "h", 2 }, "", "", "--ps 2: of 2:4 nodes, none would be left to train"},
		{"TFJob with servers", tfServers("worker"), nil, "tensorflow, TF_CONFIG, 1, 2, rank0", "", ""},
		{"a server of TFJob", tfServers("ps"), nil, "tensorflow, TF_CONFIG, 1, 2, rank0", "", ""},
		{"servers of TFJob, but another framework", tfServers("worker"), func(c *Config) { c.Framework = "torch" }, "torch, default, 1, 0, ", "", ""},
		{"a server of TFJob, but another framework", tfServers("ps"), func(c *Config) { c.Framework = "torch" }, "", "", "this node is parameter server 1 of the job (TF_CONFIG="},
		{"a server of TFJob, by flags", tfServers("ps"), func(c *Config) { c.Nodes, c.Servers = 3, 2 }, "tensorflow, TF_CONFIG, 1, 2, rank0", "", ""},
		{"a server of TFJob, and nodes by a flag", tfServers("ps"), func(c *Config) { c.Nodes = 3 }, "", "", "and --nnodes says how many nodes there are, but not --ps how many of them serve"},
		{"a server of paddle-operator", "TRAINING_ROLE=PSERVER PADDLE_TRAINER_ID=0 PADDLE_TRAINERS_NUM=2 PADDLE_TRAINER_ENDPOINTS=a:1,b:1 PADDLE_PSERVERS_IP_PORT_LIST=c:1", nil,
			"paddle, PADDLE_TRAINERS_NUM, 1, 1, trainers", "", ""},
		{"two hosts for one port", "", func(c *Config) { c.Framework, c.WorkerStore = "jax", "agent" }, "", "", "--worker-store agent: rank 0 of jax serves where that store would be"},
	} {
		p, err := NewPlan(config(t, c.env, c.set))
		got := fmt.Sprintf("%s, %s, %d, %d, %s", p.Framework.Name, by(p, "framework"), p.Spec.Self.Slots, p.Spec.Servers, p.Success)
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || ExitCode(err) != job.ExitUsage):
			t.Errorf("%s: %v, want %q", c.name, err, c.err)
		case c.err == "" && (err != nil || got != c.want):
			t.Errorf("%s: %s, %v; want %s", c.name, got, err, c.want)
		case strings.Contains(strings.Join(p.Notes, "\n"), "imports") != (c.note != "") || !strings.Contains(strings.Join(p.Notes, "\n"), c.note):
			t.Errorf("%s: notes %q, want %q", c.name, p.Notes, c.note)
		}
	}
}

// tfServers is the variable of a TFJob with one worker and two parameter servers.
func tfServers(role string) string {
	return fmt.Sprintf(`TF_CONFIG={"cluster":{"worker":["w:1"],"ps":["p:1","q:1"]},"task":{"type":"%s","index":%d}}`, role, map[string]int{"ps": 1}[role])
}

// by is who made a setting.
func by(p Plan, name string) string {
	for _, s := range p.Settings {
		if s.Name == name {
			return s.From
		}
	}
	return ""
}

// A framework that asks for ports has them kept; who comes after takes the same, or says who has them.
func TestPorts(t *testing.T) {
	f, err := framework.Lookup("paddle")
	if err != nil {
		t.Fatal(err)
	}
	h := heritage{Plan: Plan{Framework: f, Spec: job.Spec{Self: job.Node{Slots: 3}}}}
	if err := h.reserve(); err != nil || len(h.held) != 3 || len(h.Plan.Spec.Self.Ports) != 3 {
		t.Fatalf("%v, %v, %v", h.Plan.Spec.Self.Ports, h.held, err)
	}
	heir := heritage{Plan: h.Plan}
	h.release()
	if err := heir.hold(); err != nil || len(heir.held) != 3 {
		t.Fatal(err)
	}
	heir.release()
	stranger, err := net.Listen("tcp", fmt.Sprint(":", h.Plan.Spec.Self.Ports[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	defer heir.release()
	if err := heir.hold(); ExitCode(err) != job.ExitStranger || !strings.Contains(err.Error(), fmt.Sprintf("port %d, at which", h.Plan.Spec.Self.Ports[1])) {
		t.Error(err)
	}
	torch := heritage{Plan: Plan{Spec: job.Spec{Self: job.Node{Slots: 3}}}}
	if err := torch.reserve(); err != nil || torch.held != nil || torch.Plan.Spec.Self.Ports != nil {
		t.Errorf("%v, %v, %v", torch.Plan.Spec.Self.Ports, torch.held, err)
	}
}

// Workers find those of other nodes in the network in which rank 0's node was found.
func TestHosts(t *testing.T) {
	for _, c := range []struct {
		name   string
		leader string
		addrs  string // of each node, between blanks
		want   string
	}{
		{"alone", "127.0.0.1", "-", "127.0.0.1"},
		{"one network", "10.0.0.1", "10.0.0.1 10.0.0.2", "10.0.0.1 10.0.0.2"},
		{"two networks", "10.1.0.1", "10.0.0.1,10.1.0.1 10.0.0.2,10.1.0.2 10.1.0.3,10.0.0.3", "10.1.0.1 10.1.0.2 10.1.0.3"},
		{"a bridge on each", "10.0.0.1", "172.17.0.1,10.0.0.1 172.17.0.1,10.0.0.2", "10.0.0.1 10.0.0.2"},
		{"a bridge that the leader takes for its best", "172.17.0.1", "172.17.0.1,10.0.0.1 172.17.0.1,192.168.0.2,10.0.0.2", "10.0.0.1 10.0.0.2"},
		{"a name", "host0", "10.0.0.1,host0 10.0.0.2", "host0 10.0.0.2"},
		{"both families", "fd00::1", "10.0.0.1,fd00::1 10.0.0.2,fd00::2", "fd00::1 fd00::2"},
		{"v4 of both families", "fd00::1", "10.0.0.1,fd00::1 10.0.0.2,fd00::2", "10.0.0.1 10.0.0.2"},
		{"v4 where there is none", "fd00::1", "fd00::1 10.0.0.2,fd00::2", "fd00::1 10.0.0.2"},
		{"v4 alone", "127.0.0.1", "-", "127.0.0.1"},
		{"loopback", "127.0.0.1", "127.0.0.1,::1 127.0.0.1,::1", "127.0.0.1 127.0.0.1"},
		{"v4 of loopback, of which one node met at the other's", "127.0.0.1", "127.0.0.1 127.0.0.1,::1", "127.0.0.1 127.0.0.1"},
		{"an endpoint that is there twice", "10.0.0.1", "10.0.0.1,192.168.3.7,10.0.0.1 10.0.0.2,192.168.4.7", "10.0.0.1 10.0.0.2"},
		{"v4 of both families, twice", "10.0.0.1", "10.0.0.1,fd00::1,10.0.0.1 10.0.0.2,fd00::2", "10.0.0.1 10.0.0.2"},
		{"an address that the user named", "10.0.0.1", "10.0.0.1 ib2,192.168.0.2", "10.0.0.1 ib2"},
	} {
		var w job.World
		for _, list := range strings.Fields(c.addrs) {
			var m job.Member
			for _, a := range strings.Split(strings.Trim(list, "-"), ",") {
				if a != "" {
					m.Addrs = append(m.Addrs, job.Addr(net.JoinHostPort(a, "29400")))
				}
			}
			w.Members = append(w.Members, m)
		}
		if got := strings.Join(hosts(w, c.leader, strings.HasPrefix(c.name, "v4"), false), " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// What keeps workers from being started is told with the exit status that it has anywhere else, and with what to do.
func TestWhyWorkersWereNotStarted(t *testing.T) {
	r := &round{session: &rendezvous.Session{World: job.World{Members: []job.Member{{Node: job.Node{Name: "a"}}}}}}
	for _, c := range []struct {
		err  error
		exit job.Exit
		hint string
	}{
		{fail(job.ExitRefused, "give each node an IPv4 address", "node 1 (b) is reached at fe80::1 alone"), job.Exit{Code: job.ExitRefused, Err: "node 1 (b) is reached at fe80::1 alone"}, "give each node an IPv4 address"},
		{fail(job.ExitStranger, "", "port 7 is held by another program"), job.Exit{Code: job.ExitStranger, Err: "port 7 is held by another program"}, ""},
		{&proc.StartError{Code: job.ExitNotFound, Text: "no such file"}, job.Exit{Code: job.ExitNotFound, Err: "no such file"}, ""},
		{errors.New("out of memory"), job.Exit{Code: job.ExitSystem, Err: "out of memory"}, ""},
	} {
		if f := r.notStarted(c.err); f.Exit != c.exit || f.Hint != c.hint || f.PID != 0 {
			t.Errorf("%v: %+v", c.err, f)
		}
	}
}
