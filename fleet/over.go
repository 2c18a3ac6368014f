package fleet

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/muster-run/muster/job"
)

// An Over is an agent that leads no world: it has left the one that it was in, to meet its nodes again, or was started in the place of one that did. An
// agent that stood still meanwhile, or whose connection broke, calls it, and need not find out by silence that nobody waits for it there.
type Over struct {
	World job.World // that it led; the zero value is none
	Token string    // the job's
	Self  string    // its own incarnation; "": it does not say
}

// Meet reads who calls. A member of this world, or of one before it, is told that it is over, one that calls for another leader that it is not here, and the
// connection closed; then the result is nil. Of any other connection it is as if nothing had been read.
func (o Over) Meet(c net.Conn) net.Conn {
	_ = c.SetDeadline(time.Now().Add(helloTime))
	var read bytes.Buffer
	h, err := readHello(bufio.NewReaderSize(io.TeeReader(c, &read), maxHello))
	if w, knows := o.answer(h); err == nil && knows {
		_ = send(c, w)
		c.Close()
		return nil
	}
	_ = c.SetDeadline(time.Time{})
	return &reread{c, &read}
}

// answer is what it has to say to a member, if anything.
func (o Over) answer(h hello) (w welcome, knows bool) {
	switch {
	case h.Asks:
	case o.World.ID != "" && h.Job == o.World.ID && h.Generation <= o.World.Generation:
		return o.refusal(h), true
	case o.Self != "" && h.Leader != "" && h.Leader != o.Self:
		return welcome{Protocol: Protocol, Refused: "another process than that leader has its address now"}, true
	}
	return w, false
}

// refusal is what a member is told, with a proof that it comes from who led its world.
func (o Over) refusal(h hello) welcome {
	w := welcome{Protocol: Protocol, Refused: fmt.Sprintf("generation %d of the job is over", h.Generation)}
	if h.Generation == o.World.Generation {
		w.Final, w.Proof = true, proof(o.World.Nonce+o.Token, "over", h.Salt, h)
	}
	return w
}

// A reread connection gives the bytes that were read of it before once more.
type reread struct {
	net.Conn
	before *bytes.Buffer
}

func (r *reread) Read(b []byte) (int, error) {
	n, err := r.before.Read(b)
	if errors.Is(err, io.EOF) && len(b) > 0 {
		return r.Conn.Read(b)
	}
	return n, err
}

// NetConn is the connection below.
func (r *reread) NetConn() net.Conn { return r.Conn }
