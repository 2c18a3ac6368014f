package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/allow"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/rendezvous/store"
	"github.com/muster-run/muster/rendezvous/tcpstore"
)

func storeCommand() *cli.Command {
	c := &cli.Command{
		Name: "store", Usage: "the c10d store alone: serve one, or look into one",
		Description: "PyTorch's TCPStore and these commands see the same keys:\n\n" +
			"  muster store serve --port 29400\n" +
			"  muster store get --endpoint host0:29400 --timeout 5s my/key",
		Subcommands: []*cli.Command{serveCommand()},
	}
	for _, v := range verbs {
		c.Subcommands = append(c.Subcommands, v.command())
	}
	return c
}

func serveCommand() *cli.Command {
	at := launcher.DefaultPort
	return &cli.Command{
		Name: "serve", Usage: "serve an empty store until a signal comes", ArgsUsage: "[flags]",
		Description: "  muster store serve --port 29400",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "host", Usage: "`ADDR` to listen on; all if not given"},
			&cli.GenericFlag{Name: "port", Value: number{&at, 0, 65535}, Usage: "`PORT` to listen on (29400)"},
			&cli.BoolFlag{Name: "inherit", Hidden: true, Usage: "listen on file descriptor 3"},
			&cli.StringFlag{Name: "allow", Hidden: true, Usage: "`FILE` with the addresses and networks that are let in, which may grow (everybody)"},
		},
		Action: func(x *cli.Context) error { return serve(x, at) },
	}
}

func serve(x *cli.Context, port int) error {
	ln, err := listener(x, port)
	if err != nil {
		return err
	}
	log := newLog(os.Stderr)
	if !x.Bool("inherit") {
		log.Info("store at " + ln.Addr().String())
	}
	server := &tcpstore.Server{Store: &store.Memory{}, Log: log}
	if path := x.String("allow"); path != "" {
		guests := &guests{path: path}
		if err := guests.read(); err != nil {
			return err
		}
		server.Admits = guests.has
	}
	if x.Bool("inherit") {
		outlive()
	} else {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		defer context.AfterFunc(ctx, func() { server.Close() })()
	}
	if err := server.Serve(ln); !errors.Is(err, tcpstore.ErrServerClosed) {
		return err
	}
	return nil
}

// guests are who is let in, as a file says that may grow. They are asked by one goroutine.
type guests struct {
	path string
	size int64 // of the file, as it was read
	list allow.List
}

func (g *guests) read() error {
	text, err := os.ReadFile(g.path)
	if err != nil {
		return err
	}
	r, err := allow.Parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", g.path, err)
	}
	g.size, g.list = int64(len(text)), r.List
	return nil
}

// has looks into the file again for who is not on the list, if there is more in it.
func (g *guests) has(a netip.Addr) bool {
	if g.list.Has(a) {
		return true
	}
	i, err := os.Stat(g.path)
	return err == nil && i.Size() != g.size && g.read() == nil && g.list.Has(a)
}

// outlive lets this process, which serves workers, live through the signals that a scheduler sends to all processes of a job: the workers may
// need it in their time to end. The agent kills it when they are gone, the kernel when the first process is.
func outlive() {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
}

// inherited is the descriptor by which the agent hands down a port that it has bound.
const inherited = 3

func listener(x *cli.Context, port int) (net.Listener, error) {
	if x.Bool("inherit") {
		return net.FileListener(os.NewFile(inherited, "listener"))
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(x.String("host"), strconv.Itoa(port)))
	if err != nil {
		return nil, &launcher.Error{Code: job.ExitSystem, Err: fmt.Errorf("store: %w", err), Hint: "choose another --port"}
	}
	return ln, nil
}

// A verb is one command against a store.
type verb struct {
	name, args, usage string
	least, most       int // number of arguments
	do                func(ctx context.Context, c *tcpstore.Client, args []string) (answer string, err error)
}

var verbs = []verb{
	{"get", "KEY", "print a value; waits for the key", 1, 1, func(ctx context.Context, c *tcpstore.Client, a []string) (string, error) {
		v, err := c.Get(ctx, a[0])
		return string(v), err
	}},
	{"set", "KEY VALUE", "store a value", 2, 2, func(ctx context.Context, c *tcpstore.Client, a []string) (string, error) {
		return "", c.Set(ctx, a[0], []byte(a[1]))
	}},
	{"add", "KEY [N]", "add N, or 1, to a number and print the sum", 1, 2, addVerb},
	{"append", "KEY VALUE", "lengthen a value", 2, 2, func(ctx context.Context, c *tcpstore.Client, a []string) (string, error) {
		return "", c.Append(ctx, a[0], []byte(a[1]))
	}},
	{"compare-set", "KEY EXPECTED NEW", "store NEW where EXPECTED is, and print what is there then", 3, 3, func(ctx context.Context, c *tcpstore.Client, a []string) (string, error) {
		v, err := c.CompareSet(ctx, a[0], []byte(a[1]), []byte(a[2]))
		return string(v), err
	}},
	{"check", "KEY...", "exit 0 if all keys are there, else 1", 1, 1 << 16, checkVerb},
	{"wait", "KEY...", "wait until all keys are there", 1, 1 << 16, func(ctx context.Context, c *tcpstore.Client, a []string) (string, error) {
		return "", c.Wait(ctx, a...)
	}},
	{"delete", "KEY", "remove a key; exit 1 if there was none", 1, 1, deleteVerb},
	{"keys", "", "list all keys", 0, 0, keysVerb},
	{"num-keys", "", "count the keys", 0, 0, func(ctx context.Context, c *tcpstore.Client, _ []string) (string, error) {
		n, err := c.NumKeys(ctx)
		return strconv.FormatInt(n, 10), err
	}},
}

func addVerb(ctx context.Context, c *tcpstore.Client, a []string) (string, error) {
	delta := int64(1)
	if len(a) == 2 {
		var err error
		if delta, err = strconv.ParseInt(a[1], 10, 64); err != nil {
			return "", wrong("store add: %q is no number", a[1])
		}
	}
	sum, err := c.Add(ctx, a[0], delta)
	return strconv.FormatInt(sum, 10), err
}

func checkVerb(ctx context.Context, c *tcpstore.Client, a []string) (string, error) {
	there, err := c.Check(ctx, a...)
	if err == nil && !there {
		return "", exit(1)
	}
	return "", err
}

func deleteVerb(ctx context.Context, c *tcpstore.Client, a []string) (string, error) {
	was, err := c.Delete(ctx, a[0])
	if err == nil && !was {
		return "", exit(1)
	}
	return "", err
}

func keysVerb(ctx context.Context, c *tcpstore.Client, _ []string) (string, error) {
	keys, err := c.ListKeys(ctx)
	return strings.Join(keys, "\n"), err
}

func (v verb) command() *cli.Command {
	endpoint, timeout := net.JoinHostPort("localhost", strconv.Itoa(launcher.DefaultPort)), 10*time.Second
	return &cli.Command{
		Name: v.name, Usage: v.usage, ArgsUsage: strings.TrimSpace("[flags] " + v.args),
		Description: "  muster store " + strings.TrimSpace(v.name+" --endpoint host0:29400 "+v.args),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "endpoint", Destination: &endpoint, Usage: "`HOST:PORT` of the store (localhost:29400)"},
			&cli.GenericFlag{Name: "timeout", Value: seconds{&timeout}, Usage: "`TIME` for all of it (10s)"},
		},
		Action: func(x *cli.Context) error {
			if n := x.NArg(); n < v.least || n > v.most {
				return wrong("store %s: takes %s", v.name, orNothing(v.args))
			}
			return v.run(endpoint, timeout, x.Args().Slice())
		},
	}
}

func orNothing(args string) string {
	if args == "" {
		return "no argument"
	}
	return args
}

func (v verb) run(endpoint string, timeout time.Duration, args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	client, err := tcpstore.Dial(ctx, endpoint, tcpstore.Options{})
	if err != nil {
		return &launcher.Error{Code: job.ExitStore, Err: fmt.Errorf("store at %s: %s", endpoint, tcpstore.Cause(err))}
	}
	defer client.Close()
	answer, err := v.do(ctx, client, args)
	var code exit
	var usage usageError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &launcher.Error{Code: job.ExitPeers, Err: fmt.Errorf("%s at %s: not there after %v", strings.Join(args, " "), endpoint, timeout)}
	case err != nil && !errors.As(err, &code) && !errors.As(err, &usage):
		return &launcher.Error{Code: job.ExitStore, Err: fmt.Errorf("store at %s: %w", endpoint, err)}
	case err != nil:
		return err
	}
	if answer != "" {
		fmt.Println(answer)
	}
	return nil
}
