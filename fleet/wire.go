package fleet

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
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
	Told    int64    `json:"told,omitempty"` // when that was told, in nanoseconds of the sender's own clock
	Ack     uint64   `json:"ack,omitempty"`  // number of the last message that came, and all before it
	Ping    int64    `json:"ping,omitempty"` // nanoseconds of the sender's own clock, now,
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

// appendTalk is appendFrame for a frame without a message: a leader of ten thousand writes as many each second.
func appendTalk(b []byte, f frame) []byte {
	start := len(b)
	b = append(b, "\x00\x00\x00\x00{"...)
	b = appendField(b, `"ack":`, int64(f.Ack))
	b = appendField(b, `"ping":`, f.Ping)
	b = appendField(b, `"pong":`, f.Pong)
	if len(f.Beat) > 0 {
		b = append(append(b, `"beat":`...), f.Beat...)
	}
	b = append(bytes.TrimSuffix(b, []byte(",")), '}')
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b
}

// appendField encodes a number that is not zero, and a comma.
func appendField(b []byte, name string, n int64) []byte {
	if n == 0 {
		return b
	}
	return append(strconv.AppendInt(append(b, name...), n, 10), ',')
}

// readFrame decodes the next frame into v.
func readFrame(r *bufio.Reader, v any, limit uint32) error {
	text, err := readText(r, limit)
	if err != nil {
		return err
	}
	return understand(text, v)
}

func understand(text []byte, v any) error {
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("a frame is not understood: %w", err)
	}
	return nil
}

// readText reads the next frame. A length beyond the limit is not read. What is returned is valid until r is read again.
func readText(r *bufio.Reader, limit uint32) ([]byte, error) {
	head, err := r.Peek(4)
	if err != nil {
		return nil, cut(err, len(head))
	}
	n := binary.BigEndian.Uint32(head)
	if n > limit {
		return nil, fmt.Errorf("a frame of %d bytes is more than the %d that it may have", n, limit)
	}
	_, _ = r.Discard(4)
	if int(n) > r.Size() {
		text := make([]byte, n)
		_, err = io.ReadFull(r, text)
		return text, cutOff(err)
	}
	text, err := r.Peek(int(n))
	_, _ = r.Discard(len(text))
	return text, cutOff(err)
}

func cutOff(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("a frame was cut off: %w", err)
}

// cut is the error of a connection that ended, so many bytes into a length.
func cut(err error, read int) error {
	if read > 0 && errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// nextFrame reads what a peer sends. Its beat is valid until r is read again.
func nextFrame(r *bufio.Reader) (f frame, err error) {
	text, err := readText(r, maxFrame)
	if err != nil {
		return f, err
	}
	if f, ok := talk(text); ok {
		return f, nil
	}
	err = understand(text, &f)
	return f, err
}

// talk reads a frame without a message, in the form in which agents write it; of any other it knows nothing. A leader of ten thousand
// hears as many each second, and need not give each of its readers the stack that JSON takes.
func talk(text []byte) (f frame, ok bool) {
	rest, ok := bytes.CutPrefix(text, []byte("{"))
	var ping, pong uint64
	f.Ack, rest = field(rest, `"ack":`)
	ping, rest = field(rest, `"ping":`)
	pong, rest = field(rest, `"pong":`)
	f.Ping, f.Pong = int64(ping), int64(pong)
	if beat, found := bytes.CutPrefix(rest, []byte(`"beat":`)); found && len(beat) > 0 {
		last := len(beat) - 1
		f.Beat, rest = beat[:last:last], beat[last:]
		ok = ok && (flat(f.Beat) || json.Valid(f.Beat))
	}
	return f, ok && string(rest) == "}"
}

// flat reports whether a text has no more in it than one object without another one: whether it is JSON, who reads the beat finds out.
func flat(text []byte) bool {
	return len(text) > 1 && text[0] == '{' && bytes.IndexByte(text, '}') == len(text)-1 && bytes.IndexByte(text[1:], '{') < 0
}

// field takes a number off the beginning of some fields, if it is the first one.
func field(fields []byte, name string) (n uint64, rest []byte) {
	digits, found := bytes.CutPrefix(fields, []byte(name))
	if !found {
		return 0, fields
	}
	i := 0
	for ; i < min(len(digits), maxDigits) && '0' <= digits[i] && digits[i] <= '9'; i++ {
		n = 10*n + uint64(digits[i]-'0')
	}
	if i == 0 {
		return 0, fields
	}
	return n, bytes.TrimPrefix(digits[i:], []byte(","))
}

// maxDigits of a number fit into 63 bits.
const maxDigits = 18
