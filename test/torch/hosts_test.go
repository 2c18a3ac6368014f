package torch

import (
	"slices"
	"testing"
)

// The scripts that docs/worker-store.md speaks of, all of which work without any launcher, and where else they work: with
// an agent's store and TORCHELASTIC_USE_AGENT_STORE True, or 1.
var scripts = []struct {
	name      string
	agentTrue []string // versions; elsewhere it fails or never ends
	agentOne  []string
	racy      bool // with an agent's store it is a matter of luck
	slow      bool // it takes seconds, so that its end cannot soon be told from none
}{
	{name: "env_group.py", agentTrue: everywhere, agentOne: since29},
	{name: "new_group.py", agentTrue: everywhere, agentOne: since29},
	{name: "group_twice.py", racy: true},
	{name: "tcp_group.py", agentTrue: since214, agentOne: since29},
	{name: "tcp_second_group.py", agentTrue: since214, agentOne: since29},
	{name: "tcp_master_group.py", agentTrue: everywhere, agentOne: since29},
	{name: "own_env_group.py", agentOne: since29},
	{name: "child_group.py", agentOne: since29, slow: true},
	{name: "child_world.py", agentOne: since29},
	{name: "own_store.py", agentTrue: everywhere, agentOne: since29},
	{name: "master_store.py", agentTrue: since29, agentOne: since29},
}

var (
	since214   = []string{"2.14", "2.15"}
	since29    = []string{"2.9", "2.14", "2.15"}
	everywhere = []string{"1.13", "2.6", "2.9", "2.14", "2.15"}
)

// rankZeroHosts: with --worker-store=auto every script works. The port is kept as our agent keeps it.
func (s *stage) rankZeroHosts(t *testing.T) {
	for _, script := range scripts {
		s.must(t, s.hosted(t, script.name, keepPort(t), "False"))
	}
}

// agentHosts: what works when an agent hosts the store, and what does not, which is why auto is what it is.
func (s *stage) agentHosts(t *testing.T) {
	for _, script := range scripts {
		if script.racy || script.slow {
			continue
		}
		s.expect(t, s.hosted(t, script.name, serve(t), "True"), slices.Contains(script.agentTrue, s.name))
	}
}

// agentHostsOne: what works where the variable says 1.
func (s *stage) agentHostsOne(t *testing.T) {
	for _, script := range scripts {
		if slices.Contains(script.agentOne, s.name) {
			s.must(t, s.hosted(t, script.name, serve(t), "1"))
		}
	}
}

func (s *stage) hosted(t *testing.T, script string, port int, agentStore string) world {
	more := map[string]string{"TORCHELASTIC_USE_AGENT_STORE": agentStore, "TORCHELASTIC_RESTART_COUNT": "0"}
	args := append([]string{"2"}, strs(freePorts(t, 2))...)
	return world{Script: script, Args: args, Envs: ranks(2, port, more)}
}

// expect runs a world that is to work, or is not to. One that does not work has a second to show that it does.
func (s *stage) expect(t *testing.T, w world, works bool) {
	t.Helper()
	if works {
		s.must(t, w)
		return
	}
	w.Seconds = 1
	if o := s.run(t, w); o.ok() {
		t.Errorf("PyTorch %s: %s works, against docs/worker-store.md", s.name, w.Script)
	}
}
