// Package peers tries muster check --peers between machines, which are network namespaces.
package peers
