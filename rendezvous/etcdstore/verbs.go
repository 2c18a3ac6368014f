package etcdstore

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/muster-run/muster/rendezvous/store"
)

func (s *Store) key(key string) string { return s.Prefix + dataKey + key }

// put is an operation that sets key.
func (s *Store) put(key string, value []byte, lease clientv3.LeaseID) clientv3.Op {
	return clientv3.OpPut(s.key(key), plain+string(value), clientv3.WithLease(lease))
}

// change runs a transaction that needs the lease. One that was refused because the lease is gone is run again with the next.
func (s *Store) change(ctx context.Context, txn func(lease clientv3.LeaseID) clientv3.Txn) (*clientv3.TxnResponse, error) {
	for {
		lease, err := s.leased(ctx)
		if err != nil {
			return nil, err
		}
		r, err := txn(lease).Commit()
		if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return r, err
		}
		if err := s.forget(ctx, lease); err != nil {
			return nil, err
		}
	}
}

// text is what a key of etcd holds, as the store's users see it.
func text(kv *mvccpb.KeyValue) []byte {
	if string(kv.Value) == counter {
		return strconv.AppendInt(nil, kv.Version, 10)
	}
	return bytes.TrimPrefix(kv.Value, []byte(plain))
}

func same(kv *mvccpb.KeyValue) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision)
}

func missing(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}

// Set implements store.Store.
func (s *Store) Set(ctx context.Context, key string, value []byte) error {
	return s.MultiSet(ctx, []string{key}, [][]byte{value})
}

// MultiSet implements store.Store. Of very many keys some are set before others.
func (s *Store) MultiSet(ctx context.Context, keys []string, values [][]byte) error {
	if err := store.Pairs(keys, values); err != nil {
		return err
	}
	latest := map[string][]byte{} // a transaction may not set a key twice
	for i, key := range keys {
		latest[key] = values[i]
	}
	return s.again(ctx, func(ctx context.Context) error {
		for part := range parts(latest) {
			_, err := s.change(ctx, func(lease clientv3.LeaseID) clientv3.Txn {
				var ops []clientv3.Op
				for key, value := range part {
					ops = append(ops, s.put(key, value, lease))
				}
				return s.client.Txn(ctx).Then(ops...)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// parts cuts a map into pieces that fit into one transaction.
func parts(all map[string][]byte) func(yield func(map[string][]byte) bool) {
	return func(yield func(map[string][]byte) bool) {
		part := map[string][]byte{}
		for key, value := range all {
			part[key] = value
			if len(part) == maxOps {
				if !yield(part) {
					return
				}
				part = map[string][]byte{}
			}
		}
		if len(part) > 0 {
			yield(part)
		}
	}
}

// CompareSet implements store.Store.
func (s *Store) CompareSet(ctx context.Context, key string, expected, desired []byte) (got []byte, err error) {
	err = s.do(ctx, func(ctx context.Context) error {
		got, err = s.compareSet(ctx, key, expected, desired)
		return err
	})
	return got, err
}

func (s *Store) compareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	kv, err := s.read(ctx, key)
	for {
		switch {
		case err != nil:
			return nil, err
		case kv == nil && len(expected) > 0:
			return expected, nil
		case kv != nil && !bytes.Equal(text(kv), expected):
			return text(kv), nil
		}
		var done bool
		if kv, done, err = s.replace(ctx, key, kv, desired); done {
			return desired, nil
		}
	}
}

// read returns what etcd has under key; nil: nothing.
func (s *Store) read(ctx context.Context, key string) (*mvccpb.KeyValue, error) {
	r, err := s.client.Get(ctx, s.key(key))
	if err != nil || len(r.Kvs) == 0 {
		return nil, err
	}
	return r.Kvs[0], nil
}

// replace sets key if kv is still what it holds; else it returns what is.
func (s *Store) replace(ctx context.Context, key string, kv *mvccpb.KeyValue, value []byte) (now *mvccpb.KeyValue, done bool, err error) {
	return s.swap(ctx, key, kv, func(lease clientv3.LeaseID) clientv3.Op { return s.put(key, value, lease) })
}

func (s *Store) swap(ctx context.Context, key string, kv *mvccpb.KeyValue, op func(lease clientv3.LeaseID) clientv3.Op) (now *mvccpb.KeyValue, done bool, err error) {
	is := missing(s.key(key))
	if kv != nil {
		is = same(kv)
	}
	r, err := s.change(ctx, func(lease clientv3.LeaseID) clientv3.Txn {
		return s.client.Txn(ctx).If(is).Then(op(lease)).Else(clientv3.OpGet(s.key(key)))
	})
	if err != nil || r.Succeeded {
		return nil, err == nil, err
	}
	if kvs := r.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		now = kvs[0]
	}
	return now, false, nil
}

// Add implements store.Store.
func (s *Store) Add(ctx context.Context, key string, delta int64) (sum int64, err error) {
	err = s.do(ctx, func(ctx context.Context) error {
		var kv *mvccpb.KeyValue
		if delta == 1 {
			var done bool
			if sum, kv, done, err = s.count(ctx, key); done || err != nil {
				return err
			}
		} else if kv, err = s.read(ctx, key); err != nil {
			return err
		}
		sum, err = s.add(ctx, key, kv, delta)
		return err
	})
	return sum, err
}

// count counts up a counter, or makes one. Where something else stands it returns that.
func (s *Store) count(ctx context.Context, key string) (sum int64, kv *mvccpb.KeyValue, done bool, err error) {
	name := s.key(key)
	for {
		r, err := s.change(ctx, func(lease clientv3.LeaseID) clientv3.Txn {
			return s.client.Txn(ctx).If(clientv3.Compare(clientv3.Value(name), "=", counter)).
				Then(clientv3.OpPut(name, "", clientv3.WithIgnoreValue(), clientv3.WithLease(lease)), clientv3.OpGet(name)).
				Else(clientv3.OpGet(name))
		})
		if err != nil {
			return 0, nil, false, err
		}
		kvs := r.Responses[len(r.Responses)-1].GetResponseRange().Kvs
		switch {
		case r.Succeeded:
			return kvs[0].Version, nil, true, nil
		case len(kvs) > 0:
			return 0, kvs[0], false, nil
		}
		_, done, err := s.swap(ctx, key, nil, func(lease clientv3.LeaseID) clientv3.Op {
			return clientv3.OpPut(name, counter, clientv3.WithLease(lease))
		})
		if done || err != nil {
			return 1, nil, done, err
		}
	}
}

// add reads, compares and writes.
func (s *Store) add(ctx context.Context, key string, kv *mvccpb.KeyValue, delta int64) (int64, error) {
	for {
		var sum int64
		if kv != nil {
			n, err := store.ParseInt(text(kv))
			if err != nil {
				return 0, err
			}
			sum = n
		}
		sum += delta
		if kv != nil && delta == 0 {
			return sum, nil
		}
		now, done, err := s.replace(ctx, key, kv, strconv.AppendInt(nil, sum, 10))
		if done || err != nil {
			return sum, err
		}
		kv = now
	}
}

// Append implements store.Store.
func (s *Store) Append(ctx context.Context, key string, value []byte) error {
	return s.do(ctx, func(ctx context.Context) error {
		kv, err := s.read(ctx, key)
		for done := false; !done && err == nil; {
			var old []byte
			if kv != nil {
				old = text(kv)
			}
			kv, done, err = s.replace(ctx, key, kv, append(bytes.Clone(old), value...))
		}
		return err
	})
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, key string) (was bool, err error) {
	err = s.do(ctx, func(ctx context.Context) error {
		r, err := s.client.Delete(ctx, s.key(key))
		was = err == nil && r.Deleted > 0
		return err
	})
	return was, err
}

// NumKeys implements store.Store.
func (s *Store) NumKeys(ctx context.Context) (n int64, err error) {
	err = s.again(ctx, func(ctx context.Context) error {
		r, err := s.client.Get(ctx, s.key(""), clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil {
			n = r.Count
		}
		return err
	})
	return n, err
}

// ListKeys implements store.Store.
func (s *Store) ListKeys(ctx context.Context) (keys []string, err error) {
	err = s.again(ctx, func(ctx context.Context) error {
		r, err := s.client.Get(ctx, s.key(""), clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		keys = nil
		for _, kv := range r.Kvs {
			keys = append(keys, strings.TrimPrefix(string(kv.Key), s.key("")))
		}
		return nil
	})
	return keys, err
}
