package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/topology/fixture"
)

// muster check of a machine with faults: they come first, with what to do, and the exit status says so.
func TestCheck(t *testing.T) {
	root, dir := machineTree(t, "dgx-h100"), t.TempDir()
	fixture.Remove(t, root, "dev/infiniband/uverbs0")
	smi := script(t, dir, "nvidia-smi", `case "$1" in
--query-gpu=pci.bus_id,uuid,name) echo "00000000:1B:00.0, GPU-other, other" ;;
--query-remapped-rows=gpu_bus_id,*) echo "00000000:1B:00.0, Yes, No" ;;
*) echo "Field is not a valid field to query." >&2; exit 2 ;;
esac`)
	check := func(code int, args ...string) *program {
		p := muster(t, dir, nil, append([]string{"check", "--root", root}, args...)...)
		p.ends(code)
		return p
	}
	p := check(job.ExitRefused, "--nvidia-smi", smi)
	p.ends(job.ExitRefused, "mlx5_0: no /dev/infiniband/uverbs0 in this container", "GPU0 is to be reset", "give the container the adapters that are near its GPUs", "2 failed, 0 to look at")
	if out := p.out.String(); !strings.HasPrefix(out, "FAIL") || strings.Contains(out, "pass") {
		t.Error(out)
	}
	check(0, "--nnodes", "1", "--all").ends(0, "warn ", "\npass ", "0 failed, 1 to look at")
	var got struct {
		Result   string
		Findings []struct{ Check, Result, Found, Means, Hint string }
	}
	p = check(job.ExitRefused, "--json")
	if err := json.Unmarshal([]byte(p.out.String()), &got); err != nil || got.Result != "fail" || got.Findings[0].Check != "hca" || got.Findings[0].Result != "fail" || got.Findings[0].Hint == "" {
		t.Errorf("%v\n%s", err, p.out.String())
	}
	for _, c := range []struct {
		args []string
		says string
	}{{[]string{"now"}, "takes no arguments"}, {[]string{"--nnodes", "0"}, "--nnodes"}, {[]string{"--nproc-per-node", "x"}, "--nproc-per-node"}, {[]string{"--root", dir}, "--root"}} {
		check(job.ExitUsage, c.args...).ends(job.ExitUsage, c.says)
	}
}
