package main

import (
	"context"
	"net"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/horovod"
	"github.com/muster-run/muster/pmi"
)

// horovodCommand is the process by which the agent of the first node serves Horovod's rendezvous to the workers of all.
func horovodCommand() *cli.Command {
	var world string
	return &cli.Command{
		Name: "horovod", Hidden: true, Usage: "serve Horovod's rendezvous to a world's workers; --framework horovod starts it", ArgsUsage: "[flags]",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "world", Destination: &world, Usage: "`MAPPING` of processes to nodes, as PMI_process_mapping has it"},
		},
		Action: func(*cli.Context) error { return serveHorovod(world) },
	}
}

// serveHorovod listens on the first inherited descriptor.
func serveHorovod(world string) error {
	w, err := pmi.ParseWorld(world)
	if err != nil {
		return wrong("horovod: --world: %v", err)
	}
	outlive()
	ln, err := net.FileListener(os.NewFile(inherited, "listener"))
	if err != nil {
		return err
	}
	log := newLog(os.Stderr)
	s := &horovod.Server{Log: func(text string) { log.Warn("horovod: " + text) }}
	for _, r := range w {
		for range r.Nodes {
			s.World = append(s.World, r.Procs)
		}
	}
	return s.Serve(context.Background(), ln)
}
