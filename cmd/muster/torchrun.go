package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher"
)

// torchrunFlags are torchrun's flags that mean little here. A script that is prefixed with muster instead of torchrun
// has them; each is taken with a note where it changes nothing, and refused where it would.
func torchrunFlags(c *launcher.Config) []cli.Flag {
	return []cli.Flag{
		&cli.GenericFlag{Name: "rdzv-conf", Hidden: true, Value: &rdzvConf{c: c}, Usage: "`KEY=VALUE,...` of torchrun's rendezvous: join_timeout, last_call_timeout, keep_alive_interval, keep_alive_max_attempt, is_host; cacert, cert, key, etcd_prefix"},
		&cli.GenericFlag{Name: "role", Hidden: true, Value: choice{new(string), "default"}, Usage: "`default` is the one role that workers have"},
		&cli.GenericFlag{Name: "monitor-interval", Hidden: true, Usage: "`TIME` changes nothing",
			Value: idle{seconds{new(time.Duration)}, c, "--monitor-interval changes nothing: muster hears at once when a worker ends"}},
		&cli.GenericFlag{Name: "start-method", Hidden: true, Usage: "`NAME` changes nothing",
			Value: idle{choice{new(string), "spawn fork forkserver"}, c, "--start-method changes nothing: every worker is a program of its own"}},
	}
}

// etcdFlags say how an etcd is entered. What they leave open etcdctl's variables may say.
func etcdFlags(e *launcher.Etcd) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "etcd-cacert", Destination: &e.CACert, Hidden: true, Usage: "`FILE` of the authorities that vouch for etcd (ETCDCTL_CACERT)"},
		&cli.StringFlag{Name: "etcd-cert", Destination: &e.Cert, Hidden: true, Usage: "`FILE` with this node's certificate for etcd (ETCDCTL_CERT)"},
		&cli.StringFlag{Name: "etcd-key", Destination: &e.Key, Hidden: true, Usage: "`FILE` with that certificate's key (ETCDCTL_KEY)"},
		&cli.StringFlag{Name: "etcd-user", Destination: &e.User, Hidden: true, Usage: "`NAME[:PASS]` for etcd (ETCDCTL_USER, ETCDCTL_PASSWORD)"},
		&cli.StringFlag{Name: "etcd-prefix", Destination: &e.Prefix, Hidden: true, Usage: "`PREFIX` of all keys in etcd; the job's name follows (/muster)"},
	}
}

// backend is torchrun's --rdzv-backend.
type backend struct{ c *launcher.Config }

func (v backend) Set(text string) error {
	if err := (choice{&v.c.Backend, "c10d static etcd etcd-v2"}).Set(text); err != nil {
		return err
	}
	switch text {
	case "static":
		v.c.Backend = "c10d"
	case "etcd-v2":
		v.c.Backend = "etcd"
		note(v.c, "--rdzv-backend etcd-v2: torchrun speaks etcd's API v2, muster its v3, as with etcd")
	}
	return nil
}

func (v backend) String() string {
	if v.c == nil {
		return ""
	}
	return v.c.Backend
}

// notHere are torchrun's flags that would change what a job does, and what to do without them.
var notHere = map[string]string{
	"run-path":           "leave it out: a script is run by python, as a program of its own",
	"virtual-local-rank": "workers see all GPUs and their true LOCAL_RANK",
	"signals-to-handle":  "muster handles TERM, INT and HUP",
	"shutdown-timeout":   "there is --grace",
}

// idle is a flag that is understood and changes nothing.
type idle struct {
	cli.Generic
	c    *launcher.Config
	note string
}

func (v idle) Set(text string) error {
	if err := v.Generic.Set(text); err != nil {
		return err
	}
	note(v.c, v.note)
	return nil
}

// note tells a person something once; flags are set twice.
func note(c *launcher.Config, text string) {
	if !slices.Contains(c.Notes, text) {
		c.Notes = append(c.Notes, text)
	}
}

// rdzvConf is torchrun's --rdzv-conf, KEY=VALUE,….
type rdzvConf struct {
	c    *launcher.Config
	text string
	keep keepAlive
}

// keepAlive is after how many signs of life that did not come, one each interval, torchrun gives a node up; 0: its defaults.
type keepAlive struct {
	interval time.Duration
	attempts int
}

// silence is how long that is, and how long muster's nodes can do with it.
func (k keepAlive) silence() (asked, can time.Duration) {
	every, most := cmp.Or(k.interval, 5*time.Second), cmp.Or(k.attempts, 3)
	asked = min(every, 24*time.Hour) * time.Duration(most)
	return asked, min(max(asked, job.MinNodeTimeout), job.MaxNodeTimeout)
}

// withoutEffect are keys of torchrun's backends (dynamic_rendezvous.py, c10d_rendezvous_backend.py,
// static_tcp_rendezvous.py) that say how its own rendezvous waits and looks after itself.
var withoutEffect = strings.Fields("close_timeout heartbeat heartbeat_timeout " +
	"read_timeout timeout store_type use_libuv rank")

func (v *rdzvConf) Set(text string) error {
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if !ok {
			return fmt.Errorf("%q is no KEY=VALUE", pair)
		}
		if err := v.one(key, value); err != nil {
			return err
		}
	}
	v.text = text
	if v.keep == (keepAlive{}) {
		return nil
	}
	asked, can := v.keep.silence()
	if v.c.KeepAlive = can; can != asked {
		note(v.c, fmt.Sprintf("--rdzv-conf keep_alive_interval and keep_alive_max_attempt are %v together; nodes are given up after %v", asked, can))
	}
	return nil
}

// ofEtcd are keys of torchrun's two backends for etcd (etcd_rendezvous.py, etcd_rendezvous_backend.py).
func ofEtcd(e *launcher.Etcd, key string) *string {
	switch key {
	case "cacert", "ca_cert":
		return &e.CACert
	case "cert", "ssl_cert":
		return &e.Cert
	case "key", "ssl_cert_key":
		return &e.Key
	case "etcd_prefix", "path":
		return &e.Prefix
	}
	return nil
}

func (v *rdzvConf) one(key, value string) error {
	if setting := ofEtcd(&v.c.Etcd, key); setting != nil {
		*setting = value
		return nil
	}
	switch {
	case key == "protocol" && (value == "http" || value == "https"):
		v.c.Etcd.TLS = value == "https"
	case key == "join_timeout" || key == "last_call_timeout":
		time := map[string]cli.Generic{"join_timeout": wait{&v.c.JoinTimeout}, "last_call_timeout": seconds{&v.c.LastCall}}[key]
		if err := time.Set(value); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	case key == "keep_alive_interval":
		if err := (seconds{&v.keep.interval}).Set(value); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if v.keep.interval == 0 {
			return fmt.Errorf("%s: %s is no time between two signs of life", key, value)
		}
	case key == "keep_alive_max_attempt":
		if err := (number{&v.keep.attempts, 1, 1000}).Set(value); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	case key == "is_host":
		yes, err := truth(value)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		v.c.Serve = map[string]string{"true": "yes", "false": "no"}[yes]
	case slices.Contains(withoutEffect, key):
		note(v.c, "--rdzv-conf "+key+" changes nothing: muster's nodes meet in their own way")
	default:
		note(v.c, fmt.Sprintf("--rdzv-conf %s changes nothing: torchrun's rendezvous reads no such key either", key))
	}
	return nil
}

func (v *rdzvConf) String() string { return v.text }
