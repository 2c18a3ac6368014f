package topology

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

func snap(t testing.TB, r Root, mask bool) string {
	t.Helper()
	var b strings.Builder
	if err := r.Snapshot(&b, "snapshot", mask); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A snapshot's tree is the machine that it was taken of, and a masked one differs in nothing but the names that are masked.
func TestSnapshot(t *testing.T) {
	secret := regexp.MustCompile(`GPU-[0-9a-f]{8}-[-0-9a-f]*|[0-9a-f]{4}:[0-9a-f]{4}:[0-9a-f]{4}:[0-9a-f]{4}|(?:[0-9a-f]{2}:){5}[0-9a-f]{2}|GPU-[0-9a-f]{16}|(?:hive|unique)_id="[0-9]{5,}"|::ffff:[0-9.]+|fe80::[0-9a-f:]+`)
	for _, name := range machineNames(t) {
		t.Run(name, func(t *testing.T) {
			r := machineRoot(t, name)
			m := probed(t, r)
			text := snap(t, r, false)
			compare(t, change(m, probed(t, expanded(t, text))), nil)
			masked := snap(t, r, true)
			again := probed(t, expanded(t, masked))
			if m.Platform() != again.Platform() || !slices.Equal(Names(m.Compute()), Names(again.Compute())) || len(m.Slots()) != len(again.Slots()) {
				t.Errorf("masked it is another machine: %q", change(m, again))
			}
			for _, s := range secret.FindAllString(text, -1) {
				if strings.Trim(s, "0:GPU-") != "" && strings.Contains(masked, s) && !strings.HasPrefix(s, "0000:0000") && !strings.HasPrefix(s, "fe80:0000") {
					t.Errorf("%s is not masked", s)
				}
			}
		})
	}
}

// What this container may not use is so in the tree, too.
func TestSnapshotOfLess(t *testing.T) {
	r := machineRoot(t, "dgx-h100")
	remove(t, r, "dev/nvidia3")
	remove(t, r, "dev/infiniband/uverbs4")
	write(t, r, "proc/self/status", "Cpus_allowed_list:\t0-7\nMems_allowed_list:\t0\n")
	write(t, r, "sys/fs/cgroup/cpu.max", "150000 100000\n")
	compare(t, change(probed(t, r), probed(t, expanded(t, snap(t, r, false)))), nil)
}
