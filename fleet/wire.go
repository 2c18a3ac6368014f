package fleet

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// Every frame is a length, 32 bits big-endian, and that many bytes of JSON.

// maxHello bounds the frames of those who have not proved who they are.
const maxHello = 4 << 10

// maxFrame leaves room around a message.
const maxFrame = MaxMessage + 1<<10

const maxKind = 64

// maxBeat bounds what is kept of each peer, in bytes.
const maxBeat = 64 << 10

// A frame carries a message, or small talk about the connection, or both.
type frame struct {
	Seq     uint64   `json:"seq,omitempty"` // number of the message, from 1
	Message *message `json:"msg,omitempty"`
	Ack     uint64   `json:"ack,omitempty"`  // number of the last message that came, and all before it
	Ping    int64    `json:"ping,omitempty"` // nanoseconds of the sender's own clock,
	Pong    int64    `json:"pong,omitempty"` // sent back

	Beat json.RawMessage `json:"beat,omitempty"` // beside a ping: how the sender stands
}

// A message is the part of a Message that travels.
type message struct {
	Kind string          `json:"kind,omitempty"`
	Body json.RawMessage `json:"body,omitempty"`
	Bye  bool            `json:"bye,omitempty"` // the last one
}

func (m message) size() int { return len(m.Kind) + len(m.Body) }

func encodeMessage(kind string, body any) (message, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return message{}, fmt.Errorf("fleet: encode %q: %w", kind, err)
	}
	m := message{Kind: kind, Body: b}
	if len(kind) > maxKind {
		return m, fmt.Errorf("fleet: the kind %.20q… has %d bytes, more than %d", kind, len(kind), maxKind)
	}
	if m.size() > MaxMessage {
		return m, fmt.Errorf("fleet: %q has %d bytes, more than the %d of a message", kind, m.size(), MaxMessage)
	}
	return m, nil
}

// appendFrame encodes v behind its length.
func appendFrame(b []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // frames are ours, and bodies were marshalled before
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	return append(b, text...)
}

// readFrame decodes the next frame into v. A length beyond the limit is not read.
func readFrame(r *bufio.Reader, v any, limit uint32) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > limit {
		return fmt.Errorf("a frame of %d bytes is more than the %d that it may have", n, limit)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return fmt.Errorf("a frame was cut off: %w", err)
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("a frame is not understood: %w", err)
	}
	return nil
}
