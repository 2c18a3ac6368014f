package etcdstore

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	values, err := s.MultiGet(ctx, key)
	if err != nil {
		return nil, err
	}
	return values[0], nil
}

// Check implements store.Store.
func (s *Store) Check(ctx context.Context, keys ...string) (all bool, err error) {
	err = s.again(ctx, func(ctx context.Context) error {
		found, _, err := s.look(ctx, keys, clientv3.WithKeysOnly())
		all = err == nil && len(lacking(keys, found)) == 0
		return err
	})
	return all, err
}

// Wait implements store.Store.
func (s *Store) Wait(ctx context.Context, keys ...string) error {
	return s.patiently(ctx, func(ctx context.Context) error {
		found, revision, err := s.look(ctx, keys, clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		return s.await(ctx, lacking(keys, found), revision)
	})
}

// MultiGet implements store.Store.
func (s *Store) MultiGet(ctx context.Context, keys ...string) (values [][]byte, err error) {
	err = s.patiently(ctx, func(ctx context.Context) error {
		for {
			found, revision, err := s.look(ctx, keys)
			if err != nil {
				return err
			}
			lack := lacking(keys, found)
			if len(lack) == 0 {
				values = make([][]byte, len(keys))
				for i, key := range keys {
					values[i] = slices.Clone(text(found[key]))
				}
				return nil
			}
			if err := s.await(ctx, lack, revision); err != nil {
				return err
			}
		}
	})
	return values, err
}

// look reads keys without waiting. The revision is that of the first part, if they are many: what comes after it is seen, or is
// among those found.
func (s *Store) look(ctx context.Context, keys []string, how ...clientv3.OpOption) (found map[string]*mvccpb.KeyValue, revision int64, err error) {
	defer s.due(ctx)()
	found = map[string]*mvccpb.KeyValue{}
	for part := range slices.Chunk(keys, maxOps) {
		var ops []clientv3.Op
		for _, key := range part {
			ops = append(ops, clientv3.OpGet(s.key(key), how...))
		}
		r, err := s.client.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			return nil, 0, err
		}
		if revision == 0 {
			revision = r.Header.Revision
		}
		for i, one := range r.Responses {
			if kvs := one.GetResponseRange().Kvs; len(kvs) > 0 {
				found[part[i]] = kvs[0]
			}
		}
	}
	return found, revision, nil
}

func lacking(keys []string, found map[string]*mvccpb.KeyValue) (lack []string) {
	for _, key := range keys {
		if found[key] == nil && !slices.Contains(lack, key) {
			lack = append(lack, key)
		}
	}
	return lack
}

// await waits until each of keys was set after a revision, whatever became of it then.
func (s *Store) await(ctx context.Context, keys []string, revision int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx)) // a member that lost the others would hear of nothing
	defer cancel()                                                     // ends the watches
	opened := s.due(ctx)
	var came []clientv3.WatchChan
	for _, key := range keys {
		came = append(came, s.client.Watch(ctx, s.key(key), clientv3.WithRev(revision+1), clientv3.WithFilterDelete())) // which returns when it is open
	}
	opened()
	for _, events := range came {
		if err := first(ctx, events); err != nil {
			return err
		}
	}
	return nil
}

// first waits for the first event. A watch that lost its connection goes on by itself where it was.
func first(ctx context.Context, events clientv3.WatchChan) error {
	for {
		select {
		case r, ok := <-events:
			switch {
			case ok && r.Err() != nil:
				return r.Err()
			case !ok:
				return ctx.Err()
			case len(r.Events) > 0:
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
