package cluster

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/muster-run/muster/test/stage"
)

const pause = registry + "pause:3.10.1"

// home gives a node what programs write outside of its directory. The kernel's settings that kubelet makes are the machine's, for all; so it
// makes them in files that lie over them.
const home = `
mount --make-rshared /
mount -t tmpfs tmpfs /run
mkdir -p /run/lock /run/tune
for at in /var/lib/kubelet /var/lib/containerd /var/lib/cni /var/log; do
	mkdir -p $at $1$at
	mount --bind $1$at $at
done
for key in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	cat /proc/sys/$key > /run/tune/${key##*/}
	mount --bind /run/tune/${key##*/} /proc/sys/$key
done
echo 1 > /proc/sys/net/ipv4/ip_forward
for at in /sys/fs/cgroup/*/; do
	mkdir -p $at$2
done
`

const containerdConfig = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "%s"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "%s/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "/usr/sbin/runc"
`

const cniConfig = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "mtu": 1400,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.%d.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %[1]s/ca.crt}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
cgroupRoot: /%[2]s
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
clusterDNS: [10.77.0.1]
clusterDomain: cluster.local
resolvConf: %[3]s/resolv.conf
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
volumePluginDir: /var/lib/kubelet/plugins
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 50Mi, nodefs.available: 1%%, imagefs.available: 1%%}
`

// node makes a machine a node of the cluster.
func (c *cluster) node(i int, archives []string) {
	c.t.Helper()
	name := fmt.Sprintf("node-%d", i+1)
	m := c.stage.Add(name, name)
	c.nodes = append(c.nodes, m)
	d, group := m.Dir, groups+"/"+name
	if out, err := m.Command("-m -u -i -n -p", "sh", "-euc", home, "sh", d, group).CombinedOutput(); err != nil {
		c.t.Fatalf("%s: %v: %s", name, err, out)
	}
	m.Network("ip", fmt.Sprintf("route add 10.244.%d.0/24 via 10.77.0.%d\n", 2-i, 3-i))
	c.write(d+"/containerd.toml", fmt.Sprintf(containerdConfig, pause, d))
	c.write(d+"/cni/pods.conflist", fmt.Sprintf(cniConfig, i+1))
	c.write(d+"/kubelet.yaml", fmt.Sprintf(kubeletConfig, c.plane.Dir, group, d))
	c.write(d+"/resolv.conf", "")

	log := func(name string) []string { return []string{"LOG=" + filepath.Join(d, name+".log")} }
	c.run(m, log("containerd"), "containerd", "--config", d+"/containerd.toml")
	c.until("containerd answers", func() bool { _, err := ctr(m, "version"); return err == nil })
	for _, file := range archives {
		if said, err := ctr(m, "images", "import", file); err != nil {
			c.t.Fatalf("%s: %s: %v: %s", name, file, err, said)
		}
	}
	c.run(m, log("kubelet"), "kubelet", "--config="+d+"/kubelet.yaml", "--kubeconfig="+c.plane.Dir+"/"+name+".conf", "--hostname-override="+name, "--node-ip="+m.Addr)
	c.run(m, log("kube-proxy"), "kube-proxy", "--kubeconfig="+c.plane.Dir+"/admin.conf", "--hostname-override="+name, "--cluster-cidr=10.244.0.0/16", "--proxy-mode=iptables",
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0")
}

// ctr asks a node's containerd.
func ctr(m *stage.Machine, args ...string) (string, error) {
	out, err := m.Command("-m -u -i -n -p", append([]string{"ctr", "--address", "/run/containerd/containerd.sock", "-n", "k8s.io"}, args...)...).CombinedOutput()
	return string(out), err
}

func (c *cluster) read(file string) string {
	c.t.Helper()
	text, err := os.ReadFile(file)
	c.fatal(err)
	return string(text)
}

func (c *cluster) write(file, text string) {
	c.t.Helper()
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o644)
	}
	c.fatal(err)
}
