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

// An Over is a world that its leader has left, to meet its nodes again. An agent that stood still meanwhile calls it, and need not
// find out by silence that nobody waits for it there.
type Over struct {
	World job.World
	Token string // the job's
}

// Meet reads who calls. A member of this world, or of one before it, is told that it is over, and the connection closed;
// then the result is nil. Of any other connection it is as if nothing had been read.
func (o Over) Meet(c net.Conn) net.Conn {
	_ = c.SetDeadline(time.Now().Add(helloTime))
	var read bytes.Buffer
	h, err := readHello(bufio.NewReaderSize(io.TeeReader(c, &read), maxHello))
	if err == nil && !h.Asks && h.Job == o.World.ID && h.Generation <= o.World.Generation {
		_ = send(c, o.refusal(h))
		c.Close()
		return nil
	}
	_ = c.SetDeadline(time.Time{})
	return &reread{c, &read}
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
