package pid1

import (
	"bytes"
	"encoding/gob"
)

// gobs are the messages to and from a peer of an older release, whose frames have package gob's streams in them: a first process that such a
// release started, or an agent of one that a job goes back to.
type gobs struct {
	out bytes.Buffer
	enc *gob.Encoder // over out; it tells each type once in the life of the link

	in  bytes.Buffer
	dec *gob.Decoder // over in
}

func newGobs() *gobs {
	g := &gobs{}
	g.enc, g.dec = gob.NewEncoder(&g.out), gob.NewDecoder(&g.in)
	return g
}

// encode returns a message that is good until the next, and the form of its frame.
func (g *gobs) encode(m message) (form int, b []byte, err error) {
	g.out.Reset()
	err = g.enc.Encode(m)
	return 0, g.out.Bytes(), err
}

func (g *gobs) decode(b []byte, m *message) error {
	g.in.Reset()
	g.in.Write(b)
	return g.dec.Decode(m)
}
