package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// leased returns the lease on which all keys hang, and keeps it alive from now on. Who comes first grants it; when it has run out,
// with all keys, for nobody could reach etcd for long, there is another.
func (s *Store) leased(ctx context.Context) (clientv3.LeaseID, error) {
	if err := s.lock(ctx); err != nil {
		return 0, err
	}
	defer s.unlock()
	if s.lease != 0 {
		return s.lease, nil
	}
	id, err := s.enter(ctx)
	for errors.Is(err, rpctypes.ErrLeaseNotFound) { // it ended as we came
		id, err = s.enter(ctx)
	}
	if err != nil {
		return 0, err
	}
	alive, err := s.client.KeepAlive(clientv3.WithRequireLeader(s.closing), id)
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
		s.Log.Debug(fmt.Sprintf("etcd: the lease of %s was not renewed for %v; its keys may be gone", s.Prefix, s.TTL))
		_ = s.forget(s.closing, id) // it fails when the store is closed
	}
}

// forget makes the next change look for another lease.
func (s *Store) forget(ctx context.Context, id clientv3.LeaseID) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	if s.lease == id {
		s.lease = 0
	}
	return nil
}

// enter puts this user on the list of those who use the store.
func (s *Store) enter(ctx context.Context) (clientv3.LeaseID, error) {
	id, err := s.join(ctx)
	if err == nil {
		_, err = s.client.Put(ctx, s.Prefix+userKey+s.Name, "", clientv3.WithLease(id))
	}
	return id, err
}

// join finds the store's lease, or grants it.
func (s *Store) join(ctx context.Context) (clientv3.LeaseID, error) {
	name := s.Prefix + leaseKey
	r, err := s.client.Get(ctx, name)
	if err != nil {
		return 0, err
	}
	if len(r.Kvs) > 0 {
		return leaseID(name, r.Kvs[0].Value)
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
	return leaseID(name, t.Responses[0].GetResponseRange().Kvs[0].Value)
}

func leaseID(name string, text []byte) (clientv3.LeaseID, error) {
	id, err := strconv.ParseInt(string(text), 16, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is %.40q, no id of a lease: who else writes there?", name, text)
	}
	return clientv3.LeaseID(id), nil
}

// leave takes this user off the list, and ends the lease, with all keys, if it was the last.
func (s *Store) leave(ctx context.Context) error {
	users, lease := s.Prefix+userKey, s.Prefix+leaseKey
	t, err := s.client.Txn(ctx).Then(clientv3.OpDelete(users+s.Name),
		clientv3.OpGet(users, clientv3.WithPrefix(), clientv3.WithCountOnly()), clientv3.OpGet(lease)).Commit()
	if err != nil {
		return err
	}
	found := t.Responses[2].GetResponseRange().Kvs
	if t.Responses[1].GetResponseRange().Count > 0 || len(found) == 0 {
		return nil
	}
	id, err := leaseID(lease, found[0].Value)
	if err == nil {
		_, err = s.client.Revoke(ctx, id)
	}
	return err
}
