package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-run/muster/topology/fixture"
)

// Where a host has more than one network, its workers are told of the one by which it reaches the others, unless the user told them, or
// wants none of it. With one there is nothing to tell, unless the host's own name leads nowhere.
func TestNetworksOfWorkers(t *testing.T) {
	t.Parallel()
	names, _ := hosts(t)
	file := filepath.Join(t.TempDir(), "hosts") // of both
	called := func(line string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("127.0.0.1 localhost\n"+line), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	said := func(want func(host int) string, flags ...string) (all []string) {
		t.Helper()
		var programs []*program
		for host := range 2 {
			args := append([]string{"run", "--nnodes", "2", "--rdzv-endpoint", "10.77.0.1:29400", "--join-timeout", "1m"}, flags...)
			args = append(args, "--", "sh", "-c", `echo "gloo '$GLOO_SOCKET_IFNAME' rpc '$TP_SOCKET_IFNAME' nccl '$NCCL_SOCKET_IFNAME$NCCL_DEBUG'"`)
			there := []string{"ip", "netns", "exec", names[host], "unshare", "-m", "sh", "-ec", `mount --bind "$0" /etc/hosts; exec "$@"`, file, executable(t)}
			programs = append(programs, startProgram(t, t.TempDir(), nil, append(there, args...)...))
		}
		for host, p := range programs {
			w := want(host)
			p.ends(0, fmt.Sprintf("gloo '%s' rpc '%s' nccl ''", w, w))
			all = append(all, p.out.String())
		}
		return all
	}
	none := func(int) string { return "" }
	called("10.77.0.1 " + hostname(t) + "\n10.77.0.2 " + hostname(t) + "\n")
	said(none)
	own := func(host int) string { return names[host] }
	called("") // and no name server is reached: Gloo would go by 127.0.0.1
	said(own)
	called("127.0.1.1 " + hostname(t) + "\n") // by which Gloo would go
	said(own)
	called("")
	ip(t, fmt.Sprintf("link add mine netns %s type veth peer name mine netns %s", names[0], names[1]))
	for _, n := range names {
		ip(t, "-n "+n+" link set mine up")
	}
	for _, n := range names { // the kernel takes up to a second to say so
		for state := ""; !strings.Contains(state, "state UP"); {
			out, err := exec.Command("ip", "-n", n, "-o", "link", "show", "mine").Output()
			if state = string(out); err != nil {
				t.Fatal(err)
			}
		}
	}
	said(own)
	said(none, "--nccl-tune", "off")
	for host, text := range said(own, "--nccl-tune", "explain") {
		if want := fmt.Sprintf("nccl: GLOO_SOCKET_IFNAME=%s: by %s this node reaches the others; it also has mine", names[host], names[host]); !strings.Contains(text, want) {
			t.Errorf("host %d does not say %q:\n%s", host, want, text)
		}
	}
}

// dress makes a shell's mount namespace look like a machine: its /sys, device nodes, and what a script of the tree adds. Arguments are the machine's tree, a directory to
// keep the real /dev in, and a command that runs there.
const dress = `set -e
tree=$1 real=$2; shift 2
mount --make-rprivate /
mount --rbind /dev "$real"
mount -t tmpfs none /dev
for f in null zero full random urandom tty ptmx; do touch /dev/$f; mount --bind "$real/$f" /dev/$f; done
ln -s /proc/self/fd /dev/fd
mkdir /dev/shm
mount --bind "$real/shm" /dev/shm
cp -r "$tree/dev/." /dev/
mount --rbind "$tree/sys" /sys
[ ! -e "$tree/more" ] || . "$tree/more"
exec "$@"`

// dressed makes two hosts, whose network has the name that their machines have for it, and returns a function that starts muster run on one of
// them, with its machine's tree.
func dressed(t *testing.T, network string) func(host int, tree, script string, flags ...string) *program {
	names, _ := hosts(t)
	for _, n := range names {
		ip(t, fmt.Sprintf("-n %[1]s link set %[1]s down", n))
		ip(t, fmt.Sprintf("-n %[1]s link set %[1]s name %[2]s", n, network))
		ip(t, fmt.Sprintf("-n %s link set %s up", n, network))
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return func(host int, tree, script string, flags ...string) *program {
		args := []string{"ip", "netns", "exec", names[host], "unshare", "-m", "sh", "-c", dress, "dress", tree, t.TempDir(),
			self, "run", "--nnodes", "2", "--nproc-per-node", "1", "--node-rank", fmt.Sprint(host), "--rdzv-endpoint", "10.77.0.1:29400", "--join-timeout", "1m"}
		return startProgram(t, t.TempDir(), nil, slices.Concat(args, flags, []string{"--", "sh", "-c", script})...)
	}
}

func described(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../topology/testdata/machines/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Two hosts, each of which looks like a DGX, and the second has lost an adapter: they tell each other in their meeting, and what comes of that
// is what --nccl-rails says.
func TestRailsOfTwoHosts(t *testing.T) {
	t.Parallel()
	run, text := dressed(t, "enp3s0"), described(t, "dgx-h100")
	trees := []string{fixture.Tree(t, text), fixture.Tree(t, fixture.Edit(t, text, "port mlx5_3 1 ", "4: ACTIVE", "1: DOWN", "5: LinkUp", "2: Polling"))}
	const odd = "1 of 2 nodes have 8 adapters for training, but "
	for _, c := range []struct {
		rails string
		code  int
		hcas  string
	}{
		{"tell", 0, ""}, {"common", 0, "=mlx5_0,mlx5_4,mlx5_5,mlx5_6,mlx5_9,mlx5_10,mlx5_11"}, {"refuse", 67, ""},
	} {
		var all []*program
		for host, tree := range trees {
			all = append(all, run(host, tree, `echo "hcas '$NCCL_IB_HCA' by '$NCCL_SOCKET_IFNAME' '$NCCL_DEBUG'"`, "--nccl-rails", c.rails))
		}
		for host, p := range all {
			want := fmt.Sprintf("hcas '%s' by '=enp3s0' 'WARN'", c.hcas)
			if c.code != 0 {
				want = odd
			}
			p.ends(c.code, want)
			if said := strings.Contains(p.out.String(), odd) && strings.Contains(p.out.String(), "mlx5_3: DOWN, Polling"); said != (host == 0 || c.code != 0) {
				t.Errorf("--nccl-rails %s: host %d says %t which node has lost an adapter:\n%s", c.rails, host, said, p.out.String())
			}
		}
	}
}

// On virtual machines that hide how they are built workers find it in a file.
func TestTopologyOfTwoHosts(t *testing.T) {
	t.Parallel()
	run, tree := dressed(t, "eth0"), fixture.Tree(t, described(t, "azure-nd96isr-h100-v5"))
	for _, p := range []*program{run(0, tree, `grep -c 'busid="0[01]' "$NCCL_TOPO_FILE"`), run(1, tree, `grep -c 'busid="0[01]' "$NCCL_TOPO_FILE"`)} {
		p.ends(0, "] 16\n")
	}
}
