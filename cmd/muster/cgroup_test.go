package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Where muster may divide its cgroup, what a worker leaves behind dies with it, however it hid: here without parent, session
// and environment, while another worker lives. Nothing is left of the cgroups.
func TestCgroupKill(t *testing.T) {
	dir, self := t.TempDir(), executable(t)
	script := filepath.Join(dir, "work.sh")
	err := os.WriteFile(script, []byte(`#!/bin/sh
if [ $RANK = 0 ]; then
	env -i setsid sh -c 'sleep 1000 & echo $! > daemon.new; mv daemon.new daemon'
	exit 0
fi
until [ -e daemon ]; do :; done
while kill -0 $(cat daemon) 2>/dev/null; do :; done
echo the daemon is gone
`), 0o755)
	if err != nil {
		t.Fatal(err)
	}
	// A container's view: what it sees as the root is a cgroup of its own.
	container := `
mount -t cgroup2 none /sys/fs/cgroup && own=$(mktemp -d /sys/fs/cgroup/test-XXXXXX) && echo $$ >$own/cgroup.procs || exit 1
unshare --cgroup --mount sh -c 'umount /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && exec "$@"' sh "$@"
code=$?
echo left: $(ls -d $own/muster-* 2>/dev/null)
echo $$ >/sys/fs/cgroup/cgroup.procs
rmdir $own
exit $code`
	p := startProgram(t, dir, nil, "unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", container,
		"sh", self, "run", "--nproc-per-node", "2", "--", script)
	p.ends(0, "the daemon is gone", "left:\n")
}
