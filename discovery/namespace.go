package discovery

import (
	"net/netip"
	"slices"
	"strings"
)

// This file tells jobs of one name from each other, which live in several namespaces of one cluster: the names of their pods are the same, and on the hosts'
// network so may be the machine and the port where they meet.

// namespaceFile is where kubelet mounts the namespace for a pod's account, and resolverFile where it writes in which namespaces short names are looked up.
const (
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
	resolverFile  = "/etc/resolv.conf"
)

// within says in which namespace Host is a name.
func (f Finding) within(r *reader) Finding {
	_, notIP := netip.ParseAddr(f.Host)
	podsAll := slices.Contains(inCluster, f.Rule) || f.JobID == "" && slices.Contains(byManifest, f.Rule)
	byName := notIP != nil && f.Host != "" && strings.Count(f.Host, ".") < 2
	if f.Rule == paddleLaunch.name && f.JobID != "" { // the first pod is told its own address, where the others have its name
		byName = true
	}
	if byName && podsAll && r.inKubernetes() {
		f.Namespace = r.namespace()
	}
	return f
}

// inCluster are platforms all of whose nodes are pods of one namespace.
var inCluster = []string{pytorchJob.name, dlc.name, xgboostJob.name, jaxJob.name, tfJob.name, paddleOperator.name, paddleLaunch.name, volcano.name,
	trainJobTorch.name, trainJobJAX.name, trainJobXGBoost.name, jobSet.name, indexed.name, statefulSet.name}

// byManifest are those whose variables a manifest may have set: what looks up a name there is in one namespace, but an id that it gives is a user's own.
var byManifest = []string{pet.name, generic.name}

// namespace is that of this pod; "": nothing says it.
func (r *reader) namespace() string {
	if b, err := r.host.ReadFile(namespaceFile); err == nil && isLabel(strings.TrimSpace(string(b))) {
		return strings.TrimSpace(string(b))
	}
	b, err := r.host.ReadFile(resolverFile)
	if err != nil || len(b) > maxFile {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "search" {
			continue
		}
		for _, domain := range words[1:] { // "llm.svc.cluster.local"; a node's own domains may be before it
			if name, rest, _ := strings.Cut(domain, "."); isLabel(name) && name != "svc" && strings.HasPrefix(rest, "svc.") {
				return name
			}
		}
	}
	return ""
}

// isLabel reports whether text can be a namespace's name (RFC 1123).
func isLabel(text string) bool {
	return text != "" && len(text) <= 63 && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}
