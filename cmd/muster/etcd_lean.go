//go:build !full

package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/cmd/muster/packed"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/rendezvous/store"
	"github.com/muster-run/muster/timerslack"
)

// The client for etcd is twice as large as all of muster, and would cost every process 7 ms of its start. So it is in another
// build of this program, which `make build` puts into this one, packed (carried). Where it is needed, the agent grows into that one.

// etcdOpener is what opens an etcd: the full build, which takes the place of this process. It returns if that cannot be.
func etcdOpener() func(launcher.EtcdJob) (store.Store, error) {
	err := grow(carried, "the client for etcd")
	return func(launcher.EtcdJob) (store.Store, error) { return nil, err }
}

// grow runs a packed program in place of this one, in memory alone, for what it has.
func grow(text, what string) error {
	if text == "" {
		return &launcher.Error{Code: job.ExitUsage, Err: errors.New("this muster was built without " + what),
			Hint: "`make build` builds one with it, or go build -tags full ./cmd/muster"}
	}
	program, err := unpack(text)
	if err == nil {
		err = timerslack.Exec(fmt.Sprintf("/proc/self/fd/%d", program.Fd()), os.Args, os.Environ())
	}
	return &launcher.Error{Code: job.ExitSystem, Err: fmt.Errorf("start the build of muster that has %s: %w", what, err),
		Hint: "is vm.memfd_noexec 2, or memory short? go build -tags full ./cmd/muster builds it as a file"}
}

func unpack(text string) (*os.File, error) {
	fd, err := unix.MemfdCreate("muster", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 all could be run
		fd, err = unix.MemfdCreate("muster", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, fmt.Errorf("a file in memory: %w", err)
	}
	program := os.NewFile(uintptr(fd), "muster")
	data, err := packed.Program(text)
	if err == nil {
		_, err = program.Write(data)
	}
	return program, err
}
