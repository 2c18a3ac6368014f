package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// Where a host has more than one network, its workers are told of the one by which it reaches the others, unless the user told them, or
// wants none of it. With one there is nothing to tell.
func TestNetworksOfWorkers(t *testing.T) {
	names, on := hosts(t)
	said := func(want func(host int) string, flags ...string) (all []string) {
		t.Helper()
		var programs []*program
		for host := range 2 {
			args := append([]string{"run", "--nnodes", "2", "--rdzv-endpoint", "10.77.0.1:29400", "--join-timeout", "1m"}, flags...)
			programs = append(programs, on(host, append(args, "--", "sh", "-c", `echo "gloo '$GLOO_SOCKET_IFNAME' rpc '$TP_SOCKET_IFNAME' nccl '$NCCL_SOCKET_IFNAME$NCCL_DEBUG'"`)...))
		}
		for host, p := range programs {
			w := want(host)
			p.ends(0, fmt.Sprintf("gloo '%s' rpc '%s' nccl ''", w, w))
			all = append(all, p.out.String())
		}
		return all
	}
	none := func(int) string { return "" }
	said(none)
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
	own := func(host int) string { return names[host] }
	said(own)
	said(none, "--nccl-tune", "off")
	for host, text := range said(own, "--nccl-tune", "explain") {
		if want := fmt.Sprintf("nccl: GLOO_SOCKET_IFNAME=%s: by %s this node reaches the others; it also has mine", names[host], names[host]); !strings.Contains(text, want) {
			t.Errorf("host %d does not say %q:\n%s", host, want, text)
		}
	}
}
