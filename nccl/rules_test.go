package nccl

import (
	"os"
	"strings"
	"testing"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/topology"
)

// Each rule where it has something to say, and beside that where it has not.
func TestRules(t *testing.T) {
	dgx := machineOf(t, described(t, "dgx-h100"))
	aws := machineOf(t, described(t, "aws-p5.48xlarge"))
	azure := machineOf(t, described(t, "azure-nd96isr-h100-v5"))
	roce := machineOf(t, described(t, "roce-8xa800-4nic"))
	amd := machineOf(t, described(t, "mi300x-8gpu-baremetal"))
	asked := func(nets ...topology.Net) topology.Machine { // GPUs and interfaces, without RDMA
		return topology.Machine{GPUs: dgx.GPUs, Nets: nets}
	}
	net := func(name string, speed int) topology.Net {
		n := topology.Net{Name: name, State: "up", Speed: speed, Type: 1}
		if !strings.HasPrefix(name, "flannel") && !strings.HasPrefix(name, "cni") {
			n.Address = topology.Address{Bus: 3}
		}
		return n
	}
	profile := &File{Name: "/usr/local/gib/scripts/nccl.conf", Values: map[string]string{"NCCL_IB_TC": "52", "NCCL_CROSS_NIC": "0"}}
	gibs := []string{"/usr/local/gib/lib64/libnccl-net.so"}
	gcp := roce
	gcp.DMI.Product = "Google Compute Engine"
	oci := roce
	oci.DMI.ChassisTag = "OracleCloud.com"
	oci.GPUs = dgx.GPUs
	rtx := asked(net("eth0", 1000))
	rtx.GPUs = []topology.GPU{{Vendor: "nvidia", Visible: true, Model: "NVIDIA GeForce RTX 4090"}, {Vendor: "nvidia", Visible: true, Model: "NVIDIA GeForce RTX 4090"}}
	rtx.NVIDIA.Driver = "535.161.08"
	newer := rtx
	newer.NVIDIA.Driver = "550.40.07"
	v6 := roceV6(t)
	gb200 := machineOf(t, described(t, "gb200-nvl72-tray"))
	closed := gb200
	closed.NVIDIA.IMEX = nil

	for _, c := range []struct {
		name    string
		machine topology.Machine
		route   string
		edit    func(*Given)
		want    string // NAME=VALUE, or -NAME for one that is not to be set; several separated by blanks
		note    string // that one of them has
	}{
		{name: "no way to the others", machine: dgx, want: "-NCCL_SOCKET_IFNAME -GLOO_SOCKET_IFNAME -UCX_NET_DEVICES", note: "NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME, TP_SOCKET_IFNAME: not set, for the way to the others is not known"},
		{name: "a way that is not ours", machine: dgx, route: "macvlan7", want: "-NCCL_SOCKET_IFNAME", note: "the others are reached by macvlan7, which is none of this node's own"},
		{name: "one interface", machine: asked(net("eth0", 10000)), route: "eth0", want: "-NCCL_SOCKET_IFNAME -GLOO_SOCKET_IFNAME -NCCL_SOCKET_NTHREADS"},
		{name: "one interface, and an own name on loopback", machine: asked(net("eth0", 10000)), edit: func(g *Given) { g.World.Own = "its own name is 127.0.1.1" },
			want: "GLOO_SOCKET_IFNAME=eth0 TP_SOCKET_IFNAME=eth0 -NCCL_SOCKET_IFNAME", note: "its own name is 127.0.1.1"},
		{name: "several, none known, and an own name on loopback", machine: asked(net("eth0", 10000), net("eth1", 10000)), edit: func(g *Given) { g.World.Own = "its own name is 127.0.1.1" }, want: "-GLOO_SOCKET_IFNAME"},
		{name: "a rack's NVLink without a channel", machine: closed, edit: func(g *Given) { g.Container.Version = Version{2, 27, 3} }, want: "NCCL_MNNVL_ENABLE=0", note: "has no channel of IMEX"},
		{name: "the same, and NCCL does without", machine: closed, edit: func(g *Given) { g.Container.Version = Version{2, 26, 5} }, want: "-NCCL_MNNVL_ENABLE"},
		{name: "the same, and one node", machine: closed, edit: func(g *Given) { g.World.Nodes = 1 }, want: "-NCCL_MNNVL_ENABLE"},
		{name: "a rack's NVLink", machine: gb200, want: "-NCCL_MNNVL_ENABLE"},
		{name: "fast, by TCP", machine: asked(net("eth0", 100000)), route: "eth0", want: "-NCCL_SOCKET_IFNAME NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=4"},
		{name: "less fast, by TCP", machine: asked(net("eth0", 25000)), route: "eth0", want: "NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=2"},
		{name: "a pod's bridges", machine: asked(net("eth0", 25000), net("flannel.1", 0), net("cni0", 10000)), route: "eth0", want: "NCCL_SOCKET_IFNAME==eth0 GLOO_SOCKET_IFNAME=eth0 NCCL_NSOCKS_PERTHREAD=2"},
		{name: "another that may be faster", machine: asked(net("eth0", 10000), net("net1", 100000)), route: "eth0",
			want: "-NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME=eth0 -NCCL_SOCKET_NTHREADS", note: "NCCL_SOCKET_IFNAME: not set, for data goes by it, and net1 may be as fast as eth0"},
		{name: "another of which nothing is known", machine: asked(net("eth0", 10000), net("net1", 0)), route: "eth0", want: "-NCCL_SOCKET_IFNAME", note: "net1 may be as fast"},
		{name: "another that is slower", machine: asked(net("eth0", 10000), net("eth1", 1000)), route: "eth0", want: "NCCL_SOCKET_IFNAME==eth0"},
		{name: "no GPU, several interfaces", machine: topology.Machine{Nets: []topology.Net{net("eth0", 1000), net("eth1", 1000)}}, route: "eth0",
			want: "GLOO_SOCKET_IFNAME=eth0 TP_SOCKET_IFNAME=eth0 -NCCL_SOCKET_IFNAME -NCCL_DEBUG"},
		{name: "GPUs that NCCL does not drive", machine: topology.Machine{GPUs: []topology.GPU{{Vendor: "ascend", Visible: true}}, Nets: []topology.Net{net("eth0", 1)}}, want: "-NCCL_DEBUG"},
		{name: "EFA without a plugin", machine: aws, want: "-NCCL_IB_HCA -NCCL_IB_TIMEOUT", note: "aws-ofi-nccl, NCCL's plugin for EFA, was not found"},
		{name: "EFA", machine: aws, edit: func(g *Given) { g.Container.Plugins = []string{"/opt/amazon/ofi-nccl/lib/libnccl-net.so"} }, want: "-NCCL_IB_HCA", note: "EFA: aws-ofi-nccl chooses for its fabric by itself"},
		{name: "EFA, a plugin by name", machine: aws, edit: func(g *Given) { g.Getenv = env(map[string]string{"NCCL_NET_PLUGIN": "ofi"}) }, want: "-NCCL_IB_HCA", note: "EFA: aws-ofi-nccl chooses"},
		{name: "Google's profile", machine: gcp, route: "bond0", edit: func(g *Given) { g.Container.Profile, g.Container.Plugins = profile, gibs },
			want: "NCCL_CONF_FILE=/usr/local/gib/scripts/nccl.conf -NCCL_IB_HCA -NCCL_IB_TIMEOUT NCCL_SOCKET_IFNAME==bond0", note: "GCP: gIB's own profile"},
		{name: "Google's profile, and a key of it", machine: gcp, edit: func(g *Given) {
			g.Container.Profile, g.Container.Plugins, g.Getenv = profile, gibs, env(map[string]string{"NCCL_IB_TC": "0"})
		}, want: "-NCCL_CONF_FILE -NCCL_IB_HCA", note: "NCCL_IB_TC is set by the environment"},
		{name: "Google's profile, and one's own file", machine: gcp, edit: func(g *Given) {
			g.Container.Profile, g.Container.Plugins, g.Container.Files = profile, gibs, []File{{Name: "/root/.nccl.conf", Home: true}}
		}, want: "-NCCL_CONF_FILE", note: "NCCL would no longer read /root/.nccl.conf"},
		{name: "Google's profile, NCCL too old", machine: gcp, edit: func(g *Given) {
			g.Container.Profile, g.Container.Plugins, g.Container.Version = profile, gibs, Version{2, 22, 3}
		}, want: "-NCCL_CONF_FILE", note: "NCCL 2.22.3 does not read it yet"},
		{name: "Google's profile, and no plugin", machine: gcp, edit: func(g *Given) { g.Container.Profile = profile }, want: "-NCCL_CONF_FILE NCCL_IB_TIMEOUT=22", note: "no plugin is found that it is for"},
		{name: "Google's profile, on another's machine", machine: roce, edit: func(g *Given) { g.Container.Profile, g.Container.Plugins = profile, gibs },
			want: "-NCCL_CONF_FILE NCCL_IB_TIMEOUT=22", note: "the machine is not Google's"},
		{name: "Google's older plugin", machine: gcp, edit: func(g *Given) { g.Container.Script = "/var/lib/tcpxo/lib64/nccl-env-profile.sh" }, want: "-NCCL_IB_HCA", note: "source /var/lib/tcpxo/lib64/nccl-env-profile.sh"},
		{name: "OCI", machine: oci, route: "bond0", want: "NCCL_IB_TC=41 NCCL_IB_TIMEOUT=22"},
		{name: "RoCE elsewhere", machine: roce, route: "bond0", want: "-NCCL_IB_TC NCCL_IB_TIMEOUT=22 NCCL_IB_QPS_PER_CONNECTION=2 -NCCL_IB_GID_INDEX -NCCL_IB_ADDR_FAMILY"},
		{name: "RoCE, NCCL before 2.21", machine: roce, edit: func(g *Given) { g.Container.Version = Version{2, 20, 5} }, want: "NCCL_IB_GID_INDEX=3"},
		{name: "RoCE, NCCL 2.26", machine: roce, edit: func(g *Given) { g.Container.Version = Version{2, 26, 0} }, want: "-NCCL_IB_GID_INDEX"},
		{name: "RoCE by IPv6 alone", machine: v6, want: "NCCL_IB_ADDR_FAMILY=AF_INET6"},
		{name: "InfiniBand, 31 nodes", machine: dgx, edit: func(g *Given) { g.World.Nodes = 31 }, want: "-NCCL_IB_TIMEOUT"},
		{name: "InfiniBand, 32 nodes", machine: dgx, edit: func(g *Given) { g.World.Nodes = 32 }, want: "NCCL_IB_TIMEOUT=22"},
		{name: "log files", machine: dgx, edit: func(g *Given) { g.World.Nodes, g.Logs = 1, "/logs/run-1" }, want: "TORCH_NCCL_DUMP_ON_TIMEOUT=1 TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/logs/run-1/nccl_trace_rank_"},
		{name: "no log files", machine: dgx, edit: func(g *Given) { g.World.Nodes = 1 }, want: "TORCH_NCCL_DUMP_ON_TIMEOUT=1 -TORCH_NCCL_DEBUG_INFO_TEMP_FILE"},
		{name: "the dump's newer name", machine: dgx, edit: func(g *Given) {
			g.Logs, g.Getenv = "/logs", func(name string) (string, bool) { return "/x", name == "TORCH_FR_DUMP_TEMP_FILE" }
		}, want: "-TORCH_NCCL_DEBUG_INFO_TEMP_FILE"},
		{name: "a node alone", machine: dgx, edit: func(g *Given) { g.World.Nodes = 1 }, want: "NCCL_DEBUG=WARN -NCCL_IB_HCA -GLOO_SOCKET_IFNAME"},
		{name: "memory that cannot be placed", machine: dgx, edit: func(g *Given) { g.Sealed, g.Container.Version = true, Version{2, 24, 3} }, want: "NCCL_CUMEM_HOST_ENABLE=0"},
		{name: "the same, and NCCL copes", machine: dgx, edit: func(g *Given) { g.Sealed, g.Container.Version = true, Version{2, 26, 5} }, want: "-NCCL_CUMEM_HOST_ENABLE"},
		{name: "the same, and NCCL is not known", machine: dgx, edit: func(g *Given) { g.Sealed = true }, want: "-NCCL_CUMEM_HOST_ENABLE"},
		{name: "RCCL is not NCCL", machine: amd, edit: func(g *Given) { g.Sealed, g.Container.Version = true, Version{2, 24, 3} }, want: "-NCCL_CUMEM_HOST_ENABLE"},
		{name: "GeForce, an old driver", machine: rtx, want: "NCCL_P2P_DISABLE=1"},
		{name: "GeForce, a newer one", machine: newer, want: "-NCCL_P2P_DISABLE"},
		{name: "a virtual machine whose host says", machine: azure, edit: func(g *Given) { g.Container.Mapped = true }, want: "-NCCL_TOPO_FILE"},
		{name: "a virtual machine, and no place for a file", machine: azure, edit: func(g *Given) { g.TopoFile = "" }, want: "-NCCL_TOPO_FILE", note: "NCCL_TOPO_FILE: not set, for there is nowhere to write it"},
		{name: "UCX has its own limits", machine: dgx, route: "enp3s0", edit: func(g *Given) { g.Getenv = env(map[string]string{"UCX_TLS": "tcp"}) }, want: "-UCX_NET_DEVICES NCCL_IB_HCA==mlx5_0,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_9,mlx5_10,mlx5_11"},
		{name: "UCX has its own directory", machine: dgx, route: "enp3s0", edit: func(g *Given) { g.Getenv = env(map[string]string{"UCX_CONFIG_DIR": "/etc/site"}) }, want: "-UCX_NET_DEVICES"},
		{name: "UCX has its own file", machine: dgx, route: "enp3s0", edit: func(g *Given) {
			g.Container.UCX = []File{{Name: "/etc/ucx/ucx.conf", Values: map[string]string{"UCX_NET_DEVICES": "mlx5_1:1"}}}
		}, want: "-UCX_NET_DEVICES NCCL_IB_HCA==mlx5_0,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_9,mlx5_10,mlx5_11"},
		{name: "UCX has its own file, of other things", machine: dgx, route: "enp3s0", edit: func(g *Given) {
			g.Container.UCX = []File{{Name: "/etc/ucx/ucx.conf", Values: map[string]string{"UCX_LOG_LEVEL": "warn"}}}
		}, want: "UCX_NET_DEVICES=mlx5_0:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_9:1,mlx5_10:1,mlx5_11:1,enp3s0"},
		{name: "one node has lost a rail, and all do without", machine: dgx, route: "enp3s0", edit: func(g *Given) {
			g.World.Peers[1].Rails[1].Why, g.World.Rails = "DOWN", RailsCommon
		}, want: "NCCL_IB_HCA==mlx5_0,mlx5_4,mlx5_5,mlx5_6,mlx5_9,mlx5_10,mlx5_11 UCX_NET_DEVICES=mlx5_0:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_9:1,mlx5_10:1,mlx5_11:1,enp3s0"},
		{name: "they have none in common", machine: dgx, edit: func(g *Given) {
			g.World.Peers[1].Rails, g.World.Rails = []job.Rail{{Name: "mlx5_0", At: "elsewhere"}}, RailsCommon
		}, want: "-NCCL_IB_HCA", note: "they have none in common"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := given(c.machine, c.route, 4)
			if c.edit != nil {
				c.edit(&g)
			}
			got := Choose(g)
			set := map[string]string{}
			for _, s := range got.Set {
				if s.Why == "" || s.Source == "" {
					t.Errorf("%s has no reason or no source: %+v", s.Name, s)
				}
				set[s.Name] = s.Value
			}
			for _, w := range strings.Fields(c.want) {
				if name, not := strings.CutPrefix(w, "-"); not {
					if v, ok := set[name]; ok {
						t.Errorf("%s=%s is set", name, v)
					}
					continue
				}
				name, value, _ := strings.Cut(w, "=")
				if set[name] != value {
					t.Errorf("%s=%s, want %s", name, set[name], value)
				}
			}
			if !strings.Contains(shown(got), c.note) {
				t.Errorf("no %q in:\n%s", c.note, shown(got))
			}
		})
	}
}

// roceV6 is the machine with RoCE, with addresses of IPv6 alone.
func roceV6(t *testing.T) topology.Machine {
	lines := strings.Split(described(t, "roce-8xa800-4nic"), "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, "gid ") {
			w := strings.Fields(l)
			w[4] = "2001:0db8:0000:0000:0000:0000:0000:0001"
			lines[i] = strings.ReplaceAll(l, strings.Fields(l)[4], w[4])
		}
	}
	return machineOf(t, strings.Join(lines, "\n"))
}

// What a user or an administrator has set stays, whatever the file, and what is wrong with it is told.
func TestKept(t *testing.T) {
	dgx, roce, aws := machineOf(t, described(t, "dgx-h100")), machineOf(t, described(t, "roce-8xa800-4nic")), machineOf(t, described(t, "aws-p5.48xlarge"))
	for _, c := range []struct {
		name    string
		machine topology.Machine
		env     map[string]string
		file    map[string]string
		kept    string // NAME=VALUE of WHOM, in place of …
		note    string
	}{
		{name: "by the environment", machine: dgx, env: map[string]string{"NCCL_IB_HCA": "=mlx5_0"}, kept: "NCCL_IB_HCA==mlx5_0 of the environment, in place of =mlx5_0,mlx5_3"},
		{name: "by a file", machine: dgx, file: map[string]string{"NCCL_SOCKET_IFNAME": "enp3s0"}, kept: "NCCL_SOCKET_IFNAME=enp3s0 of /etc/nccl.conf, in place of =enp3s0"},
		{name: "empty", machine: dgx, env: map[string]string{"NCCL_IB_HCA": ""}, kept: "NCCL_IB_HCA= of the environment, in place of"},
		{name: "both", machine: dgx, env: map[string]string{"NCCL_DEBUG": "INFO"}, file: map[string]string{"NCCL_DEBUG": "TRACE"}, kept: "NCCL_DEBUG=INFO of the environment, in place of WARN"},
		{name: "without =", machine: dgx, env: map[string]string{"NCCL_IB_HCA": "mlx5_1"}, note: "it also means"},
		{name: "all of a family", machine: dgx, env: map[string]string{"NCCL_IB_HCA": "mlx5"}},
		{name: "all of a family, from some on", machine: dgx, env: map[string]string{"NCCL_IB_HCA": "mlx5_"}},
		{name: "of nobody", machine: dgx, env: map[string]string{"NCCL_IB_HCA": "ibp"}, note: "no adapter of this node"},
		{name: "all but", machine: dgx, env: map[string]string{"NCCL_IB_HCA": "^mlx5_1"}},
		{name: "a GID on InfiniBand", machine: dgx, env: map[string]string{"NCCL_IB_GID_INDEX": "3"}, note: "NCCL_IB_GID_INDEX=3 (the environment): the adapters are InfiniBand's"},
		{name: "a GID that is none", machine: roce, env: map[string]string{"NCCL_IB_GID_INDEX": "2"}, note: "mlx5_bond_1 has no GID of RoCE v2 there"},
		{name: "a GID", machine: roce, env: map[string]string{"NCCL_IB_GID_INDEX": "3"}},
		{name: "another fabric's class", machine: dgx, env: map[string]string{"NCCL_IB_TC": "136"}, note: "it is for RoCE"},
		{name: "no interface", machine: dgx, env: map[string]string{"NCCL_SOCKET_IFNAME": "eth"}, note: "NCCL will find none"},
		{name: "no interface of Gloo's", machine: dgx, env: map[string]string{"GLOO_SOCKET_IFNAME": "enp"}, note: "to be a name, in full"},
		{name: "Gloo as if it were not set", machine: dgx, env: map[string]string{"GLOO_SOCKET_IFNAME": ""}},
		{name: "more than three bits", machine: dgx, env: map[string]string{"NCCL_IB_RETRY_CNT": "13"}, note: "7 is the most"},
		{name: "no level", machine: dgx, env: map[string]string{"NCCL_DEBUG": "debug"}, note: "none of VERSION"},
		{name: "a number", machine: dgx, env: map[string]string{"NCCL_NET_GDR_LEVEL": "5"}, note: "write LOC, PIX"},
		{name: "no fabric", machine: dgx, env: map[string]string{"NCCL_IB_DISABLE": "1"}, note: "8 ports for training stay unused"},
		{name: "an algorithm", machine: dgx, env: map[string]string{"NCCL_ALGO": "Ring"}, note: "meant for debugging"},
		{name: "an old recipe", machine: aws, env: map[string]string{"FI_EFA_USE_DEVICE_RDMA": "1", "NCCL_NET_PLUGIN": "x"}, note: "old recipe"},
		{name: "no links", machine: dgx, env: map[string]string{"NCCL_P2P_DISABLE": "1"}, note: "links of their own"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := given(c.machine, "enp3s0", 4)
			g.Getenv, g.Container.Files = env(c.env), []File{{Name: "/etc/nccl.conf", Values: c.file}}
			got := Choose(g)
			for _, s := range got.Set {
				if _, set := c.env[s.Name]; set || c.file[s.Name] != "" {
					t.Errorf("%s is overwritten", s.Name)
				}
			}
			text := shown(got)
			if c.kept != "" && !strings.Contains(text, "kept "+c.kept) {
				t.Errorf("kept:\n%s", text)
			}
			if c.note == "" {
				for name := range c.env {
					if strings.Contains(text, "note: "+name) {
						t.Errorf("a note:\n%s", text)
					}
				}
			} else if !strings.Contains(text, c.note) {
				t.Errorf("no %q in:\n%s", c.note, text)
			}
		})
	}
}

// Every variable stands in the documentation.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/nccl.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		if !strings.Contains(string(text), "`"+r.name+"`") {
			t.Errorf("docs/nccl.md has no %s", r.name)
		}
	}
}
