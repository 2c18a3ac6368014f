package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muster-run/muster/affinity"
	"github.com/muster-run/muster/topology"
)

// placed tells where a worker runs, and whose memory it has.
const placed = `set -- $(grep Cpus_allowed_list /proc/self/status) $(cut -d' ' -f2 /proc/self/numa_maps | sort -u); echo "worker $LOCAL_RANK on $2, $3"`

// Workers run where --bind says, as the kernel tells of them, and so does what they start.
func TestBind(t *testing.T) {
	t.Parallel()
	m, err := topology.Probe("/")
	if err != nil {
		t.Fatal(err)
	}
	bound := affinity.Choose(affinity.Given{Machine: m, Mode: affinity.Core, Workers: 2, Getenv: func(string) (string, bool) { return "", false }})
	if !bound.Bound() {
		t.Fatalf("this machine cannot bind two workers to cores of their own: %+v", bound)
	}
	all := m.Limits.Usable(m.Processor.Online)
	var near, cores, nodes []string // with memory of their node first, without, and with that alone
	for i, w := range bound.Workers {
		near = append(near, fmt.Sprintf("worker %d on %v, prefer:%d", i, w.CPUs, w.Memory))
		cores = append(cores, fmt.Sprintf("worker %d on %v, default", i, w.CPUs))
		nodes = append(nodes, fmt.Sprintf("worker %d on %v, prefer:%d", i, all, w.Memory))
	}
	free := []string{fmt.Sprintf("worker 0 on %v, default", all), fmt.Sprintf("worker 1 on %v, default", all)}
	numbers := map[string]string{"get_mempolicy": "239, 236", "set_mempolicy": "238, 237", "sched_setaffinity": "203, 122"}
	deny := func(calls ...string) []string {
		code := "import platform\nx86 = platform.machine() == 'x86_64'\ncode = [(0x20, 0, 0, 0)]\n"
		for _, c := range calls {
			code += fmt.Sprintf("code += [(0x15, 0, 1, [%s][not x86]), (6, 0, 0, 0x50001)]\n", numbers[c])
		}
		return []string{"python3", "-c", code + "code += [(6, 0, 0, 0x7fff0000)]\n" + filtered}
	}
	for _, c := range []struct {
		name  string
		under []string
		flags []string
		want  []string
		says  string // once; "": nothing of it
	}{
		{"auto, without GPUs", nil, nil, free, ""},
		{"core", nil, []string{"--bind", "core"}, near, ""},
		{"in a container that may not place memory", deny("get_mempolicy", "set_mempolicy"), []string{"--bind=core"}, cores, "seccomp profile does not let memory be placed"},
		{"in one that may only ask", deny("set_mempolicy"), []string{"--bind=core"}, cores, "no worker is bound to the memory of a NUMA node: set_mempolicy: operation not permitted"},
		{"in one that may not bind", deny("sched_setaffinity"), []string{"--bind=core"}, nodes, "no worker is bound to its CPUs: sched_setaffinity: operation not permitted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			argv := append(append(append([]string{}, c.under...), executable(t), "run", "--nproc-per-node", "2"), append(c.flags, "--", "sh", "-c", placed)...)
			p := startProgram(t, t.TempDir(), nil, argv...)
			p.ends(0, c.want...)
			if said := p.out.String(); strings.Count(said, "bound to")+strings.Count(said, "placed") != min(len(c.says), 1) || !strings.Contains(said, c.says) {
				t.Errorf("want once %q:\n%s", c.says, said)
			}
		})
	}
}
