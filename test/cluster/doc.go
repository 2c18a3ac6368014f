// Package cluster plays jobs on a real Kubernetes cluster, which is made on this machine for as long as it takes: an etcd, the control plane
// and two nodes with kubelet and containerd, each in namespaces of its own, and the operators in pods. It needs root.
package cluster
