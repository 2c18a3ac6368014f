package main

import (
	"context"
	"net"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/pmi"
	"github.com/muster-run/muster/rendezvous/tcpstore"
)

// pmiCommand is the process by which the agent of a node serves PMI to its workers.
func pmiCommand() *cli.Command {
	var world, name, store string
	node := 0
	return &cli.Command{
		Name: "pmi", Hidden: true, Usage: "serve PMI-1 to a node's workers; --framework mpi starts it", ArgsUsage: "[flags]",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "world", Destination: &world, Usage: "`MAPPING` of processes to nodes, as PMI_process_mapping has it"},
			&cli.GenericFlag{Name: "node", Value: number{&node, 0, 1 << 24}, Usage: "`N` of the node in it"},
			&cli.StringFlag{Name: "name", Destination: &name, Usage: "`WORD` that names the key-value space"},
			&cli.StringFlag{Name: "store", Destination: &store, Usage: "`HOST:PORT` of the store by which the nodes exchange keys"},
		},
		Action: func(*cli.Context) error { return servePMI(world, node, name, store) },
	}
}

// servePMI listens on the first inherited descriptor, and writes to the next how far each worker has come.
func servePMI(world string, node int, name, store string) error {
	w, err := pmi.ParseWorld(world)
	if err != nil {
		return wrong("pmi: --world: %v", err)
	}
	if node >= w.Nodes() || name == "" || w.Nodes() > 1 && store == "" {
		return wrong("pmi: --node %d, --name %q and --store %q are not enough for the %d nodes of %s", node, name, store, w.Nodes(), world)
	}
	outlive()
	ln, err := net.FileListener(os.NewFile(inherited, "listener"))
	if err != nil {
		return err
	}
	stages := os.NewFile(inherited+1, "stages")
	s := &pmi.Server{World: w, Node: node, Name: name, Advanced: func(local int, r pmi.Record) {
		_ = r.Write(stages, local) // it only helps to explain how workers end
	}}
	if store != "" {
		client := tcpstore.New(store, tcpstore.Options{})
		defer client.Close()
		s.Store = client
	}
	return s.Serve(context.Background(), ln)
}
