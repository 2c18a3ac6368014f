//go:build full

package main

import (
	"net/url"
	"strings"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/rendezvous/etcdstore"
	"github.com/muster-run/muster/rendezvous/store"
)

// etcdOpener is what opens an etcd in this build, which has all that it takes.
func etcdOpener() func(launcher.EtcdJob) (store.Store, error) { return openEtcd }

func openEtcd(j launcher.EtcdJob) (store.Store, error) {
	o := etcdstore.Options{
		Endpoints: j.Members, User: j.User, Password: j.Password, Prefix: j.Prefix + "/" + url.PathEscape(j.ID) + "/", Name: j.Agent, Again: j.Again,
		Log: j.Log, Waiting: j.Waiting,
	}
	if j.TLS || strings.HasPrefix(j.Members[0], "https://") || j.CACert+j.Cert+j.Key != "" {
		o.TLS = &etcdstore.Files{Authorities: j.CACert, Cert: j.Cert, Key: j.Key}
		if _, err := o.TLS.Config(); err != nil && !j.Again { // a world that runs needs no etcd
			return nil, &launcher.Error{Code: job.ExitUsage, Err: err, Hint: "see --etcd-cacert, --etcd-cert and --etcd-key, or etcdctl's variables"}
		}
	}
	return etcdstore.New(o), nil
}
