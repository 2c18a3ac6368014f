package etcdstore

import (
	"context"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// leased returns the lease on which all keys hang, and keeps it alive from now on. Who comes first grants it; when it has run out,
// with all keys, for nobody could reach etcd for long, there is another.
func (s *Store) leased(ctx context.Context) (clientv3.LeaseID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != 0 {
		return s.lease, nil
	}
	id, err := s.join(ctx)
	if err != nil {
		return 0, err
	}
	alive, err := s.client.KeepAlive(s.closing, id)
	if err != nil {
		return 0, err
	}
	s.lease = id
	s.running.Go(func() { s.keep(id, alive) })
	return id, nil
}

// keep drains the answers to our signs of life until the lease is gone, or the store is closed.
func (s *Store) keep(id clientv3.LeaseID, alive <-chan *clientv3.LeaseKeepAliveResponse) {
	for range alive {
	}
	if s.closing.Err() == nil {
		s.Log.Warn("etcd: the lease of this job ran out; its keys are gone")
		s.forget(id)
	}
}

func (s *Store) forget(id clientv3.LeaseID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == id {
		s.lease = 0
	}
}

// join finds the job's lease, or grants it.
func (s *Store) join(ctx context.Context) (clientv3.LeaseID, error) {
	name := s.Prefix + leaseKey
	r, err := s.client.Get(ctx, name)
	if err != nil {
		return 0, err
	}
	if len(r.Kvs) > 0 {
		return leaseID(r.Kvs[0].Value)
	}
	granted, err := s.client.Grant(ctx, int64(s.TTL.Seconds()))
	if err != nil {
		return 0, err
	}
	text := strconv.FormatInt(int64(granted.ID), 16)
	t, err := s.client.Txn(ctx).If(missing(name)).Then(clientv3.OpPut(name, text, clientv3.WithLease(granted.ID))).Else(clientv3.OpGet(name)).Commit()
	if err != nil {
		return 0, err
	}
	if t.Succeeded {
		return granted.ID, nil
	}
	_, _ = s.client.Revoke(ctx, granted.ID) // it runs out by itself, too
	if kvs := t.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		return leaseID(kvs[0].Value)
	}
	return 0, fmt.Errorf("%s came and went", name)
}

func leaseID(text []byte) (clientv3.LeaseID, error) {
	id, err := strconv.ParseInt(string(text), 16, 64)
	return clientv3.LeaseID(id), err
}
