package fleet

import (
	"bufio"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
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
// Who led a world and has left it answers hello with welcome{refused, proof that it did}; who is not the leader that is called, and leads
// no world, with welcome{refused}.
//
// A member that tries several addresses sends ready on one connection only.

const helloTime = 5 * time.Second // for the whole opening

// readAhead is how much is read of a connection at once, in bytes: a frame with a beat of eight workers that train in it, as a rule.
const readAhead = 1 << 10

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
func proof(secret, role, salt string, h hello) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "muster fleet %s %q %d %d %q %d %q", role, h.Job, h.Generation, h.Rank, h.Incarnation, h.Life, salt)
	return hex.EncodeToString(mac.Sum(nil))
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
	in := bufio.NewReaderSize(c, readAhead)
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
	mine, asked, wall := salt(), time.Now(), f.Now()
	if err := send(c, welcome{Protocol: Protocol, Salt: mine, Life: f.Life, Proof: proof(f.secret(), "leader", h.Salt, h)}); err != nil {
		return err
	}
	var r ready
	if err := readFrame(in, &r, maxHello); err != nil {
		return fmt.Errorf("node %d: %w: %w", h.Rank, errElsewhere, ended(err))
	}
	if !hmac.Equal([]byte(r.Proof), []byte(proof(f.secret(), "member", mine, h))) {
		return refuse(c, errors.New("it does not know this world's secret"), false)
	}
	return f.seat(c, in, h, r, clock(r, wall, time.Since(asked)))
}

// clock is that of who was asked at a time of ours and answered after a while, somewhere within which it read its own.
func clock(r ready, asked time.Time, took time.Duration) Clock {
	if r.Clock == 0 {
		return Clock{} // an older agent
	}
	return Clock{Ahead: time.Unix(0, r.Clock).Sub(asked.Add(took / 2).Round(0)), Within: max(1, took/2)}
}

// seat makes the connection the peer's. The peer is told what we have before anything else.
func (f *Fleet) seat(c net.Conn, in *bufio.Reader, h hello, r ready, its Clock) error {
	p := f.peers[h.Rank]
	p.knock(+1) // its old connection may end before it has this one
	defer p.knock(-1)
	p.mu.Lock()
	old := !p.renew(h.Life)
	w, lost := welcome{Protocol: Protocol, Got: p.got}, p.lost
	p.clock = its
	p.mu.Unlock()
	if old {
		return refuse(c, errOld, true)
	}
	if lost != nil {
		return refuse(c, fmt.Errorf("%v was given up: %w", p, lost), true)
	}
	if err := send(c, w); err != nil {
		return err
	}
	_ = c.SetDeadline(time.Time{})
	f.adopt(c)
	c = f.hold(c)
	err := p.attach(c, in, r.Got)
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

// refuse tells the caller why, if it listens, and returns the reason.
func refuse(c net.Conn, why error, final bool) error {
	_ = send(c, welcome{Protocol: Protocol, Refused: why.Error(), Final: final})
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
	k := &call{Conn: c, in: bufio.NewReaderSize(c, readAhead), me: hello{
		Protocol: Protocol, Job: f.me.Job, Generation: f.me.Generation, Rank: f.me.Rank,
		Incarnation: f.me.Incarnation, Life: f.Life, Salt: salt(),
		Leader: f.me.Leader.Incarnation,
	}}
	if _, err := c.Write(appendFrame([]byte(Magic), k.me)); err != nil {
		return nil, err
	}
	w, err := k.answer()
	var no *refusal
	if errors.As(err, &no) { // anybody may say no; that there is no way back says only who led this world
		no.final = no.final && hmac.Equal([]byte(w.Proof), []byte(proof(f.secret(), "over", k.me.Salt, k.me)))
	}
	if err != nil {
		return nil, err
	}
	if !hmac.Equal([]byte(w.Proof), []byte(proof(f.secret(), "leader", k.me.Salt, k.me))) {
		return nil, errors.New("who answers there does not know this world's secret")
	}
	k.salt, k.life = w.Salt, w.Life
	return k, nil
}

// commit makes k the connection to the leader.
func (f *Fleet) commit(k *call, p *peer) error {
	p.mu.Lock()
	if !p.renew(k.life) {
		p.mu.Unlock()
		return errOld
	}
	r := ready{Proof: proof(f.secret(), "member", k.salt, k.me), Got: p.got, Clock: f.Now().UnixNano()}
	p.mu.Unlock()
	if err := send(k, r); err != nil {
		return err
	}
	w, err := k.answer()
	if err != nil {
		return err
	}
	_ = k.SetDeadline(time.Time{})
	return p.attach(k.Conn, k.in, w.Got)
}

func (k *call) answer() (welcome, error) {
	var w welcome
	if err := readFrame(k.in, &w, maxHello); err != nil {
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
