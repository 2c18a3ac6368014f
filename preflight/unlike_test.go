package preflight

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
)

func TestUnlike(t *testing.T) {
	world := func(edit func(i int, f map[string]string)) (nodes []job.Node) {
		for i := range 4 {
			f := map[string]string{FactNCCL: "2.27.3", "shm": fmt.Sprint(16 << 30), "driver": "550.54.15", "gpu": "H100"}
			edit(i, f)
			n := job.Node{Name: fmt.Sprint("gpu", i), Index: i}
			for _, name := range []string{"driver", "shm", FactNCCL, "gpu", "later"} {
				if v, ok := f[name]; ok {
					n.Facts = append(n.Facts, job.Fact{Name: name, Value: v})
				}
			}
			nodes = append(nodes, n)
		}
		return nodes
	}
	for _, c := range []struct {
		name string
		edit func(i int, f map[string]string)
		want string
	}{
		{"all alike", func(int, map[string]string) {}, ""},
		{"one does not tell", func(i int, f map[string]string) {
			if i == 2 {
				clear(f)
			}
		}, ""},
		{"what nobody here knows", func(i int, f map[string]string) { f["later"] = fmt.Sprint(i) }, ""},
		{"a small /dev/shm", func(i int, f map[string]string) {
			if i == 2 {
				f["shm"] = fmt.Sprint(64 << 20)
			}
		}, "warn shm: 16 GiB on 3 nodes, but 64 MiB on gpu2 (node 2)"},
		{"three drivers", func(i int, f map[string]string) { f["driver"] = []string{"550", "560", "560", "570"}[i] }, "warn driver: 560 on 2 nodes, but 550 on gpu0 (node 0), 570 on gpu3 (node 3)"},
		{"another image", func(i int, f map[string]string) {
			if i < 1 {
				f[FactNCCL], f["gpu"] = "2.19.3", "A100"
			}
		}, "fail nccl: 2.27.3 on 3 nodes, but 2.19.3 on gpu0 (node 0)\nwarn gpu: H100 on 3 nodes, but A100 on gpu0 (node 0)"},
	} {
		var lines []string
		for _, f := range Unlike(world(c.edit)) {
			lines = append(lines, fmt.Sprintf("%v %s: %s", f.Result, f.Check, f.Found))
		}
		if got := strings.Join(lines, "\n"); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestApart(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		clocks []Clock // the leader's is the first
		want   string
	}{
		{[]Clock{{}, {s, 1}, {-s, 1}}, ""},
		{[]Clock{{}, {3 * s, 1}}, "the clock of gpu1 (node 1) is 3s ahead of gpu0 (node 0)"},
		{[]Clock{{}, {-3 * s, 1}, {-3*s - 1, 1}, {-3 * s, 1}}, "the clock of gpu0 (node 0) is 3s ahead of most"},
		{[]Clock{{}, {0, 1}, {10 * s, 1}, {10 * s, 1}}, "clocks differ by 10s: gpu2 (node 2) and gpu3 (node 3) ahead of gpu0 (node 0) and gpu1 (node 1)"},
		{[]Clock{{}, {20 * s, 1}, {10 * s, 1}}, "clocks differ by 20s: gpu1 (node 1) ahead of gpu2 (node 2) ahead of gpu0 (node 0)"},
		{[]Clock{{}, {0, 1}, {-time.Hour - 3*s, 1}, {9 * s, 1}, {s, 1}}, "the clock of gpu2 (node 2) is 1h0m3s behind most, that of gpu3 (node 3) is 9s ahead of most"},
		{[]Clock{{}, {20 * s, 19 * s}, {0, 1}}, ""}, // its answer was on its way for long
		{[]Clock{{}, {math.MaxInt64, 1}, {0, 1}}, "the clock of gpu1 (node 1) is 2562047h47m16.854775807s ahead of most"},
	} {
		var nodes []job.Node
		for i := range c.clocks {
			nodes = append(nodes, job.Node{Name: fmt.Sprint("gpu", i), Index: i})
		}
		got := ""
		for _, f := range Apart(nodes, c.clocks) {
			got += f.Found
		}
		if got != c.want {
			t.Errorf("%v: got %q, want %q", c.clocks, got, c.want)
		}
	}
}
