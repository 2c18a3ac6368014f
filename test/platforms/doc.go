// Package platforms holds the examples to what they say: from the manifests under examples it makes pods, as each operator and the kubelet
// make them, asks muster what it understands there, and plays the jobs on machines that are namespaces, with names that DNS has late.
//
// The models of the operators are held against what real ones made of their jobs (discovery/testdata/platforms).
package platforms
