package main

import (
	"context"
	"net"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/horovod"
	"github.com/muster-run/muster/pmi"
)

// horovodCommand is the process by which the agent of the first node serves Horovod's rendezvous to the workers of all.
func horovodCommand() *cli.Command {
	var world, empty string
	return &cli.Command{
		Name: "horovod", Hidden: true, Usage: "serve Horovod's rendezvous to a world's workers; --framework horovod starts it", ArgsUsage: "[flags]",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "world", Destination: &world, Usage: "`MAPPING` of processes to nodes, as PMI_process_mapping has it"},
			&cli.StringFlag{Name: "empty", Destination: &empty, Usage: "`DIR` in which a file is until a worker has come"},
		},
		Action: func(*cli.Context) error { return serveHorovod(world, empty) },
	}
}

// serveHorovod listens on the first inherited descriptor.
func serveHorovod(world, empty string) error {
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
	if _, port, err := net.SplitHostPort(ln.Addr().String()); err == nil && empty != "" {
		s.Came = func() { _ = os.Remove(filepath.Join(empty, horovod.Empty(port))) }
	}
	for _, r := range w {
		for range r.Nodes {
			s.World = append(s.World, r.Procs)
		}
	}
	return s.Serve(context.Background(), ln)
}
