package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-run/muster/topology/fixture"
)

// Two machines with another NCCL and another /dev/shm each: all nodes say so before the first round, and with --preflight strict there is none.
func TestUnlikeHosts(t *testing.T) {
	t.Parallel()
	run, text := dressed(t, "enp3s0"), described(t, "dgx-h100")
	trees := []string{fixture.Tree(t, text), fixture.Tree(t, text)}
	for i, version := range []string{"2.27.3", "2.19.3"} {
		lib := t.TempDir() // trees are in /dev/shm
		if err := os.WriteFile(filepath.Join(lib, "libnccl.so."+version), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("libnccl.so."+version, filepath.Join(lib, "libnccl.so.2")); err != nil {
			t.Fatal(err)
		}
		more := "mount -t tmpfs -o size=" + []string{"4g", "2g"}[i] + " none /dev/shm\nexport LD_LIBRARY_PATH=" + lib + " PATH=/usr/sbin:/usr/bin:/sbin:/bin\n"
		if err := os.WriteFile(filepath.Join(trees[i], "more"), []byte(more), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	unlike := []string{
		"the nodes are not alike: nccl: 2.27.3 on 1 node, but 2.19.3 on " + hostname(t) + " (node 1): NCCL ends with",
		"the nodes are not alike: shm: 4 GiB on 1 node, but 2 GiB on " + hostname(t) + " (node 1): where there is less of it",
	}
	for _, p := range []*program{run(0, trees[0], "echo trains"), run(1, trees[1], "echo trains")} {
		p.ends(0, append(unlike, "trains")...)
		if said := p.out.String(); strings.Index(said, unlike[0]) > strings.Index(said, "] trains") {
			t.Errorf("it is said after the workers began:\n%s", said)
		}
	}
	for _, p := range []*program{run(0, trees[0], "echo trains", "--preflight", "strict"), run(1, trees[1], "echo trains", "--preflight", "strict")} {
		p.ends(67, unlike[0], "use one image on all nodes")
		if strings.Contains(p.out.String(), "] trains") {
			t.Errorf("workers were started:\n%s", p.out.String())
		}
	}
}
