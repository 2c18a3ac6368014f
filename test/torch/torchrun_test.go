package torch

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// torchrunArgs are those of one of nodes torchrun nodes, of one worker each, that meet in the store at port.
func (b build) torchrunArgs(nodes, port int, script ...string) []string {
	args := []string{
		"--nnodes", strconv.Itoa(nodes), "--nproc_per_node", "1", "--rdzv_backend", "c10d", "--rdzv_id", "job",
		"--rdzv_endpoint", "127.0.0.1:" + strconv.Itoa(port), "--rdzv_conf", "is_host=0", "--monitor_interval", "0.1",
	}
	if b.name == "1.13" { // on Python 3.11 it cannot start without redirects for any rank
		return slices.Concat(args, []string{"-r", "9:1", "-t", "9:1"}, script)
	}
	return slices.Concat(args, []string{"--local_addr", "127.0.0.1"}, script)
}

// torchrunEnv is the environment of a torchrun agent. Where there is no libuv it cannot host its workers' store.
func (b build) torchrunEnv() map[string]string {
	if b.noLibuv {
		return map[string]string{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
	}
	return map[string]string{}
}

// torchrun: two nodes of torchrun meet in our store, and their workers train as a world of two.
func (s *stage) torchrun(t *testing.T) {
	envs := []map[string]string{s.torchrunEnv(), maps.Clone(s.torchrunEnv())}
	args := s.torchrunArgs(2, serve(t), abs(t, "scripts/env_group.py"), "2")
	out := s.must(t, world{Script: "torchrun.py", Args: args, Envs: envs})
	if strings.Contains(out, "Error") {
		t.Errorf("torchrun says:\n%s", out)
	}
}
