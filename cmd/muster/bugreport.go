package main

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/control"
	"github.com/muster-run/muster/evidence"
	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/report"
)

func bugreportCommand() *cli.Command {
	var a agent
	var output string
	return &cli.Command{
		Name: "bugreport", Usage: "pack what may explain a running job's behaviour, without its secrets", ArgsUsage: "[flags]",
		Description: "The journal, the status, the environment, and what the machine says of itself. Look into it before you pass it on:\n" +
			"what is masked is what has the name or the form of a secret.\n\n" +
			"  kubectl exec POD -- muster bugreport --output - >report.tar.gz",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Destination: &output, Usage: "`FILE` for the archive, - for standard output; else muster-bugreport-*.tar.gz here"},
		}, a.flags()...),
		Action: func(x *cli.Context) error {
			if x.Args().Present() {
				return wrong("bugreport: takes no arguments, got %q", x.Args().First())
			}
			return bugreport(&a, output)
		},
	}
}

// bugreportTime is for a status of a large world, and a journal.
const bugreportTime = 10 * time.Second

// bugreport writes the archive. Where an agent does not answer it holds what the machine says, and the error.
func bugreport(a *agent, output string) error {
	host, _ := os.Hostname() // a name for people
	now := time.Now().UTC()
	name := fmt.Sprintf("muster-bugreport-%s-%s", strings.ReplaceAll(host, "/", "-"), now.Format("20060102-150405"))
	ctx, cancel := context.WithTimeout(context.Background(), bugreportTime)
	defer cancel()
	c, err := a.find(ctx)
	if err != nil {
		return err
	}
	r := launcher.BugReport{PID: os.Getpid()}
	failed := c.Ask(ctx, control.Request{Do: "bugreport"}, &r)
	if failed != nil {
		r.Parts = []launcher.Part{{Name: "error.txt", Data: []byte(failed.Error() + "\n")}}
	}
	where, err := saved(cmp.Or(output, name+".tar.gz"), func(w io.Writer) error {
		return pack(w, name, now, append(r.Parts, machine(r.PID)...))
	})
	switch {
	case err != nil:
		return &launcher.Error{Code: absent, Err: fmt.Errorf("bug report: %w", err), Hint: "say where it can be written with --output"}
	case failed != nil:
		return &launcher.Error{Code: absent, Err: fmt.Errorf("%s has the machine's part only: %w", where, failed)}
	}
	fmt.Fprintf(os.Stderr, "muster: %s has what may explain this job; look into it before you pass it on\n", where)
	return nil
}

// machine is what the kernel and the drivers say of themselves and of the agent, read by this process: a broken driver keeps its reader for ever.
func machine(pid int) (parts []launcher.Part) {
	mask := report.NewMask(os.Environ())
	for _, f := range evidence.Facts("/", pid) {
		parts = append(parts, launcher.Part{Name: path.Join("machine", f.Path), Data: []byte(mask.Text(f.Text))})
	}
	shm := evidence.SharedMemory()
	return append(parts, launcher.Part{Name: "machine/space.txt", Data: []byte(shm.String() + "\n")})
}

// saved lets write fill a new file, which nobody else may read, or standard output.
func saved(name string, write func(io.Writer) error) (where string, err error) {
	if name == "-" {
		if isTerminal(os.Stdout) {
			return "", errors.New("standard output is a terminal")
		}
		return "standard output", write(os.Stdout)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		os.Remove(name)
		return "", err
	}
	return name, nil
}

// pack writes parts as an archive, all in one directory.
func pack(w io.Writer, dir string, at time.Time, parts []launcher.Part) error {
	zip := gzip.NewWriter(w)
	to := tar.NewWriter(zip)
	for _, p := range parts {
		head := &tar.Header{Name: path.Join(dir, p.Name), Mode: 0o600, Size: int64(len(p.Data)), ModTime: at}
		if err := to.WriteHeader(head); err != nil {
			return err
		}
		if _, err := to.Write(p.Data); err != nil {
			return err
		}
	}
	return errors.Join(to.Close(), zip.Close())
}
