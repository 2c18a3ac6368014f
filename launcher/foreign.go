package launcher

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-run/muster/discovery"
	"github.com/muster-run/muster/job"
)

// This file is how those who look on find each other, on a port of their own: by what the command that they look at was told of its
// nodes, and by what the platform says.

// foreignFlags are flags of other launchers that say where a job's nodes meet, by the name of ours.
var foreignFlags = map[string]string{
	"nnodes": "nnodes", "num-machines": "nnodes",
	"node-rank": "node-rank", "machine-rank": "node-rank",
	"rdzv-endpoint": "rdzv-endpoint", "rdzv-id": "rdzv-id",
	"master-addr": "master-addr", "main-process-ip": "master-addr",
	"master-port": "master-port", "main-process-port": "master-port",
}

// foreign is what a command line says by those flags. The first of each counts: what follows may be the script's own.
func foreign(argv []string) map[string]string {
	said := map[string]string{}
	for i, arg := range argv {
		name, isFlag := strings.CutPrefix(arg, "--")
		name, value, joined := strings.Cut(name, "=")
		ours := foreignFlags[strings.ReplaceAll(name, "_", "-")]
		if !isFlag || ours == "" || said[ours] != "" {
			continue
		}
		if !joined && i+1 < len(argv) {
			value = argv[i+1]
		}
		said[ours] = value
	}
	return said
}

// learn completes c by what the command says. What was said to us counts, but for an endpoint that may be meant for others.
func (c Config) learn() Config {
	said := foreign(c.Argv)
	if least, nodes, err := job.ParseNodes(said["nnodes"]); err == nil && c.Nodes == 0 {
		c.Least, c.Nodes = least, nodes
	}
	if rank, err := strconv.Atoi(said["node-rank"]); err == nil && c.NodeRank < 0 {
		c.NodeRank = rank
	}
	if id := said["rdzv-id"]; c.JobID == "" && id != "none" {
		c.JobID = id
	}
	if !c.meetsOnItsOwn() && said["rdzv-endpoint"]+said["master-addr"] != "" {
		c.Endpoint = said["rdzv-endpoint"]
	}
	if c.Endpoint == "" {
		c.MasterAddr = said["master-addr"]
		c.MasterPort, _ = strconv.Atoi(said["master-port"])
	}
	return c
}

// meetsOnItsOwn reports whether the endpoint is one for us, not for the command. A variable may be meant for a `muster run` inside.
func (c Config) meetsOnItsOwn() bool {
	return c.Endpoint != "" && strings.HasPrefix(c.by("rdzv-endpoint"), "-")
}

// planLookout settles where this node meets the others. An error says why it looks on alone; the plan is one for that.
func planLookout(c Config) (Plan, error) {
	own := c.meetsOnItsOwn()
	c = c.learn()
	p, err := lookoutPlan(c)
	if err == nil && p.Endpoint != "" && !own {
		p.Endpoint = beside(p.Endpoint, p.Spec.ID, c.trains())
	}
	if err == nil {
		return p, nil
	}
	c.Standalone, c.Nodes, c.Least, c.NodeRank = true, 0, 0, -1
	alone, _ := lookoutPlan(c) // an id cannot be wrong without an endpoint, but for one that was given
	if alone.Spec.ID == "" {
		alone.Spec.ID = "observe"
	}
	return alone, err
}

func lookoutPlan(c Config) (p Plan, err error) {
	found, err := find(c)
	if err != nil {
		return p, err
	}
	for _, step := range []func(Config, discovery.Finding, *Plan) error{planNodes, planSelf, planEndpoint, planID, planToken} {
		if err := step(c, found, &p); err != nil {
			return p, err
		}
	}
	if p.Etcd != nil {
		return p, fail(job.ExitUsage, "say --rdzv-endpoint HOST:PORT of a node to muster init", "the command meets in an etcd")
	}
	p.Spec.Self.Slots, p.Spec.Uneven = 1, true // in the world of those who look on
	return p, nil
}

// lowPort and ports are where ports of ours are: below those that the kernel gives to connections.
const (
	lowPort   = 20000
	lookPorts = 10000
)

// trains is where the command's workers may meet, which need not be where its launchers do; in digits, if anything.
func (c Config) trains() []string {
	return []string{foreign(c.Argv)["master-port"], c.Host.Getenv("MASTER_PORT"), c.Host.Getenv("PET_MASTER_PORT")}
}

// beside is a port on the same node as an endpoint, which all who look on find for themselves. It is neither the endpoint's own, nor one
// of those that are taken otherwise, nor one that torchrun takes when it is told of none.
func beside(endpoint job.Addr, id string, taken []string) job.Addr {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%s %s", endpoint, id)))
	port := lowPort + int(binary.BigEndian.Uint32(sum[:4])%lookPorts)
	_, own, _ := net.SplitHostPort(string(endpoint))
	for all := append([]string{own, "29400", "29500"}, taken...); slices.Contains(all, strconv.Itoa(port)); {
		port = lowPort + (port+1-lowPort)%lookPorts
	}
	return job.Addr(net.JoinHostPort(hostOf(endpoint), strconv.Itoa(port)))
}
