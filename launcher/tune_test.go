package launcher

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/nccl"
	"github.com/muster-run/muster/rendezvous"
	"github.com/muster-run/muster/test/thread"
	"github.com/muster-run/muster/topology"
	"github.com/muster-run/muster/topology/fixture"
)

// machineText describes one of topology's machines.
func machineText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../topology/testdata/machines", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// on is a node of two, on a machine, whose store is at an address that no name service is asked for.
func on(t *testing.T, text, env string, set func(*Config)) Config {
	t.Helper()
	c := config(t, env, set)
	c.Nodes, c.Endpoint, c.Root = 2, "192.0.2.1:29400", topology.Root(fixture.Tree(t, text))
	return c
}

// What a worker of a machine would get, of two nodes that are alike: what the user set stays, and what another launcher sets counts.
func TestTunedWorkers(t *testing.T) {
	const rails = "=mlx5_0,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_9,mlx5_10,mlx5_11"
	for _, c := range []struct {
		name, machine, env string
		set                func(*Config)
		want               map[string]string // "": not set
		note               string
	}{
		{name: "a DGX", machine: "dgx-h100", want: map[string]string{"NCCL_IB_HCA": rails, "NCCL_DEBUG": "WARN", "NCCL_TOPO_FILE": ""}},
		{name: "the user's own", machine: "dgx-h100", env: "NCCL_IB_HCA==mlx5_0", want: map[string]string{"NCCL_IB_HCA": ""}, note: "NCCL_IB_HCA==mlx5_0 stays, of the environment, in place of " + rails},
		{name: "an empty one", machine: "dgx-h100", env: "NCCL_DEBUG=", want: map[string]string{"NCCL_DEBUG": ""}},
		{name: "another launcher's", machine: "dgx-h100", set: func(c *Config) { c.Dialect.Env = job.Env{{Name: "NCCL_DEBUG", Value: "INFO"}} }, want: map[string]string{"NCCL_DEBUG": "INFO", "NCCL_IB_HCA": rails}},
		{name: "off", machine: "dgx-h100", set: func(c *Config) { c.Tune = tuneOff }, want: map[string]string{"NCCL_IB_HCA": "", "NCCL_DEBUG": ""}},
		{name: "on loopback", machine: "dgx-h100", set: func(c *Config) { c.MasterAddr = "127.0.0.1" }, want: map[string]string{"NCCL_IB_HCA": "", "NCCL_DEBUG": "WARN"}},
		{name: "a virtual machine", machine: "azure-nd96isr-h100-v5", want: map[string]string{"NCCL_TOPO_FILE": runPlace + "/" + topologyFile}},
		{name: "no GPU", machine: "", want: map[string]string{"NCCL_DEBUG": "", "NCCL_IB_HCA": "", "GLOO_SOCKET_IFNAME": ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := "machine none"
			if c.machine != "" {
				text = machineText(t, c.machine)
			}
			conf := on(t, text, c.env, c.set)
			if conf.MasterAddr != "" {
				conf.Endpoint = ""
			}
			dry, err := DryRun(conf, 0)
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range c.want {
				if got, _ := dry.Task.Env.Lookup(name); got != want {
					t.Errorf("%s=%s, want %q", name, got, want)
				}
			}
			if !strings.Contains(strings.Join(dry.Plan.Notes, "\n"), c.note) {
				t.Errorf("notes: %q", dry.Plan.Notes)
			}
			for _, v := range dry.Task.Env {
				if v.Why == "" && v.Name != "NCCL_DEBUG" {
					t.Errorf("%s has no reason", v.Name)
				}
			}
		})
	}
}

// A node tells the others of its rails, those that are down, too, and what follows where they differ is said in a word of all.
func TestRailsOfNodes(t *testing.T) {
	whole := machineText(t, "dgx-h100")
	broken := fixture.Edit(t, whole, "port mlx5_3 1 ", "4: ACTIVE", "1: DOWN", "5: LinkUp", "2: Polling")
	offer := func(text string, set func(*Config)) Plan {
		p, err := NewPlan(on(t, text, "", set))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	refuse := func(c *Config) { c.Rails = nccl.RailsRefuse }
	a, b := offer(whole, refuse), offer(broken, refuse)
	if len(a.Spec.Self.Rails) != 8 || len(b.Spec.Self.Rails) != 8 || a.Spec.Rails != nccl.RailsRefuse {
		t.Fatalf("%+v, %+v, %q", a.Spec.Self.Rails, b.Spec.Self.Rails, a.Spec.Rails)
	}
	if p := offer(whole, func(c *Config) { c.Tune = tuneOff }); p.Spec.Self.Rails != nil {
		t.Errorf("with --nccl-tune off: %+v", p.Spec)
	}
	for name, p := range map[string]Plan{
		"without GPUs": offer("machine plain\n", refuse), "with --nccl-tune off": offer(whole, func(c *Config) { c.Tune, c.Rails = tuneOff, nccl.RailsRefuse }),
	} {
		w := job.World{Terms: a.Spec.Terms, Members: []job.Member{{Node: a.Spec.Self}, {Node: p.Spec.Self, First: 8}}}
		if err := (&round{session: &rendezvous.Session{World: w}}).rails(); err != nil || p.Spec.Self.Rails != nil || p.Spec.Rails != nccl.RailsRefuse {
			t.Errorf("%s: %+v, %v", name, p.Spec, err)
		}
	}
	b.Spec.Self.Name = "bob"
	w := job.World{Terms: a.Spec.Terms, Members: []job.Member{{Node: a.Spec.Self}, {Node: b.Spec.Self, First: 8}}}
	r := &round{session: &rendezvous.Session{World: w}}
	if err := r.rails(); ExitCode(err) != job.ExitRefused || !strings.Contains(err.Error(), "bob has 7 (mlx5_3: DOWN, Polling") {
		t.Error(err)
	}
	r.session.World.Terms.Rails = nccl.RailsCommon
	if err := r.rails(); err != nil {
		t.Error(err)
	}
	for _, p := range []Plan{a, b} {
		choice := p.choose(on(t, whole, "", nil), r.session.World, "192.0.2.1", "", "", new(ownLookup).lookup)
		i := slices.IndexFunc(choice.Set, func(s nccl.Setting) bool { return s.Name == "NCCL_IB_HCA" })
		if i < 0 || choice.Set[i].Value != "=mlx5_0,mlx5_4,mlx5_5,mlx5_6,mlx5_9,mlx5_10,mlx5_11" {
			t.Errorf("%s: %+v", p.Spec.Self.Name, choice.Set)
		}
		if len(choice.Notes) != 1 || !strings.Contains(choice.Notes[0], "bob has 7") {
			t.Errorf("%s: notes %q", p.Spec.Self.Name, choice.Notes)
		}
	}
}

// A port that dies during a job is told of before the next round, once.
func TestLostRail(t *testing.T) {
	whole := machineText(t, "dgx-h100")
	plan, err := NewPlan(on(t, whole, "", nil))
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	r := &round{plan: plan, c: Config{Log: slog.New(slog.NewTextHandler(&said, nil))}}
	const lost = "cannot now: mlx5_3 (DOWN, Polling: no cable, or nobody at its other end)"
	for _, c := range []struct {
		text string
		want int // times that it was said
	}{
		{whole, 0}, {fixture.Edit(t, whole, "port mlx5_3 1 ", "4: ACTIVE", "1: DOWN", "5: LinkUp", "2: Polling"), 1}, {fixture.Edit(t, whole, "port mlx5_3 1 ", "4: ACTIVE", "1: DOWN", "5: LinkUp", "2: Polling"), 1},
	} {
		r.c.Root = topology.Root(fixture.Tree(t, c.text))
		if m := r.looked(); len(m.HCAs) != len(plan.machine.HCAs) || strings.Count(said.String(), lost) != c.want || strings.Count(said.String(), "nccl:") != c.want {
			t.Errorf("%d adapters; said, want %d times: %s", len(m.HCAs), c.want, said.String())
		}
	}
}

// Agents of one machine, and a world on loopback, have no network between them.
func TestMachinesOfAWorld(t *testing.T) {
	w := job.World{Members: []job.Member{{Node: job.Node{Name: "ann"}}, {Node: job.Node{Name: "ann"}}, {Node: job.Node{Name: "bob"}}}}
	for _, c := range []struct {
		plan Plan
		host string
		want int
	}{
		{Plan{}, "10.0.0.1", 3}, {Plan{}, "localhost", 1}, {Plan{}, "", 3}, {Plan{Process: &Process{}}, "10.0.0.1", 2},
	} {
		if got := c.plan.machines(w, c.host); got != c.want {
			t.Errorf("%q: %d, want %d", c.host, got, c.want)
		}
	}
}

// The way to a host that is none, and to this machine itself.
func TestRoute(t *testing.T) {
	for host, want := range map[string]string{"127.0.0.1": "127.0.0.1 is 127.0.0.1 here, which others cannot reach", "no.such.host.invalid": "no.such.host.invalid, by which nodes reach each other, has no route"} {
		if name, why := route(host); name != "" || !strings.HasPrefix(why, want) {
			t.Errorf("%s: %q %q", host, name, why)
		}
	}
}

// HIP's list says which GPUs an AMD machine's workers see one of, and nothing on any other.
func TestVirtualGPUs(t *testing.T) {
	for machine, want := range map[string]string{"dgx-h100": "4", "mi300x-8gpu-baremetal": "6"} {
		text := machineText(t, machine)
		if machine != "dgx-h100" {
			text += "\nfile dev/kfd \"\"\nfile dev/dri/renderD128 \"\"\nfile dev/dri/renderD136 \"\"\n"
		}
		c := on(t, text, "CUDA_VISIBLE_DEVICES=4,5 HIP_VISIBLE_DEVICES=6,7", func(c *Config) { c.NProc, c.Dialect.Virtual = "2", "--virtual-local-rank" })
		dry, err := DryRun(c, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := dry.Task.Env.Lookup("CUDA_VISIBLE_DEVICES"); got != want {
			t.Errorf("%s: CUDA_VISIBLE_DEVICES=%s, want %s", machine, got, want)
		}
		_, environ, err := Become(c, "0")
		if err != nil || !slices.Contains(environ, "CUDA_VISIBLE_DEVICES="+want) {
			t.Errorf("%s, in a worker: %q, %v", machine, environ, err)
		}
	}
}

// An announcement is what Gloo would make of a machine's own name, by what /etc/hosts and name servers say of it.
type announcement struct {
	hosts, server string
	want          string
}

func (a announcement) check(t *testing.T) {
	t.Helper()
	h := job.Host{Hostname: "vm", ReadFile: func(string) ([]byte, error) { return []byte(a.hosts), nil }}
	lookup := func(_ context.Context, name string) ([]string, error) {
		if a.server == "" {
			return nil, fmt.Errorf("lookup %s: no such host", name)
		}
		return []string{a.server}, nil
	}
	if got := misnamed(h, lookup); got != a.want {
		t.Errorf("%q, %q: %q, not %q", a.hosts, a.server, got, a.want)
	}
}

const ownName = "this machine's own name is "

// Gloo goes by the machine's own name: what /etc/hosts has for it, else what name servers say.
func TestMisnamed(t *testing.T) {
	const unknown = "this machine's own name vm does not resolve, and Gloo would tell the others 127.0.0.1"
	for _, a := range []announcement{
		{"", "", unknown}, {"127.0.0.1 localhost", "", unknown}, {"# 127.0.1.1 vm", "", unknown}, {"127.0.0.1", "", unknown},
		{"", "127.0.0.1", ownName + "127.0.0.1, which Gloo would tell the others"},
		{"::1 vm", "", ownName + "::1, which Gloo would tell the others"},
	} {
		a.check(t)
	}
}

// Name servers are asked for this machine's own name once, beside the meeting: a round does not wait for them.
func TestOwnNameIsAskedBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, answer := 0, make(chan []string)
		lookup := func(context.Context, string) ([]string, error) { asked++; return <-answer, nil }
		host := job.Host{Hostname: "vm", Getenv: func(string) string { return "" }, ReadFile: func(string) ([]byte, error) { return nil, os.ErrNotExist }}
		h := &heritage{Plan: Plan{Spec: job.Spec{Terms: job.Terms{Nodes: 2}}, machine: topology.Machine{Nets: []topology.Net{{Name: "eth0", Type: 1, State: "up"}}}}}
		r := &round{c: Config{First: keeper{blobs: map[string][]byte{}}, Host: host}, h: h, plan: h.Plan, session: &rendezvous.Session{Rank: 1}, line: &line{host: "192.0.2.1"}}
		r.session.World = job.World{Terms: h.Plan.Spec.Terms, Members: make([]job.Member, 2)}
		h.own.ask(r.c, h.Plan, lookup)
		tuned := func(want string) {
			t.Helper()
			began := time.Now()
			r.tune(false)
			if v := fmt.Sprint(h.Tuned); time.Since(began) != 0 || !strings.Contains(v, "GLOO_SOCKET_IFNAME eth0") || !strings.Contains(v, want) {
				t.Errorf("after %v: %s, want %q", time.Since(began), v, want)
			}
		}
		tuned("no name server has told this machine's own name vm by now")
		answer <- []string{"127.0.0.1"}
		synctest.Wait()
		tuned("127.0.0.1, which Gloo would tell")
		if tuned("127.0.0.1"); asked != 1 {
			t.Errorf("asked %d times", asked)
		}
	})
}

// An address that others reach is this machine's: what is not counts only where there is none. The machine is a network with one address.
func TestNamed(t *testing.T) {
	const mine, foreign = "192.0.2.7", ownName + "203.0.113.1, which it does not have, and Gloo would tell the others 127.0.0.1"
	thread.Own(func() {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error("a network of its own, which root may have:", err)
			return
		}
		if out, err := exec.Command("ip", "address", "add", mine+"/32", "dev", "lo").CombinedOutput(); err != nil {
			t.Errorf("ip: %v\n%s", err, out)
			return
		}
		for _, a := range []announcement{
			{"", mine, ""}, {mine + " vm\n", "", ""}, {"127.0.1.1 vm\n" + mine + " vm\n", "", ""}, {"203.0.113.1 vm\n" + mine + " vm\n", "", ""},
			{"127.0.0.1 localhost\n127.0.1.1\tvm.example VM # debian\n", mine, ownName + "127.0.1.1, which Gloo would tell the others"},
			{"203.0.113.1 vm\n", mine, foreign}, {"", "203.0.113.1", foreign},
		} {
			a.check(t)
		}
	})
}
