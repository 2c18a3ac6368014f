package etcdstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

const (
	tryTime   = 2 * time.Second  // for an answer to the first request
	loginTime = 5 * time.Second  // for user and password
	pingTime  = 10 * time.Second // without a word until a member is asked for one,
	whyTime   = 5 * time.Second  // until it is asked again why none is reached
	pongTime  = 5 * time.Second  // and until another one is used instead
)

// connect makes the client, at the first call. Later ones wait for nobody here: who enters again may have the turn for as long as etcd has no answer, and
// a call is to tell of that.
func (s *Store) connect(ctx context.Context) (err error) {
	select {
	case <-s.connected:
		return nil
	default:
	}
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	if s.client != nil {
		return nil
	}
	if s.client, err = s.dial(ctx); err == nil {
		close(s.connected)
		s.running.Go(s.watch)
	}
	return err
}

// watch tells why when no member can be reached any more, and again every whyTime, for the reason may change while that lasts.
func (s *Store) watch() {
	conn := s.client.ActiveConnection()
	for s.closing.Err() == nil {
		state := conn.GetState()
		if state != connectivity.TransientFailure {
			conn.WaitForStateChange(s.closing, state)
			continue
		}
		if err := s.try(s.closing, s.client); uncertain(err) {
			s.tell(because(err))
		}
		ctx, cancel := context.WithTimeout(s.closing, whyTime)
		conn.WaitForStateChange(ctx, state)
		cancel()
	}
}

// lock waits for its turn, as the calls of others may wait for etcd while it is theirs.
func (s *Store) lock(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Store) unlock() { <-s.turn }

// dial waits until etcd answers, or says that it never will.
func (s *Store) dial(ctx context.Context) (*clientv3.Client, error) {
	conf, err := s.secure(ctx)
	if err != nil {
		return nil, err
	}
	c := clientv3.Config{
		Endpoints: s.Endpoints, TLS: conf, MaxCallRecvMsgSize: maxAnswer, Logger: zap.NewNop(),
		DialKeepAliveTime: pingTime, DialKeepAliveTimeout: pongTime,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: firstPause, Multiplier: 2, Jitter: 0.5, MaxDelay: lastPause}, MinConnectTimeout: pongTime,
		})},
	}
	client, err := clientv3.New(c)
	if err != nil {
		return nil, err
	}
	if err := s.reach(ctx, client, conf); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	if s.User == "" {
		return client, nil
	}
	client.Close() // one that knows of a user waits for its login without a word of what it waits for
	c.Username, c.Password, c.DialTimeout = s.User, s.Password, loginTime
	return s.login(ctx, c)
}

// secure reads how TLS is spoken. Who takes over from somebody that could waits until it can be read: it may be being written.
func (s *Store) secure(ctx context.Context) (*tls.Config, error) {
	if s.TLS == nil {
		return nil, nil
	}
	for tries := 0; ; tries++ {
		conf, err := s.TLS.Config()
		if err == nil || !s.Again {
			return conf, err
		}
		s.tell(err.Error())
		if !pause(ctx, tries) {
			return nil, ctx.Err()
		}
	}
}

// login waits until etcd has an answer to user and password: it is slow with them when many come at once, and has none without a leader.
func (s *Store) login(ctx context.Context, c clientv3.Config) (*clientv3.Client, error) {
	for tries := 0; ; tries++ {
		client, err := clientv3.New(c)
		switch {
		case err == nil:
			return client, nil
		case errors.Is(err, context.DeadlineExceeded):
			s.tell(fmt.Sprintf("log in as %s: no answer in %v", s.User, loginTime))
		case uncertain(err):
			s.tell(fmt.Sprintf("log in as %s: %s", s.User, because(err)))
		default:
			return nil, fmt.Errorf("log in as %s: %w", s.User, err)
		}
		if !pause(ctx, tries) {
			return nil, ctx.Err()
		}
	}
}

// reach waits for any answer: that we may not read is one.
func (s *Store) reach(ctx context.Context, client *clientv3.Client, conf *tls.Config) error {
	for tries := 0; ; tries++ {
		err := s.try(ctx, client)
		if code := status.Code(err); code != codes.Unavailable && code != codes.DeadlineExceeded && code != codes.Canceled {
			return nil
		}
		why := s.asked(err)
		hopeless := unlike(why)
		if hopeless && !strings.HasPrefix(why, refusal) && len(s.Endpoints) > 1 {
			why, hopeless = s.member(ctx, conf, why)
		}
		if hopeless {
			return errors.New(why)
		}
		s.tell(why)
		if !pause(ctx, tries) {
			return ctx.Err()
		}
	}
}

// try makes one request that, unlike the client's own, fails while there is no connection, and says why.
func (s *Store) try(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	_, err := pb.NewKVClient(client.ActiveConnection()).Range(ctx, &pb.RangeRequest{Key: []byte(s.Prefix), CountOnly: true})
	return err
}

// because is the cause in the words of an error of gRPC, such as
// `connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.1:2379: connect: connection refused"`.
func because(err error) string { why, _ := split(err); return why }

// asked is the cause, with a question: where one side may speak TLS and the other not, which looks like a server that hangs up, and where it is the
// other side that refuses.
func (s *Store) asked(err error) string {
	why, during := split(err)
	hungUp := strings.HasSuffix(why, "EOF") || strings.HasSuffix(why, "connection reset by peer")
	switch {
	case strings.HasPrefix(why, refusal) && s.outOfDate() != "":
		return fmt.Sprintf("%s (%s)", why, s.outOfDate())
	case strings.HasPrefix(why, refusal) && s.TLS != nil && s.TLS.Cert != "":
		return why + " (does it trust the authority of this node's certificate?)"
	case strings.HasPrefix(why, refusal):
		return why + " (does it ask for a certificate of this node's?)"
	case during == handshakes && hungUp:
		return why + " (does it speak TLS?)"
	case during == greets:
		return why + " (does it ask for TLS? is it an etcd?)"
	}
	return why
}

// outOfDate says when the certificate of this node is valid that is not so now; "": it is, or there is none.
func (s *Store) outOfDate() string {
	if s.TLS == nil || s.TLS.Cert == "" {
		return ""
	}
	pair, err := s.TLS.pair()
	if err != nil || pair.Leaf == nil {
		return ""
	}
	c, now := pair.Leaf, time.Now()
	switch {
	case now.After(c.NotAfter):
		return fmt.Sprintf("the certificate in %s ran out at %s", s.TLS.Cert, c.NotAfter.Format(time.RFC3339))
	case now.Before(c.NotBefore):
		return fmt.Sprintf("the certificate in %s is valid from %s", s.TLS.Cert, c.NotBefore.Format(time.RFC3339))
	}
	return ""
}

// What an error of gRPC says was under way when it occurred.
const (
	handshakes = "authentication handshake failed: "
	greets     = "error reading server preface: "
	reads      = "error reading from server: "
)

// unheard is what an error of gRPC says of a member that did not show that it lives (pingTime, pongTime).
const unheard = "keepalive ping failed to receive ACK within timeout"

// split parts the cause from what was under way.
func split(err error) (why, during string) {
	if late(err) || status.Code(err) == codes.DeadlineExceeded {
		return fmt.Sprintf("no answer in %v", tryTime), ""
	}
	why = status.Convert(err).Message()
	if _, quoted, found := strings.Cut(why, `desc = "`); found {
		why = strings.TrimSuffix(quoted, `"`)
	}
	why = strings.TrimPrefix(strings.TrimPrefix(why, "transport: "), "Error while dialing: ")
	if why == unheard {
		return noAnswer, ""
	}
	for _, during = range []string{handshakes, greets, reads} {
		cause, found := strings.CutPrefix(why, during)
		switch {
		case found && silent(cause):
			return noAnswer, ""
		case found && during == reads && strings.HasSuffix(cause, "EOF"):
			return "connection closed", ""
		case found && during == reads:
			return last(cause), ""
		case found:
			return cause, during
		}
	}
	if strings.HasPrefix(why, "dial ") { // each time another member is tried, and their addresses are known
		return last(why), ""
	}
	return why, ""
}

// last is the last part of an error.
func last(why string) string {
	if i := strings.LastIndex(why, ": "); i >= 0 {
		return why[i+2:]
	}
	return why
}

// silent reports whether the other side said nothing until we hung up, as one does that stands still: it need not be of another kind.
func silent(cause string) bool {
	return strings.Contains(cause, "use of closed network connection") || strings.HasSuffix(cause, "i/o timeout") || strings.HasSuffix(cause, "deadline exceeded")
}

// refusal begins what etcd says of this node's certificate, as all its members do.
const refusal = "remote error: tls: "

// unlike reports whether the two sides of TLS do not go together, which time does not change.
func unlike(why string) bool {
	return strings.Contains(why, "tls: ") || strings.Contains(why, "x509: ")
}

// member says which of several members this node does not trust, and why, and whether that is so of all: one that is away may be let in later. Where each goes
// together with this node by now, it is as it was.
func (s *Store) member(ctx context.Context, conf *tls.Config, was string) (why string, all bool) {
	why, all = was, true
	for _, endpoint := range s.Endpoints {
		d := tls.Dialer{NetDialer: &net.Dialer{Timeout: tryTime}, Config: conf}
		conn, err := d.DialContext(ctx, "tcp", strings.TrimPrefix(endpoint, "https://"))
		switch {
		case err == nil:
			conn.Close()
			all = false
		case unlike(err.Error()):
			why = endpoint + ": " + err.Error()
		default:
			all = false
		}
	}
	return why, all
}
