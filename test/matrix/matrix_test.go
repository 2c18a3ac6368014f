package matrix

import (
	"cmp"
	"flag"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	machines "github.com/muster-run/muster/test/stage"
)

// A kit is what all cases of a launcher need.
type kit struct {
	name   string
	line   func(s *stage, flags []string) []string // that starts its part of the job on a host, with flags of muster's
	ends   bool                                    // every case must end well
	muster string                                  // the program
	torch  string                                  // if not the scene's
}

var (
	all   = flag.Bool("all", false, "play over etcd whatever can be")
	plays = flag.Int("figures", 0, "`N` plays of what torchrun survives, under muster and under torchrun, for a table")
)

func TestMain(m *testing.M) { machines.Main(m, 6) }

// TestLosses plays all cases.
func TestLosses(t *testing.T) {
	k := &kit{name: "muster", line: (*stage).agent, ends: true, muster: machines.Build(t)}
	var seen table
	t.Run("all", func(t *testing.T) {
		for _, c := range scenes {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				seen.play(t, k, c)
			})
			if c.etcd == always || c.etcd == asked && *all {
				t.Run(c.overEtcd().name, func(t *testing.T) {
					t.Parallel()
					seen.play(t, k, c.overEtcd())
				})
			}
		}
	})
	t.Logf("\n%v", &seen)
}

// overEtcd is a scene whose job meets in an etcd, on a machine of its own.
func (c scene) overEtcd() scene {
	play := c.play
	c.name += ", over etcd"
	c.play = func(s *stage) {
		s.aside = s.machine("etcd", "etcd")
		member := s.etcd(s.aside)[0]
		play(s)
		member.end()
	}
	return c
}

// TestFigures plays what torchrun survives, one at a time and in turns, so that a noisy machine is noisy for all.
func TestFigures(t *testing.T) {
	if *plays == 0 {
		return
	}
	muster := machines.Build(t)
	kits := []*kit{{name: "muster", line: (*stage).agent, ends: true, torch: "newest"}}
	for _, torch := range []string{"newest", "debian"} {
		kits = append(kits, &kit{name: "torchrun " + version(t, torch), line: (*stage).torchrun, torch: torch})
	}
	var all table
	for range *plays {
		for _, k := range kits {
			k.muster = muster
			for _, c := range scenes {
				if c.both {
					t.Run(c.name+", "+k.name, func(t *testing.T) { all.play(t, k, c) })
				}
			}
		}
	}
	t.Logf("\n%v", &all)
}

// play plays a scene and takes its figures.
func (all *table) play(t *testing.T, k *kit, c scene) {
	s := openStage(t, k, machines.Python(t, cmp.Or(k.torch, c.torch, "debian")))
	defer func() {
		if r := recover(); r != nil && r != (gaveUp{}) {
			panic(r)
		}
		all.add(c.name, k.name, s)
	}()
	c.play(s)
	if k.ends {
		s.judge()
	}
}

// agent is the command line of an agent of muster.
func (s *stage) agent(flags []string) []string {
	line := append([]string{s.kit.muster, "run", "--rdzv-id", "job", "--rdzv-endpoint", s.meets()}, flags...)
	return append(line, "--", s.torch, "-u", file(s.t, "train.py"))
}

// meets is the endpoint at which the nodes meet, unless a scene says another one.
func (s *stage) meets() string {
	if s.aside == nil {
		return "h0:29400"
	}
	return "etcd://etcd:2379"
}

// elsewhere is what has the nodes meet on another machine than the first one; over etcd they do.
func (s *stage) elsewhere() string {
	if s.aside != nil {
		return ""
	}
	return " --rdzv-endpoint h2:29400"
}

// torchrun is the command line of a torchrun that polls its workers as often as the newest does. In 1.13 "no redirects", the
// default, is an error under Python 3.11; to redirect a rank that is not there is none.
func (s *stage) torchrun(flags []string) []string {
	line := []string{s.torch, "-m", "torch.distributed.run", "--rdzv_id", "job", "--rdzv_backend", "c10d", "--rdzv_endpoint", "h0:29400",
		"--monitor_interval", "0.1", "--rdzv_conf", "last_call_timeout=2", "-r", "9:1", "-t", "9:1"}
	for i := 0; i < len(flags); i += 2 {
		switch name, value := flags[i], flags[i+1]; name {
		case "--last-call", "--join-policy":
		default:
			line = append(line, "--"+strings.ReplaceAll(strings.TrimPrefix(name, "--"), "-", "_"), value)
		}
	}
	return append(line, file(s.t, "train.py"))
}

func version(t *testing.T, which string) string {
	t.Helper()
	number, err := exec.Command(machines.Python(t, which), "-c", "import torch; print(torch.__version__)").Output()
	if err != nil {
		t.Fatalf("version of the PyTorch %s: %v", which, err)
	}
	return strings.TrimSpace(string(number))
}

// file is the path of one of ours, for programs that run elsewhere.
func file(t *testing.T, name string) string { return machines.File(t, filepath.Join("testdata", name)) }
