package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/launcher/pid1/early"
	"github.com/muster-run/muster/remote"
	"github.com/muster-run/muster/timerslack"
)

// A stand is a program of ssh's that muster stands for: by a link that took its place, or as a command.
type stand struct {
	name, doc string // no doc: it is not for people
	usage     string // of what it takes those that count
	run       func(args []string) error
}

func stands() []stand {
	return []stand{
		{"sshd", "run what other nodes of the job ask for, in the place of ssh's server", "[-p PORT] [-f FILE] [-o Port=PORT]", sshd},
		{"ssh", "run a command on another node, where muster is sshd", "[-p PORT] [-i FILE] [-F FILE] [-n] [-o Port=PORT] [-o HostName=HOST] HOST command...", ssh},
		{"pdsh", "run a command on several nodes, where muster is sshd", "[-S] [-f N] [-x HOSTS] [-N] -w HOSTS command...", pdsh},
		{"sshd-session", "", "", sshdSession},
	}
}

// standIn runs a command line of one of those programs, or returns false if it is none.
func standIn(args []string) (error, bool) {
	name := filepath.Base(args[0])
	if !isStand(name) {
		if linked(args) || len(args) < 2 {
			return nil, false
		}
		args = args[1:]
		name = args[0]
	}
	i := slices.IndexFunc(stands(), func(s stand) bool { return s.name == name })
	if i < 0 {
		return nil, false
	}
	if isSet(bypass) {
		return becomeReal(name, args), true
	}
	s := stands()[i]
	if s.doc != "" && len(args) == 2 && args[1] == "--help" {
		fmt.Printf("muster %s: %s\n\n  muster %s %s\n\nOther options of the real one are taken, and change nothing: docs/no-ssh.md.\n", s.name, s.doc, s.name, s.usage)
		return nil, true
	}
	err := s.run(args[1:])
	if ours := (exit)(0); err == nil || errors.As(err, &ours) {
		return err, true
	}
	fmt.Fprintf(os.Stderr, "muster: %s: %v\n", name, err)
	return exit(255), true // ssh's own failures, which are none of a command's codes
}

func isStand(name string) bool {
	return slices.ContainsFunc(stands(), func(s stand) bool { return s.name == name })
}

// becomeReal becomes the next program of a name in PATH that is not muster.
func becomeReal(name string, args []string) error {
	for _, p := range launcher.Programs(name, os.Environ()) {
		if !p.Muster {
			return fmt.Errorf("%s: %w", p.Path, timerslack.Exec(p.Path, args, os.Environ()))
		}
	}
	return wrong("%s is set, and PATH has no %s but muster", bypass, name)
}

// homes are the directories in which ssh's files may be.
func homes() (dirs []string) {
	dirs = []string{os.Getenv("HOME")}
	if u, err := user.Current(); err == nil {
		dirs = append(dirs, u.HomeDir)
	}
	dirs = append(dirs, "/root")
	slices.Sort(dirs[2:])
	var once []string
	for _, d := range dirs {
		if d != "" && !slices.Contains(once, d) {
			once = append(once, d)
		}
	}
	return once
}

// tokenFileVariable names the file with the token, as --token-file does.
const tokenFileVariable = "MUSTER_TOKEN_FILE"

// secrets are the keys that this node has: of the token if there is one, else of ssh's private keys, which an operator mounts into all
// pods of a job. Those of a server open what ssh's would open; files are further private keys, which need not be there.
func secrets(server bool, files ...string) (keys []remote.Key, err error) {
	token, from, err := launcher.ReadToken(os.Getenv(launcher.TokenVariable), os.Getenv(tokenFileVariable))
	if err != nil {
		return nil, err
	}
	if token != "" {
		return []remote.Key{remote.NewKey([]byte(token), from)}, nil
	}
	var looked []string
	for _, dir := range homes() {
		dir = filepath.Join(dir, ".ssh")
		found, dirErr := remote.KeysIn(dir)
		keys, err, looked = append(keys, found...), errors.Join(err, dirErr), append(looked, dir)
	}
	for _, file := range files {
		if key, fileErr := remote.KeyOf(file); fileErr == nil && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	if server {
		keys = slices.DeleteFunc(keys, func(k remote.Key) bool {
			why := remote.Admitted(k.From)
			if why != nil {
				err = errors.Join(err, fmt.Errorf("%s opens nothing here: %w", k.From, why))
			}
			return why != nil
		})
	}
	if len(keys) == 0 {
		return nil, errors.Join(fmt.Errorf("no secret that the job's nodes share: neither %s nor %s is set, and there is no private key in %s that ssh would use; "+
			"give all nodes the same token (openssl rand -hex 32) by a Secret", launcher.TokenVariable, tokenFileVariable, strings.Join(looked, ", ")), err)
	}
	return keys, nil
}

// sshd stands for ssh's server.
func sshd(args []string) error {
	o, err := getopt("46C:E:b:c:f:g:h:k:o:p:u:DGQRTVdeiqrt", args)
	if err != nil {
		return err
	}
	switch {
	case len(o.rest) > 0:
		return fmt.Errorf("%q is too much", o.rest[0])
	case o.has('V'), o.has('t'), o.has('T'), o.has('G'):
		fmt.Println("muster " + version() + " in sshd's place")
		return nil
	case o.has('i'):
		return errors.New("-i is not here: muster's sshd listens itself")
	case os.Getpid() == 1:
		return status(pid1.Init(again("sshd", args...), pid1.InitOptions{Group: false}))
	case !o.has('D') && os.Getenv(inBackground) == "":
		return background(args)
	}
	return listen(o)
}

// again is the command line that starts this program once more, as one of those that it stands for.
func again(name string, args ...string) []string {
	self, err := os.Executable()
	if err != nil {
		self = "/proc/self/exe"
	}
	return append([]string{self, name}, args...)
}

// inBackground is the variable that tells a server that its parent waits until it listens.
const inBackground = "MUSTER_SSHD_BACKGROUND"

// background starts the server as a process of its own session, and returns when it listens, as ssh's does without -D.
func background(args []string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	argv := again("sshd", args...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), inBackground+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{w}
	err = timerslack.Given(cmd.Start)
	w.Close()
	if err != nil {
		return err
	}
	if n, _ := r.Read(make([]byte, 1)); n == 0 { // it said why
		return exit(255)
	}
	return nil
}

// sshdGrace is from TERM to KILL for a command whose caller is gone: more than a job takes to stop.
const sshdGrace = 40 * time.Second

// listen serves until it is told to end.
func listen(o options) error {
	file := cmp.Or(o.last('f'), "/etc/ssh/sshd_config")
	port := cmp.Or(o.last('p'), o.setting("Port"), configured(file, "Port", ""), "22")
	keys, err := secrets(true, cmp.Or(o.last('h'), o.setting("HostKey"), configured(file, "HostKey", "")))
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return fmt.Errorf("listen on port %s: %w", port, err)
	}
	say := func(format string, args ...any) {
		if !o.has('q') {
			fmt.Fprintf(os.Stderr, "muster: sshd: "+format+"\n", args...)
		}
	}
	say("listening on port %s for nodes that have the secret of %s", port, from(keys))
	if os.Getenv(inBackground) != "" {
		ready := os.NewFile(3, "parent")
		_, _ = ready.Write([]byte{1})
		ready.Close()
		os.Unsetenv(inBackground)
	}
	ctx, stop := untilTold()
	defer stop()
	s := remote.Server{Keys: keys, Prepare: session, Grace: sshdGrace, Say: say, Files: func(dir string) string { return carriedVariable + "=" + dir }}
	if err := s.Serve(ctx, ln); err != nil {
		return err
	}
	return exit(job.ExitTERM)
}

// from says what keys were made of.
func from(keys []remote.Key) string {
	var names []string
	for _, k := range keys {
		names = append(names, k.From)
	}
	return strings.Join(names, ", ")
}

// untilTold is a context that ends when this process is told to end.
func untilTold() (context.Context, context.CancelFunc) {
	if early.Drop() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return ctx, cancel
	}
	return signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
}

// session is the process of a command: muster as an init for it, who adopts what it orphans and waits for it.
func session(c remote.Command) *exec.Cmd {
	argv := []string{"/bin/sh", "-c", string(c.Line)}
	if len(c.Line) == 0 {
		argv = append(again("")[:1], remote.Strings(c.Args)...)
	}
	cmd := exec.Command(again("")[0])
	cmd.Args = append([]string{"sshd-session"}, argv...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// sshdSession is that process.
func sshdSession(argv []string) error {
	if len(argv) == 0 {
		return errors.New("it is sshd's own")
	}
	opt := pid1.InitOptions{Group: true, Subreaper: true, Linger: time.Hour, ParentDeath: syscall.SIGTERM}
	return status(pid1.Init(argv, opt))
}

// A target is a node on which something is to be run.
type target struct {
	host string // as a person knows it
	addr string // host:port
}

// destination finds out where a host is, as ssh does.
func destination(o options, host string) (t target, err error) {
	if rest, ok := strings.CutPrefix(host, "ssh://"); ok {
		host = strings.TrimSuffix(rest, "/")
	}
	if _, name, ok := strings.Cut(host, "@"); ok { // whoever serves there runs it
		host = name
	}
	port := ""
	if name, p, err := net.SplitHostPort(host); err == nil && strings.Count(host, ":") == 1 {
		host, port = name, p
	}
	if host == "" || strings.ContainsAny(host, "/ \t\n") {
		return t, fmt.Errorf("%q is no host", host)
	}
	files := []string{"/etc/ssh/ssh_config"}
	for _, dir := range homes() {
		files = slices.Insert(files, len(files)-1, filepath.Join(dir, ".ssh", "config"))
	}
	if file := o.last('F'); file != "" {
		files = []string{file}
	}
	ask := func(name string) string {
		value := o.setting(name)
		for _, file := range files {
			value = cmp.Or(value, configured(file, name, host))
		}
		return value
	}
	name := strings.ReplaceAll(cmp.Or(ask("HostName"), host), "%h", host)
	return target{host, net.JoinHostPort(strings.Trim(name, "[]"), cmp.Or(o.last('p'), port, ask("Port"), "22"))}, nil
}

// ssh stands for ssh's client.
func ssh(args []string) error {
	const known = "1246AB:CD:E:F:GI:J:KL:MNO:P:Q:R:S:TVW:XYab:c:e:fgi:kl:m:no:p:qstvw:xy"
	o, err := getopt(known, args)
	if err != nil {
		return err
	}
	if o.has('V') {
		fmt.Fprintln(os.Stderr, "muster "+version()+" in ssh's place")
		return nil
	}
	if len(o.rest) == 0 {
		return errors.New("no host")
	}
	host := o.rest[0]
	more, err := getopt(known, o.rest[1:]) // ssh takes options behind the host, too
	if err != nil {
		return err
	}
	o.said = append(o.said, more.said...)
	for _, letter := range []byte("DLRWJNfs") {
		if o.has(letter) {
			return fmt.Errorf("-%c is not here: muster's ssh only runs commands", letter)
		}
	}
	if len(more.rest) == 0 {
		return errors.New("no command: muster's ssh only runs commands; for a shell there is kubectl exec")
	}
	t, err := destination(o, host)
	if err != nil {
		return err
	}
	keys, err := secrets(false, o.all('i')...)
	if err != nil {
		return err
	}
	if early.Drop() {
		return exit(job.ExitTERM)
	}
	var in io.Reader = os.Stdin
	if o.has('n') {
		in = nil
	}
	c := remote.Command{Line: []byte(strings.Join(more.rest, " "))}
	code, err := reach(context.Background(), "ssh", t, keys, c, remote.Streams{In: in, Out: os.Stdout, Err: os.Stderr})
	if err != nil {
		return fmt.Errorf("%s: %w", t.host, err)
	}
	return status(code)
}

// reach runs a command on a node, for which it waits.
func reach(ctx context.Context, as string, t target, keys []remote.Key, c remote.Command, s remote.Streams) (int, error) {
	patience, err := waitTime()
	if err != nil {
		return 0, err
	}
	limit, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("gave up after %v (MUSTER_JOIN_TIMEOUT)", patience))
	defer cancel()
	limit, giveUp := context.WithCancelCause(limit)
	defer giveUp(nil)
	told, done := seen()
	defer done()
	conn, err := remote.Reach(limit, t.addr, keys, func(why error) {
		fmt.Fprintf(told, "muster: %s: waiting for %s at %s: %v\n", as, t.host, t.addr, why)
		if errors.Is(why, syscall.ECONNREFUSED) && isThisNode(t.addr) {
			time.AfterFunc(min(patience, ownPatience), func() {
				giveUp(fmt.Errorf("%s is this node, where nobody runs sshd: start a link of that name to muster on it, too, or let a link named deepspeed start the job, which needs none here", t.host))
			})
		}
	})
	if err != nil {
		return 0, err
	}
	return conn.Run(ctx, c, s)
}

// ownPatience is how long this node's own sshd is waited for: its container is there already.
const ownPatience = 10 * time.Second

// isThisNode reports whether an address leads to this node.
func isThisNode(addr string) bool {
	at, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return false
	}
	if at.IP.IsLoopback() {
		return true
	}
	own, _ := net.InterfaceAddrs() // none, where nobody may know
	return slices.ContainsFunc(own, func(a net.Addr) bool {
		ip, ok := a.(*net.IPNet)
		return ok && ip.IP.Equal(at.IP)
	})
}

// seen is where people see what is said while a node is waited for: standard error, or where a caller throws that away, as DeepSpeed does with that of
// its first ssh (deepspeed/launcher/runner.py), the caller's own.
func seen() (io.Writer, func()) {
	mine, err := os.Stderr.Stat()
	null, nullErr := os.Stat(os.DevNull)
	if err != nil || nullErr != nil || !os.SameFile(mine, null) {
		return os.Stderr, func() {}
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/2", os.Getppid()), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil { // a socket, or another's
		return os.Stderr, func() {}
	}
	return f, func() { f.Close() }
}

// waitTime is how long nodes are waited for: as long as a job's.
func waitTime() (time.Duration, error) {
	patience := 15 * time.Minute
	if text := os.Getenv("MUSTER_JOIN_TIMEOUT"); text != "" {
		if err := (seconds{&patience}).Set(text); err != nil {
			return 0, fmt.Errorf("MUSTER_JOIN_TIMEOUT: %w", err)
		}
	}
	return patience, nil
}
