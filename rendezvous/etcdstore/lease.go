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
// with all keys, for nobody could reach etcd for long, or when etcd lost what it had, there is another.
func (s *Store) leased(ctx context.Context) (clientv3.LeaseID, error) {
	if err := s.lock(ctx); err != nil {
		return 0, err
	}
	defer s.unlock()
	if s.lease != 0 {
		return s.lease, nil
	}
	id, err := s.enter(ctx)
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

// keep drains the answers to our signs of life until the lease is gone, or the store is closed. Where it is gone this user enters
// again at once, whether it has anything to write or not: the others are to know that it is there.
func (s *Store) keep(id clientv3.LeaseID, alive <-chan *clientv3.LeaseKeepAliveResponse) {
	for range alive {
	}
	ctx := s.closing
	if ctx.Err() != nil {
		return
	}
	s.Log.Debug(fmt.Sprintf("etcd: the lease of %s could not be renewed; its keys may be gone", s.Prefix))
	_ = s.forget(ctx, id) // it fails when the store is closed
	for tries := 0; ; tries++ {
		if _, err := s.leased(ctx); err == nil || !pause(ctx, tries) {
			return
		}
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

// enter puts this user on the list of those who use the store. A lease that ends as we come is none.
func (s *Store) enter(ctx context.Context) (clientv3.LeaseID, error) {
	for tries := 0; ; tries++ {
		id, granted, err := s.join(ctx)
		if err != nil {
			return 0, err
		}
		s.emptied = s.emptied || granted && s.Again || s.last != 0 && s.last != id
		entered, err := s.enlist(ctx, id)
		switch {
		case entered:
			s.last, s.emptied = id, false
			return id, nil
		case err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound):
			return 0, err
		case !pause(ctx, tries):
			return 0, ctx.Err()
		}
	}
}

// enlist is enter with a lease, if it still is the store's. It says so where the list is a new one.
func (s *Store) enlist(ctx context.Context, id clientv3.LeaseID) (bool, error) {
	puts := []clientv3.Op{clientv3.OpPut(s.Prefix+userKey+s.Name, "", clientv3.WithLease(id))}
	if s.emptied {
		own, err := s.client.Grant(ctx, s.ttl()) // by then all have come
		if err != nil {
			return false, err
		}
		puts = append(puts, clientv3.OpPut(s.Prefix+emptiedKey, "", clientv3.WithLease(own.ID)))
	}
	t, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.Value(s.Prefix+leaseKey), "=", leaseText(id))).Then(puts...).Commit()
	return err == nil && t.Succeeded, err
}

func (s *Store) ttl() int64 { return int64(s.TTL.Seconds()) }

func leaseText(id clientv3.LeaseID) string { return strconv.FormatInt(int64(id), 16) }

// join finds the store's lease, or grants it.
func (s *Store) join(ctx context.Context) (id clientv3.LeaseID, granted bool, err error) {
	name := s.Prefix + leaseKey
	r, err := s.client.Get(ctx, name)
	if err != nil {
		return 0, false, err
	}
	if len(r.Kvs) > 0 {
		id, err = leaseID(name, r.Kvs[0].Value)
		return id, false, err
	}
	lease, err := s.client.Grant(ctx, s.ttl())
	if err != nil {
		return 0, false, err
	}
	put := clientv3.OpPut(name, leaseText(lease.ID), clientv3.WithLease(lease.ID))
	t, err := s.client.Txn(ctx).If(missing(name)).Then(put).Else(clientv3.OpGet(name)).Commit()
	if err != nil {
		return 0, false, err
	}
	if t.Succeeded {
		return lease.ID, true, nil
	}
	_, _ = s.client.Revoke(ctx, lease.ID) // it runs out by itself, too
	id, err = leaseID(name, t.Responses[0].GetResponseRange().Kvs[0].Value)
	return id, false, err
}

func leaseID(name string, text []byte) (clientv3.LeaseID, error) {
	id, err := strconv.ParseInt(string(text), 16, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is %.40q, no id of a lease: who else writes there?", name, text)
	}
	return clientv3.LeaseID(id), nil
}

// leave takes this user off the list. If there is nobody else on it, all keys go in the same transaction, so that nobody can come in between;
// unless the store was emptied under its users, of whom some may not have found out yet: then the lease is left to run out.
func (s *Store) leave(ctx context.Context) error {
	users, lease := s.Prefix+userKey, s.Prefix+leaseKey
	mine, end := users+s.Name, clientv3.GetPrefixRangeEnd(users)
	t, err := s.client.Txn(ctx).
		If(missing(users).WithRange(mine), missing(mine+"\x00").WithRange(end), missing(s.Prefix+emptiedKey)).
		Then(clientv3.OpGet(lease), clientv3.OpDelete(lease), clientv3.OpDelete(users, clientv3.WithPrefix()), clientv3.OpDelete(s.key(""), clientv3.WithPrefix())).
		Else(clientv3.OpDelete(mine)).Commit()
	if err != nil || !t.Succeeded {
		return err
	}
	if found := t.Responses[0].GetResponseRange().Kvs; len(found) > 0 {
		if id, err := leaseID(lease, found[0].Value); err == nil {
			_, _ = s.client.Revoke(ctx, id) // nothing hangs on it, and it runs out by itself, too
		}
	}
	return nil
}
