// Package matrix loses workers, agents, machines and networks, one after the other, and checks that each job ends in a
// right world or a right exit on every node.
//
// A case is a function of a stage: a network of its own, made of namespaces, with hosts that have their own addresses,
// names and processes, the real muster on them, and real PyTorch under it (testdata/train.py, gloo on CPU). The
// workers tell of each step in one book, with the clock that all namespaces share. At the end of every case an oracle
// reads that book (oracle_test.go):
//
//   - every round was one world: each rank once, and every worker saw the size that the others saw;
//   - no worker of an older round made a step, or was alive, when a newer round began;
//   - no two live workers had one GPU slot;
//   - nothing is left in any namespace when the agents have ended.
//
// The table of scenes says which are played over etcd, too, besides those for which there must be one: a few of them always, the others with -all (make
// matrix). The etcd is on a machine of its own, which stays with the hosts that are not cut off.
//
// go test ./test/matrix plays all cases, several at once; it needs root, nft and ip. With -figures N it plays those that
// torchrun survives N times under muster and under torchrun, one at a time, and prints how long each took to notice the
// loss, and to train again.
package matrix
