package witness

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
)

// RASName is the variable that says where NCCL's own watch over a job's processes (RAS, since 2.24) answers.
const RASName = "NCCL_RAS_ADDR"

// RASVar gives the RAS of a job's processes on this node an address of their own, with a port that nobody else has. All of them bind it,
// and the kernel chooses which one answers; with NCCL's default those of two jobs on one host would answer for each other.
func RASVar(port int) job.Var {
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port)).String()
	return job.Var{Name: RASName, Value: addr, Why: "NCCL's watch (RAS) answers for this job alone, not for others on this host"}
}

// A RASReport is what NCCL's watch says of a job: as soon as one of its processes is asked, all of them are.
type RASReport struct {
	Version  string    `json:"version,omitempty"` // of NCCL
	Groups   int       `json:"groups,omitempty"`  // communicators; 0: not told
	Peers    []RASPeer `json:"peers,omitempty"`   // those of whom something is to be said
	More     int       `json:"more,omitempty"`    // how many such peers are left out
	Timeouts int       `json:"timeouts,omitempty"`
	Text     []byte    `json:"-"` // the whole report as it came, JSON or, before NCCL 2.28.7, text
}

// A RASPeer is a process of which NCCL's watch says that something is odd. Counts are of collectives launched, not completed; those
// of CUDA graphs, sends and receives are in none. So it is a hint, no proof.
type RASPeer struct {
	Host  string `json:"host,omitempty"`  // address by which NCCL knows its node; "": not told
	PID   int    `json:"pid,omitempty"`   // as it sees itself; 0: not told
	GPU   int    `json:"gpu,omitempty"`   // CUDA's number, among those that it sees
	Group string `json:"group,omitempty"` // the communicator's hash, in hexadecimal; "": of the job as a whole
	Rank  int    `json:"rank"`            // in the communicator; -1: not told
	Odd   string `json:"odd"`             // "unresponsive", "dead", "missing", "AllReduce: 512, others 514", "reported Remote process error"
}

const (
	maxRASPeers  = 256
	maxRASReport = 32 << 20 // bytes; a communicator of ten thousand ranks takes seven million
	maxRASLine   = 1024     // bytes of an answer to a command
	rasTries     = 8        // each other one may be answered by another process
	rasPatience  = time.Second
	rasGather    = 2 * time.Second  // for each leg of the way through the job, whole seconds
	rasLimit     = 10 * time.Second // for all of it
)

// AskRAS asks NCCL's watch at an address such as 127.0.0.1:28028 about the whole job. A process that does not answer, because it is
// stopped, is left for another one after a second. The report may take eight seconds if one of the job's does not answer the others;
// all together it takes ten at the most.
func AskRAS(ctx context.Context, addr string) (r RASReport, err error) {
	ctx, cancel := context.WithTimeout(ctx, rasLimit)
	defer cancel()
	for range rasTries {
		if r, err = askOnce(ctx, addr); err == nil || ctx.Err() != nil || errors.Is(err, errRefused) || errors.Is(err, errOther) || errors.Is(err, errLong) {
			break
		}
	}
	if err != nil {
		return RASReport{}, fmt.Errorf("NCCL's watch at %s: %w", addr, cmp.Or(context.Cause(ctx), err))
	}
	return r, nil
}

var (
	errRefused = errors.New("nobody listens; NCCL is not in use yet, is older than 2.24, or has NCCL_RAS_ENABLE=0")
	errOther   = errors.New("what answers is not NCCL")
	errLong    = fmt.Errorf("the report is longer than %d bytes", maxRASReport)
)

// askOnce speaks with whoever takes the connection.
func askOnce(ctx context.Context, addr string) (RASReport, error) {
	dialer := net.Dialer{Timeout: rasPatience}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if errors.Is(err, unix.ECONNREFUSED) {
		return RASReport{}, errRefused
	}
	if err != nil {
		return RASReport{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	c := rasConn{conn, bufio.NewReaderSize(conn, maxRASLine)}
	json, err := c.greet()
	if err != nil {
		return RASReport{}, err
	}
	text, err := c.report(json)
	if err != nil {
		return RASReport{}, err
	}
	if json {
		return parseRASJSON(text)
	}
	return parseRASText(text), nil
}

// A rasConn is a connection to the watch of one process. Lines end in a newline, both ways.
type rasConn struct {
	net.Conn
	in *bufio.Reader
}

// greet agrees on how to report, and whether that is JSON.
func (c rasConn) greet() (json bool, err error) {
	hello, err := c.ask("CLIENT PROTOCOL 2")
	if err != nil {
		return false, err
	}
	if !strings.HasPrefix(hello, "SERVER PROTOCOL ") {
		return false, fmt.Errorf("%w: it says %.80q", errOther, hello)
	}
	if _, err := c.ask(fmt.Sprintf("TIMEOUT %d", rasGather/time.Second)); err != nil { // refused, it stays 5 s
		return false, err
	}
	answer, err := c.ask("SET FORMAT json") // "ERROR: Unknown command …" before 2.28.7
	return answer == "OK", err
}

// ask sends a command and returns its answer of one line.
func (c rasConn) ask(command string) (string, error) {
	if err := c.say(command, rasPatience); err != nil {
		return "", err
	}
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return "", fmt.Errorf("answer to %s: %w", command, err)
	}
	return strings.TrimRight(string(line), "\r\n"), nil
}

// say sends a command whose answer must be there by then.
func (c rasConn) say(command string, patience time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err := io.WriteString(c, command+"\n")
	return err
}

// report asks for the report, which ends with the connection. In text only the longer form names all who are odd.
func (c rasConn) report(json bool) ([]byte, error) {
	command := "VERBOSE STATUS"
	if json {
		command = "STATUS"
	}
	if err := c.say(command, rasGather+6*time.Second); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(c.in, maxRASReport+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("report, after %d bytes: %w", len(text), err)
	case len(text) > maxRASReport:
		return nil, errLong
	}
	return text, nil
}
