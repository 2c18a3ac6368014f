package fleet

import (
	"bufio"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"
	"unicode"
)

// The opening of a connection. Neither side gives away the world's secret: both prove that they know it.
//
//	member: Magic, hello{who I am, salt}
//	leader: welcome{salt of its own, proof over the member's salt}, or welcome{refused}
//	member: ready{proof over the leader's salt, last message it has}
//	leader: welcome{last message it has}, or welcome{refused}
//
// The last two are encrypted in a job with a token, as is all that follows, and carry proofs over the channel's key as well ([Fleet.seal]); there the
// leader's first proof covers all that its welcome says.
//
// Who led a world and has left it answers hello with welcome{refused, proof that it did}; who is not the leader that is called, and leads
// no world, with welcome{refused}.
//
// A member that tries several addresses sends ready on one connection only.

const helloTime = 5 * time.Second // for the whole opening

// readAhead is how much is read of a connection at once, in bytes: a frame with a beat of eight workers that train in it, as a rule.
const readAhead = 1 << 10

func newReader(c net.Conn) *bufio.Reader { return bufio.NewReaderSize(c, readAhead) }

type hello struct {
	Protocol    int    `json:"protocol"`
	Job         string `json:"job"`
	Generation  int    `json:"generation"`
	Rank        int    `json:"rank"` // group rank of the member
	Incarnation string `json:"incarnation"`
	Life        int    `json:"life,omitempty"` // agents that this one took over from
	Salt        string `json:"salt"`
	Leader      string `json:"leader,omitempty"` // incarnation of who is called
	Asks        bool   `json:"asks,omitempty"`   // only whether anybody is here
}

type welcome struct {
	Protocol int    `json:"protocol"`
	Salt     string `json:"salt,omitempty"`
	Proof    string `json:"proof,omitempty"`
	Life     int    `json:"life,omitempty"` // agents that this one took over from
	Got      uint64 `json:"got,omitempty"`
	Refused  string `json:"refused,omitempty"`
	Final    bool   `json:"final,omitempty"` // and trying again will not help
}

type ready struct {
	Proof string `json:"proof"`
	Got   uint64 `json:"got"`
	Clock int64  `json:"clock,omitempty"` // on the wall, in nanoseconds since 1970
}

// secret is what the agents of one world share.
func (f *Fleet) secret() string { return f.me.Nonce + f.Token }

// proof shows that its maker knows the secret, for this one opening, in this role.
func proof(secret, role, salt string, h hello) string { return proofOver(secret, role, salt, "", h) }

// proofOver is a proof for something besides: a channel with that key, or a welcome that says so.
func proofOver(secret, role, salt, what string, h hello) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "muster fleet %s %q %d %d %q %d %q", role, h.Job, h.Generation, h.Rank, h.Incarnation, h.Life, salt)
	if what != "" {
		fmt.Fprintf(mac, " %q", what)
	}
	return hex.EncodeToString(mac.Sum(nil))
}

// first is the leader's first proof. Agents that are older than those with encrypted lines look for one that leaves the welcome out.
func (f *Fleet) first(w welcome, h hello) string {
	if f.tls == nil {
		return proof(f.secret(), "leader", h.Salt, h)
	}
	return proofOver(f.secret(), "leader", h.Salt, fmt.Sprintf("welcome %s %d", w.Salt, w.Life), h)
}

func salt() string {
	b := make([]byte, 16)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// Handle takes over a connection whose first bytes, not yet read from c, are [Magic] or ought to be.
// It returns at once. Whoever does not prove within 5 s to be a member of this world is refused and logged. Of too many who have not yet, it is
// the oldest from the address with the most.
func (f *Fleet) Handle(c net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopping {
		c.Close()
		return
	}
	from, _ := netip.ParseAddr(host(c)) // not of a pipe
	if out, full := f.guests.Enter(c, from, 64+2*len(f.peers)); full {
		f.complain(out, errors.New("too many have not said who they are, and most are from its address"))
		out.Close()
	}
	f.owned.Go(func() { f.greet(c) })
}

// adopt counts a connection as known; false: the fleet is closed.
func (f *Fleet) adopt(c net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.guests.Leave(c)
	return !f.stopping
}

// leave takes who is let go out of the guests; false: there is nothing to say of him. He had to make room, which was told, or the fleet is closed.
func (f *Fleet) leave(c net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.guests.Leave(c) && !f.stopping
}

// greet opens a connection on the leader's side.
func (f *Fleet) greet(c net.Conn) {
	tune(c, f.NodeTimeout)
	if err := f.admit(c); err != nil {
		here := f.leave(c)
		c.Close()
		if !here || errors.Is(err, errElsewhere) {
			f.Log.Debug("fleet: connection closed", "from", c.RemoteAddr(), "why", err)
			return
		}
		f.complain(c, err)
	}
}

// errElsewhere: a member that reached us at several addresses goes on with one of them.
var errElsewhere = errors.New("it did not go on")

func (f *Fleet) admit(c net.Conn) error {
	_ = c.SetDeadline(time.Now().Add(helloTime))
	in := newReader(c)
	h, err := readHello(in)
	if err != nil {
		return err
	}
	if h.Asks {
		_ = refuse(c, errors.New("it is none of this world"), false)
		return errElsewhere
	}
	if err := f.check(h); err != nil {
		return refuse(c, err, false)
	}
	w, asked, wall := welcome{Protocol: Protocol, Salt: salt(), Life: f.Life}, time.Now(), f.Now()
	w.Proof = f.first(w, h)
	if err := send(c, w); err != nil {
		return err
	}
	ch, err := f.seal(c, in, tls.Server)
	if brokeOff(err) {
		return fmt.Errorf("node %d: %w: %w", h.Rank, errElsewhere, ended(err))
	}
	if err != nil {
		return fmt.Errorf("node %d: %w", h.Rank, err)
	}
	var r ready
	if err := readFrame(ch.in, &r, maxHello); err != nil {
		return fmt.Errorf("node %d: %w: %w", h.Rank, errElsewhere, ended(err))
	}
	if !hmac.Equal([]byte(r.Proof), []byte(proofOver(f.secret(), "member", w.Salt, ch.key, h))) {
		return refuse(ch, errors.New("it does not know this world's secret"), false)
	}
	return f.seat(c, ch, h, r, clock(r, wall, time.Since(asked)))
}

// clock is that of who was asked at a time of ours and answered after a while, somewhere within which it read its own.
func clock(r ready, asked time.Time, took time.Duration) Clock {
	if r.Clock == 0 {
		return Clock{} // an older agent
	}
	return Clock{Ahead: time.Unix(0, r.Clock).Sub(asked.Add(took / 2).Round(0)), Within: max(1, took/2)}
}

// seat makes a guest's channel the peer's. The peer is told what we have before anything else.
func (f *Fleet) seat(guest net.Conn, ch *channel, h hello, r ready, its Clock) error {
	p := f.peers[h.Rank]
	p.knock(+1) // its old connection may end before it has this one
	defer p.knock(-1)
	p.mu.Lock()
	old := !p.renew(h.Life)
	w, lost := welcome{Protocol: Protocol, Got: p.got}, p.lost
	p.clock = its
	p.mu.Unlock()
	if ch.key != "" {
		w.Proof = proofOver(f.secret(), "leader", h.Salt, ch.key, h)
	}
	if old {
		return w.refuse(ch, errOld)
	}
	if lost != nil {
		return w.refuse(ch, fmt.Errorf("%v was given up: %w", p, lost))
	}
	if err := send(ch, w); err != nil {
		return err
	}
	_ = ch.SetDeadline(time.Time{})
	f.adopt(guest)
	c := f.hold(ch.Conn)
	err := p.attach(c, ch.in, r.Got)
	if err != nil {
		c.Close()
	}
	return err
}

// errOld refuses an agent that another one took over from.
var errOld = errors.New("a newer agent of this node has its place")

func readHello(in *bufio.Reader) (hello, error) {
	var h hello
	magic := make([]byte, len(Magic))
	if _, err := io.ReadFull(in, magic); err != nil {
		return h, ended(err)
	}
	if string(magic) != Magic {
		return h, fmt.Errorf("it opened with %q", magic)
	}
	return h, readFrame(in, &h, maxHello)
}

// check compares what needs no secret.
func (f *Fleet) check(h hello) error {
	switch {
	case h.Protocol < Protocol-1 || h.Protocol > Protocol+1:
		return fmt.Errorf("it speaks fleet protocol %d, this agent %d; use the same image on all nodes", h.Protocol, Protocol)
	case f.tls != nil && h.Protocol < sealedProtocol:
		return errOpen
	case h.Job != f.me.Job:
		return fmt.Errorf("this is job %.100q, it wants job %.100q", f.me.Job, h.Job)
	case h.Generation != f.me.Generation:
		return fmt.Errorf("this is generation %d of the job, it wants %d", f.me.Generation, h.Generation)
	case f.peers[h.Rank] == nil:
		return fmt.Errorf("it says it is node %d, and this world expects no such node to call", h.Rank)
	case h.Incarnation != f.members[h.Rank].Incarnation:
		return fmt.Errorf("it is another process than the member %v of this world", f.members[h.Rank].Node)
	}
	return nil
}

// errOpen refuses an agent of a job with a token that is older than this.
var errOpen = errors.New("it does not encrypt its line, as agents of a job with a token do; use the same image on all nodes")

// Refuse closes a connection of which nothing was read, and tells a member that may have called why.
func Refuse(c net.Conn, why string) {
	_ = c.SetWriteDeadline(time.Now().Add(helloTime))
	_ = refuse(c, errors.New(why), false)
	c.Close()
}

// refuse tells the caller why, if it listens, and returns the reason.
func refuse(c net.Conn, why error, final bool) error {
	_ = send(c, welcome{Protocol: Protocol, Refused: why.Error(), Final: final})
	return why
}

// refuse is the leader's last word to a member that has proved itself.
func (w welcome) refuse(c net.Conn, why error) error {
	w.Refused, w.Final = why.Error(), true
	_ = send(c, w)
	return why
}

func send(c net.Conn, v any) error {
	_, err := c.Write(appendFrame(nil, v))
	return err
}

// A refusal is the leader's answer to a member.
type refusal struct {
	why   string
	final bool
}

func (r *refusal) Error() string { return "refused: " + r.why }

// A call is a member's connection, opened as far as the leader's proof.
type call struct {
	net.Conn
	in   *bufio.Reader
	me   hello
	salt string // the leader's
	life int    // the same
}

// call opens c on the member's side.
func (f *Fleet) call(c net.Conn) (*call, error) {
	_ = c.SetDeadline(time.Now().Add(helloTime))
	k := &call{Conn: c, in: newReader(c), me: hello{
		Protocol: Protocol, Job: f.me.Job, Generation: f.me.Generation, Rank: f.me.Rank,
		Incarnation: f.me.Incarnation, Life: f.Life, Salt: salt(),
		Leader: f.me.Leader.Incarnation,
	}}
	if _, err := c.Write(appendFrame([]byte(Magic), k.me)); err != nil {
		return nil, err
	}
	w, err := answer(k.in)
	var no *refusal
	if errors.As(err, &no) { // anybody may say no; that there is no way back says only who led this world
		no.final = no.final && hmac.Equal([]byte(w.Proof), []byte(proof(f.secret(), "over", k.me.Salt, k.me)))
	}
	if err != nil {
		return nil, err
	}
	if f.tls != nil && w.Protocol < sealedProtocol {
		return nil, errOpen
	}
	if !hmac.Equal([]byte(w.Proof), []byte(f.first(w, k.me))) {
		return nil, errors.New("who answers there does not know this world's secret")
	}
	k.salt, k.life = w.Salt, w.Life
	return k, nil
}

// commit makes k the connection to the leader.
func (f *Fleet) commit(k *call, p *peer) error {
	ch, err := f.seal(k.Conn, k.in, tls.Client)
	if err != nil {
		return ended(err)
	}
	p.mu.Lock()
	if !p.renew(k.life) {
		p.mu.Unlock()
		return errOld
	}
	r := ready{Proof: proofOver(f.secret(), "member", k.salt, ch.key, k.me), Got: p.got, Clock: f.Now().UnixNano()}
	p.mu.Unlock()
	if err := send(ch, r); err != nil {
		return err
	}
	w, err := answer(ch.in)
	proved := ch.key == "" || hmac.Equal([]byte(w.Proof), []byte(proofOver(f.secret(), "leader", k.me.Salt, ch.key, k.me)))
	var no *refusal
	if errors.As(err, &no) {
		no.final = no.final && proved
	}
	if err != nil {
		return err
	}
	if !proved {
		return errors.New("somebody stands between the leader and this agent")
	}
	_ = ch.SetDeadline(time.Time{})
	return p.attach(ch.Conn, ch.in, w.Got)
}

// answer reads what the leader says in an opening.
func answer(in *bufio.Reader) (welcome, error) {
	var w welcome
	if err := readFrame(in, &w, maxHello); err != nil {
		return w, ended(err)
	}
	if w.Refused != "" {
		return w, &refusal{printable(w.Refused), w.Final}
	}
	return w, nil
}

const maxRefused = 200 // bytes

// printable is the beginning of a text from somebody who has proved nothing, fit for a terminal.
func printable(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), maxRefused)], "")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) { // IsPrint takes direction marks and the like for what they are
			return -1
		}
		return r
	}, text)
}
