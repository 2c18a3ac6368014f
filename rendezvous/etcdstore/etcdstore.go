// Package etcdstore keeps the store on which nodes meet in etcd.
//
// Each key of the store is one key of etcd, below a prefix. All of them hang on one lease, which whoever uses the store keeps
// alive: the last one on the list of users deletes them as it leaves, and some time after the last one was killed the lease runs
// out, so that nothing is left. Where an etcd has lost what it had, its users enter again, each when it finds out; meanwhile the
// list is too short, and nobody deletes anything. A value begins with a byte that says what it is:
//
//	v<value>   what was set
//	c          a counter, which is worth as much as its version in etcd: it was only ever counted up by one
//
// etcd has no addition. Counting up a counter is one request that cannot fail for others who do the same; any other addition
// reads, compares and writes, and does so again when somebody was faster.
package etcdstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/muster-run/muster/rendezvous/store"
)

const (
	plain   = "v" // before a value
	counter = "c" // the whole value of a counter

	leaseKey   = "lease"   // holds the lease's id
	userKey    = "users/"  // + name of one who uses the store
	dataKey    = "data/"   // + key of the store
	emptiedKey = "emptied" // there for a while after users found another lease than theirs: the list may lack some

	maxOps    = 100      // in one transaction; servers take 128 unless told otherwise (etcd --max-txn-ops)
	maxAnswer = 64 << 20 // bytes that a server may send at once; it takes 1.5 MiB in one request itself
)

// Options say which etcd it is, and whose store in it.
type Options struct {
	Endpoints      []string // HOST:PORT or https://HOST:PORT of its members; some are enough
	TLS            *Files   // nil: plain text
	User, Password string   // "": none are asked for

	Prefix string        // of all the store's keys, for instance "/muster/job7/"
	Name   string        // of this user among those of the store; "": a random one
	Again  bool          // somebody had that name before, and did not close the store
	TTL    time.Duration // how long the keys outlive the last user if it was killed; 0: a minute

	Log     *slog.Logger         // nil: none
	Waiting func(because string) // called, by any goroutine, when a try to reach etcd failed; nil: nobody looks
}

// A Store is one user of the keys below a prefix.
type Store struct {
	Options

	turn    chan struct{}    // held by who changes the next four
	client  *clientv3.Client // nil: not connected yet
	lease   clientv3.LeaseID // 0: to be found
	last    clientv3.LeaseID // that this user had; 0: none yet
	emptied bool             // another lease has taken its place: all keys are gone

	connected chan struct{} // closed when there is a client
	said      atomic.Int64  // how often Waiting was called

	closing context.Context // ends with the store
	end     context.CancelCauseFunc
	running sync.WaitGroup
}

// New returns a store at once; its first call connects.
func New(o Options) *Store {
	if o.TTL <= 0 {
		o.TTL = time.Minute
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Name == "" {
		o.Name = rand.Text()
	}
	if o.Waiting == nil {
		o.Waiting = func(string) {}
	}
	s := &Store{Options: o, turn: make(chan struct{}, 1), connected: make(chan struct{})}
	s.closing, s.end = context.WithCancelCause(context.Background())
	return s
}

// leaveTime is how long Close may take to say that this user is gone.
const leaveTime = 2 * time.Second

// Close ends the use of the store; calls that wait return store.ErrClosed. If nobody else uses it, nothing is left of it.
func (s *Store) Close() error {
	if s.closing.Err() != nil {
		return nil
	}
	s.end(store.ErrClosed)
	s.turn <- struct{}{} // never given back: there is no use after this
	s.running.Wait()
	if s.client == nil && !s.Again {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	if err := s.close(ctx); err != nil {
		return fmt.Errorf("etcd: leave %s: %w; its keys go %v after the last user", s.Prefix, err, s.TTL)
	}
	return nil
}

func (s *Store) close(ctx context.Context) (err error) {
	if s.client == nil {
		if s.client, err = s.dial(ctx); err != nil {
			return err
		}
	}
	defer s.client.Close()
	return s.leave(ctx)
}

// during is a ctx that ends with the store, too.
func (s *Store) during(ctx context.Context) (context.Context, context.CancelFunc) {
	both, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.closing, func() { cancel(store.ErrClosed) })
	return both, func() { stop(); cancel(nil) }
}

// quietTime is how long an answer may take until it is asked why, which takes tryTime at most, and told.
const quietTime = 3 * time.Second

// noAnswer is what is told of who lets us in and says nothing.
const noAnswer = "connected, but no answer"

// tell passes on why etcd is not reached.
func (s *Store) tell(because string) {
	s.said.Add(1)
	s.Waiting(because)
}

// tellOf is tell for an error of a call that goes on, unless it is only that the caller's time is over.
func (s *Store) tellOf(ctx context.Context, err error) {
	if ctx.Err() == nil && !late(err) && status.Code(err) != codes.DeadlineExceeded {
		s.tell(because(err))
	}
}

// do is run for what is answered at once. That it is not is told.
func (s *Store) do(ctx context.Context, call func(ctx context.Context) error) error {
	return s.run(ctx, func(ctx context.Context) error {
		defer s.due(ctx)()
		return call(ctx)
	})
}

// due begins what is answered at once, until end; in what waits for others, that is all but the wait. The client tries again in silence where a member
// that we are connected to has no answer.
func (s *Store) due(ctx context.Context) (end func()) {
	said := s.said.Load()
	timer := time.AfterFunc(quietTime, func() { s.wonder(ctx, said) })
	return func() { timer.Stop() }
}

// wonder tells why a call has no answer, unless that was told since it began.
func (s *Store) wonder(ctx context.Context, said int64) {
	err := s.try(ctx, s.client)
	if !uncertain(err) || ctx.Err() != nil || s.said.Load() != said {
		return
	}
	if late(err) || status.Code(err) == codes.DeadlineExceeded {
		s.tell(noAnswer)
		return
	}
	s.tell(because(err))
}

// run runs one call. Its error is ctx's or store.ErrClosed if that is why it ended, and wraps store.ErrUncertain if a change may
// have taken effect.
func (s *Store) run(ctx context.Context, call func(ctx context.Context) error) error {
	if s.closing.Err() != nil {
		return store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	both, cancel := s.during(ctx)
	defer cancel()
	err := s.connect(both)
	if err == nil {
		err = s.roomy(both, call)
		if uncertain(err) {
			s.settle(both)
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(both), store.ErrClosed):
		return store.ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	case uncertain(err):
		return fmt.Errorf("etcd: %w: %w", store.ErrUncertain, err)
	}
	return fmt.Errorf("etcd: %w", s.explain(err))
}

// noRoom is told of an etcd whose alarm NOSPACE is on: it takes no more until somebody has made room, and says so.
const noRoom = "its database is full; etcdctl compact, defrag and alarm disarm make room"

// roomy runs a call until etcd has room for it: somebody may make some, as somebody may start one that is away, and who asked too much of it may go.
func (s *Store) roomy(ctx context.Context, call func(ctx context.Context) error) error {
	for tries := 0; ; tries++ {
		err := call(ctx)
		switch {
		case errors.Is(err, rpctypes.ErrNoSpace):
			s.tell(noRoom)
		case errors.Is(err, rpctypes.ErrTooManyRequests):
			s.tell(because(err))
		default:
			return err
		}
		if !pause(ctx, tries) {
			return err
		}
	}
}

// explain adds to what etcd says why it does not let us do something.
func (s *Store) explain(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrUserEmpty) && s.User != "" && s.Password == "": // else the client logs in
		return fmt.Errorf("no password was given for %s: %w", s.User, err)
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("%s may not read and write the keys below %s: %w", cmp.Or(s.User, "this user"), s.Prefix, err)
	}
	return err
}

// settle waits until etcd answers again: then what became of a request is sure, and whoever repeats it does not do so in vain.
func (s *Store) settle(ctx context.Context) {
	defer s.due(ctx)()
	for tries := 0; ; tries++ {
		_, err := s.client.Get(ctx, s.Prefix, clientv3.WithCountOnly())
		if !uncertain(err) || ctx.Err() != nil {
			return
		}
		s.tellOf(ctx, err)
		if !pause(ctx, tries) {
			return
		}
	}
}

const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// pause waits a little longer each time, not as long as others do, and reports false when ctx ended meanwhile.
func pause(ctx context.Context, tries int) bool {
	d := min(firstPause<<min(tries, 10), lastPause)
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d/2 + mathrand.N(d)):
		return true
	}
}

// again is do for what does no harm when done twice: it is repeated while nobody can say what became of it.
func (s *Store) again(ctx context.Context, call func(ctx context.Context) error) error {
	return s.do(ctx, s.repeat(call))
}

// patiently is again for what is answered when others have done something.
func (s *Store) patiently(ctx context.Context, call func(ctx context.Context) error) error {
	return s.run(ctx, s.repeat(call))
}

func (s *Store) repeat(call func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		for tries := 0; ; tries++ {
			err := call(ctx)
			unknown := uncertain(err)
			if unknown {
				s.tellOf(ctx, err)
			}
			if !unknown && !errors.Is(err, rpctypes.ErrCompacted) || !pause(ctx, tries) {
				return err
			}
		}
	}
}

// late reports whether an error is that of a server that sees the caller's time pass before the caller does. It has no code (seen with etcd 3.4.23).
func late(err error) bool {
	return status.Code(err) == codes.Unknown && status.Convert(err).Message() == context.DeadlineExceeded.Error()
}

// uncertain reports whether an error says nothing about what became of the request.
func uncertain(err error) bool {
	code := status.Code(err)
	if known := (rpctypes.EtcdError{}); errors.As(err, &known) {
		code = known.Code()
	}
	return late(err) || code == codes.Unavailable || code == codes.DeadlineExceeded
}
