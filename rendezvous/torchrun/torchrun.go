// Package torchrun lets a node of ours take part in the rendezvous of torchrun's agents, through the state that they
// share in a c10d store.
//
// It is what a job needs while it moves from torchrun to muster host by host. The state is a Python pickle; of that
// language the package reads what states are made of, and nothing that could run.
package torchrun
