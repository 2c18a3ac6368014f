package matrix

import (
	"fmt"
	"strings"
	"time"
)

// Jobs that meet in an etcd.

// etcd starts one with a member on each of these hosts.
func (s *stage) etcd(hosts ...*host) (members []*program) {
	s.t.Helper()
	var all []string
	for _, h := range hosts {
		all = append(all, fmt.Sprintf("%s=http://%s:2380", h.Name, h.Addr))
	}
	for _, h := range hosts {
		members = append(members, h.run(strings.Fields(fmt.Sprintf("etcd --name %s --data-dir %s/%s/etcd --initial-cluster %s"+
			" --listen-peer-urls http://%[5]s:2380 --initial-advertise-peer-urls http://%[5]s:2380"+
			" --listen-client-urls http://%[5]s:2379 --advertise-client-urls http://%[5]s:2379", h.Name, s.Dir, h.Own, strings.Join(all, ","), h.Addr))...))
	}
	for _, h := range hosts {
		s.says(h, "ready to serve client requests")
	}
	return members
}

const inEtcd = " --rdzv-backend etcd --rdzv-endpoint h0:2379,h1:2379,h2:2379"

// A member of the etcd dies, and then the node that leads the job. The spare finds its place in what is left.
func etcdMemberDies(s *stage) {
	s.add(6)
	members := s.etcd(s.hosts[:3]...)
	s.start("--nnodes 2 --spares 1"+inEtcd, s.hosts[3:]...)
	s.world(2)
	s.die(s.hosts[0])
	s.goesOn()
	lost, _ := s.worker(0)
	s.kill(lost, lost.first())
	s.world(2)
	s.finish(others(s.hosts[3:], lost)...)
	members[1].end()
	members[2].end()
}

// The etcd cannot be reached for half a minute, and no worker notices.
func etcdAway(s *stage) {
	s.add(5)
	members := s.etcd(s.hosts[:3]...)
	s.start("--nnodes 2"+inEtcd, s.hosts[3:]...)
	s.world(2)
	s.cut(s.hosts[:3]...)
	<-time.After(30 * time.Second)
	s.goesOn()
	s.heal()
	s.goesOn()
	s.finish(s.hosts[3:]...)
	for _, m := range members {
		m.end()
	}
}

// The node that leads is cut off, and comes back. The others know where to meet.
func leaderCutOff(s *stage) {
	s.add(3)
	members := s.etcd(s.hosts[0])
	s.start("--nnodes 1:2 --rdzv-backend etcd --rdzv-endpoint h0:2379"+elastic, s.hosts[1:]...)
	s.world(2)
	lost, _ := s.worker(0)
	s.cut(lost)
	s.world(1)
	s.heal()
	s.world(2)
	s.finish(s.hosts[1:]...)
	members[0].end()
}
