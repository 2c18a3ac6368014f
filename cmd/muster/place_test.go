package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muster-run/muster/report"
)

// Four agents on two hosts say in which rack they are, and those of one rack have neighbouring ranks; a number that a person gave stays as it is.
// Status says which order that is, and why.
func TestPlaces(t *testing.T) {
	t.Parallel()
	_, on := hosts(t)
	racks := []string{"b", "a", "b", "a"}
	for _, c := range []struct {
		numbered bool
		order    string
		want     []string // racks, by group rank
	}{
		{false, "nodes that stand near each other follow each other", []string{"a", "a", "b", "b"}},
		{true, "by the numbers that nodes were given", racks},
	} {
		var all []*program
		for i, rack := range racks {
			args := []string{"run", "--nnodes", "4", "--rdzv-endpoint", "10.77.0.1:29400", "--place", "zone=z,rack=" + rack}
			if c.numbered {
				args = append(args, "--node-rank", fmt.Sprint(i))
			}
			all = append(all, on(i%2, append(args, "--", "sh", "-c", "trap 'exit 0' TERM; echo group $GROUP_RANK of rack "+rack+"; while :; do sleep 0.1; done")...))
		}
		for i, p := range all {
			p.says("of rack " + racks[i])
		}
		for i, p := range all {
			s := p.reaches(report.Running)
			var got []string
			for _, n := range s.Nodes {
				got = append(got, strings.TrimPrefix(n.Place, "zone=z,rack="))
			}
			if !slices.Equal(got, c.want) || s.Order != c.order {
				t.Errorf("places are %q, %q", got, s.Order)
			}
			if p.says(fmt.Sprintf("group %d of rack %s", *s.Node, racks[i])); c.want[*s.Node] != racks[i] {
				t.Errorf("a node of rack %s is node %d", racks[i], *s.Node)
			}
		}
		all[0].asks("status").ends(0, "ranks: "+c.order, "PLACE", "zone=z,rack=a")
		all[0].asks("ctl", "stop").ends(0)
		for _, p := range all {
			<-p.done
		}
	}
}

func TestPlaceOfDiscoverAndEnv(t *testing.T) {
	slurm := []string{"SLURM_TOPOLOGY_ADDR=spine1.leaf3.n3", "SLURM_TOPOLOGY_ADDR_PATTERN=switch.switch.node"}
	muster(t, t.TempDir(), slurm, "discover").ends(0, "stands at     rack=spine1,switch=leaf3", "SLURM_TOPOLOGY_ADDR=spine1.leaf3.n3")
	muster(t, t.TempDir(), []string{"MUSTER_PLACE=row=3"}, "discover").ends(2, `MUSTER_PLACE "row=3": "row" is no part of a place: zone, block, rack, clique, switch are`)
	args := []string{"env", "--nnodes", "2", "--rdzv-endpoint", "h:1", "--nproc-per-node", "1"}
	muster(t, t.TempDir(), slurm, append(args, "--", "true")...).ends(0, "# place", "rack=spine1,switch=leaf3", "SLURM_TOPOLOGY_ADDR=spine1.leaf3.n3")
	muster(t, t.TempDir(), slurm, append(args, "--node-rank", "1", "--place", "r2/leaf9", "--", "true")...).ends(0, "rack=r2,switch=leaf9, which does not change ranks: this node's number was given", "--place")
	muster(t, t.TempDir(), []string{"MUSTER_PLACE_FILE=/nothere"}, append(args, "--", "true")...).ends(2, "MUSTER_PLACE_FILE /nothere: no such file or directory")
}
