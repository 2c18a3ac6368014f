// Package interop trains with real frameworks under the real muster: on nodes that are network namespaces, a step each. The scripts
// (scripts/*.py) assert how many they are, and that all have the same parameters in the end.
//
// `make interop` plays all of them. What they need, python installs from PyPI, several GB. It needs root and ip.
package interop
