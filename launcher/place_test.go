package launcher

import "testing"

// A number that was given keeps a node where it is; one that a platform gave its pods does not.
func TestPlanPlace(t *testing.T) {
	two := func(c *Config) { c.Nodes, c.Endpoint, c.Place = 2, "h:1", "rack=r1" }
	for _, c := range []struct {
		env  string
		set  func(*Config)
		want string
		keep bool
	}{
		{"", two, "rack=r1", false},
		{"", func(c *Config) { two(c); c.NodeRank = 1 }, "rack=r1", true},
		{"", func(c *Config) { two(c); c.Place = "none" }, "", false},
		{"MASTER_ADDR=h MASTER_PORT=7 WORLD_SIZE=2 RANK=1", func(c *Config) { c.Place = "leaf1" }, "switch=leaf1", true},
		{"KUBERNETES_SERVICE_HOST=x JOB_COMPLETION_INDEX=1", two, "rack=r1", false},
		{"SLURM_JOB_ID=5 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[0-1],ann SLURM_STEP_NUM_NODES=3 SLURM_NODEID=2 SLURM_PROCID=2 SLURM_NTASKS=3 SLURM_STEP_NUM_TASKS=3 SLURM_STEP_TASKS_PER_NODE=1(x3) SLURMD_NODENAME=ann" +
			" SLURM_TOPOLOGY_ADDR=s1.ann SLURM_TOPOLOGY_ADDR_PATTERN=switch.node", nil, "switch=s1", true},
	} {
		p, err := NewPlan(config(t, c.env, c.set))
		if err != nil || p.Spec.Self.Place.String() != c.want || p.Spec.Self.Fixed != c.keep {
			t.Errorf("%s: %q, kept %t, %v", c.env, p.Spec.Self.Place, p.Spec.Self.Fixed, err)
		}
	}
}

func TestCliqueIn(t *testing.T) {
	const one = "7b9f1c02-1111-2222-3333-444455556666, 32766\n"
	for answer, want := range map[string]string{
		"": "", one + one: "7b9f1c02-1111-2222-3333-444455556666.32766", one + "7b9f1c02-1111-2222-3333-444455556666, 1\n": "",
		"[N/A], [N/A]\n": "", "00000000-0000-0000-0000-000000000000, 0\n": "", "no devices were found\n": "", "x, [Not Supported]\n": "",
	} {
		if got := cliqueIn(answer); got != want {
			t.Errorf("%q: %q", answer, got)
		}
	}
}
