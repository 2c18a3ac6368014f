package page

import (
	"encoding/binary"
	"strings"
	"time"
	"unicode/utf8"
)

// Size is that of a page, in bytes.
const Size = 4096

// StackSignal makes a worker whose page says StackReady write the stacks of all its threads to StackFile, also while a thread holds Python's
// lock. Python may die of it if another thread runs meanwhile, so [AskStacks] comes first. A process that has no handler for it dies of it:
// besides the page, ask Catches. It is SIGRTMIN+18 where glibc counts; those in the middle have no known user.
const StackSignal = 52

// The layout, version 1; docs/heartbeat.md explains it. All numbers are little-endian.
const (
	magic   = "MUSTERPG"
	version = 1

	traceAt  = 16  // another number whenever the agent wants the recorders' content
	stacksAt = 24  // the same for the threads' stacks
	beatsAt  = 64  // what the program says itself: muster beat, muster_beat.py, muster_beat.h
	hookAt   = 256 // what the hook sees
	lanesAt  = 768
	lane     = 104 // bytes of one
	maxLane  = (Size - lanesAt) / lane

	moreLanes = 2
)

// Where things stand in the part of the program's own beats, and in the hook's.
const (
	beatSteps = 8
	beatCount = 16
	beatUntil = 24
	beatPhase = 40 // its length in a byte, and up to 63 more
	beatSize  = 104

	hookPID    = 8
	hookFlags  = 12
	hookStart  = 16
	hookRank   = 24
	hookWorld  = 28
	hookClaims = 32
	hookLanes  = 36
	hookSteps  = 40
	hookHelper = 48
	hookLimit  = 56
	hookSpent  = 64
	hookMoment = 72
	hookCalls  = 128
	hookMute   = 256                                         // its length in a byte, and up to 127 more
	hookRaised = 384                                         // the same,
	hookMore   = lanesAt - hookAt + (maxLane-moreLanes)*lane // and what of it is longer, where the last lanes are not needed
	hookSize   = Size - hookAt
)

// Where things stand in a lane.
const (
	laneGroup     = 0
	laneEntered   = 8
	laneCompleted = 16
	laneBytes     = 24
	laneFlags     = 32 // two bytes
	laneMark      = 34
	laneMembers   = 36
	laneName      = 40 // its length in a byte, and up to 31 more
	laneOp        = 72 // the same
)

// Flags of the hook's part.
const (
	flagRecorder = 1 << iota
	flagHooks
	flagStack
	flagExiting
	flagGrouped
	flagMet
	flagOver
	flagSpawned
	flagTells
)

// Flags of a lane.
const (
	flagBlind = 1 << iota
	flagMixed
	flagBegun
	flagQueued
	flagHost
)

var order = binary.LittleEndian

// A Snapshot is what a page says at one moment. All of it is the worker's word: names are cut and cleaned, but may be any.
type Snapshot struct {
	// From the hook. PID 0: there is none in the worker, or not yet.
	PID         int
	Start       uint64        // of that process, field 22 of /proc/PID/stat: tells two users of one PID apart
	Claims      int           // counts the processes, or programs of one process, that filled this page; each starts its counters anew
	Rank, World int           // as the framework or the environment says; World 0: not known
	Recorder    bool          // Lanes are those of PyTorch's flight recorder
	Hooks       bool          // Calls counts: with a recorder, sends and receives alone
	StackReady  bool          // StackSignal has a handler
	Tells       bool          // AskStacks is answered
	Exiting     bool          // the interpreter is about to end, and the helper thread has
	Over        bool          // the script has ended, and the interpreter is on its way to
	Grouped     bool          // the framework has a process group; World is then its size
	Met         bool          // it has been in a collective of a process group, which may be gone by now
	Spawned     bool          // it started processes that train in a process group that they alone are
	Optimizer   uint64        // steps of optimizers
	Helper      time.Duration // when its thread last had a turn, by CLOCK_MONOTONIC
	Spent       time.Duration // CPU time of that thread
	Moment      time.Duration // when Lanes were read that have not been entered further since, at the begin of a second by the clock on the wall; 0: they have
	Limit       time.Duration // of a collective in the default process group, until the framework gives up; 0: not known
	Lanes       []Lane
	Calls       Lane   // backward, torch.distributed, and waits for what is sent or received; Op is the one it is inside
	Mute        string // why less is told than could be
	Raised      string // the exception that ended it, when Over: as Python's last line about it

	// From the program.
	Beats uint64 // how often it said anything
	Steps uint64
	Phase string        // announced
	Until time.Duration // when that should end, by CLOCK_MONOTONIC; 0: it was not said
}

// A Lane is one process group as the worker sees it.
type Lane struct {
	Group     uint64 // the same for all members, another for each group
	Members   int    // ranks that it has; 0: not known
	Name      string
	Entered   uint64 // collectives
	Completed uint64
	Blind     bool   // Completed is not known; Entered is the group's sequence number
	Mixed     bool   // sends and receives went through it, which may be numbered among the collectives: members do not number alike
	Begun     bool   // by the accelerator: the collective with number Completed+1,
	Queued    bool   // or it is behind something else there; neither: not known
	Host      bool   // threads of the process do its collectives, and no accelerator
	Op        string // of that one, told when it has been pending for seconds
	Bytes     uint64 // that this one moves; 0: not known
	Mark      uint16 // for the kind of the one with number Completed, told with Op; 0: not known
}

// empty is a new page.
func empty() []byte {
	p := make([]byte, Size)
	copy(p, magic)
	order.PutUint32(p[8:], version)
	order.PutUint32(p[12:], Size)
	return p
}

// known reports what speaks against a page's head.
func known(head [2]uint64) error {
	var raw [16]byte
	order.PutUint64(raw[:], head[0])
	order.PutUint64(raw[8:], head[1])
	switch v := order.Uint32(raw[8:]); {
	case string(raw[:8]) != magic || v == 0 || order.Uint32(raw[12:]) != Size:
		return ErrForeign
	case v > version:
		return ErrNewer
	}
	return nil
}

// decode reads a page that others may be writing.
func decode(p *[Size / 8]uint64) (s Snapshot, err error) {
	if err := known([2]uint64{load(&p[0]), load(&p[1])}); err != nil {
		return s, err
	}
	var beats [beatSize]byte
	if steady(p[beatsAt/8:(beatsAt+beatSize)/8], beats[:]) {
		s.beats(beats[:])
	} else {
		err = ErrTorn
	}
	var hook [hookSize]byte
	if steady(p[hookAt/8:], hook[:]) {
		s.hook(hook[:])
	} else {
		err = ErrTorn
	}
	return s, err
}

// beats reads what the program says.
func (s *Snapshot) beats(b []byte) {
	s.Steps, s.Beats = order.Uint64(b[beatSteps:]), order.Uint64(b[beatCount:])
	s.Phase, s.Until = text(b[beatPhase:beatSize]), instant(b[beatUntil:])
	if int64(s.Steps) < 0 { // a program in C that counts below zero: its beats tell that it goes on
		s.Steps = 0
	}
}

// hook reads what the hook says.
func (s *Snapshot) hook(b []byte) {
	pid := order.Uint32(b[hookPID:])
	if pid == 0 || pid > 1<<22 { // PID_MAX_LIMIT
		return
	}
	s.PID, s.Start = int(pid), order.Uint64(b[hookStart:])
	s.Claims = int(order.Uint32(b[hookClaims:]))
	s.Rank, s.World = int(int32(order.Uint32(b[hookRank:]))), int(int32(order.Uint32(b[hookWorld:])))
	if s.World < 0 || s.Rank < 0 || s.Rank >= s.World {
		s.Rank, s.World = 0, 0
	}
	flags := order.Uint32(b[hookFlags:])
	s.Recorder, s.Hooks = flags&flagRecorder != 0, flags&flagHooks != 0
	s.StackReady, s.Tells, s.Exiting = flags&flagStack != 0, flags&flagTells != 0, flags&flagExiting != 0
	s.Grouped, s.Met, s.Spawned = flags&flagGrouped != 0, flags&flagMet != 0, flags&flagSpawned != 0
	s.Over = flags&(flagOver|flagExiting) != 0
	s.Optimizer, s.Helper, s.Limit = order.Uint64(b[hookSteps:]), instant(b[hookHelper:]), instant(b[hookLimit:])
	s.Spent, s.Moment = instant(b[hookSpent:]), instant(b[hookMoment:])
	s.Calls, s.Mute = laneFrom(b[hookCalls:]), text(b[hookMute:hookMute+128])
	lanes := min(int(order.Uint32(b[hookLanes:])), maxLane)
	raised := [][]byte{b[hookRaised : hookRaised+128]}
	if lanes <= maxLane-moreLanes {
		raised = append(raised, b[hookMore:hookMore+moreLanes*lane])
	}
	s.Raised = text(raised...)
	for i := range lanes {
		s.Lanes = append(s.Lanes, laneFrom(b[lanesAt-hookAt+i*lane:]))
	}
}

func laneFrom(b []byte) Lane {
	flags := order.Uint16(b[laneFlags:])
	return Lane{
		Group: order.Uint64(b[laneGroup:]), Entered: order.Uint64(b[laneEntered:]), Completed: order.Uint64(b[laneCompleted:]),
		Bytes: order.Uint64(b[laneBytes:]), Mark: order.Uint16(b[laneMark:]), Blind: flags&flagBlind != 0, Mixed: flags&flagMixed != 0, Begun: flags&flagBegun != 0, Queued: flags&flagQueued != 0, Host: flags&flagHost != 0,
		Members: int(order.Uint32(b[laneMembers:])), Name: text(b[laneName:laneOp]), Op: text(b[laneOp:lane]),
	}
}

// instant reads a time or a length of time in nanoseconds. One beyond what we can hold was never written by us.
func instant(b []byte) time.Duration { return max(time.Duration(order.Uint64(b)), 0) }

// text reads a length and what follows, as far as it can be shown in one line; more parts go on where the one before ends.
func text(parts ...[]byte) string {
	var raw []byte
	for _, b := range parts {
		raw = append(raw, b[1:1+min(int(b[0]), len(b)-1)]...)
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError || 0x80 <= r && r < 0xa0 || r == 0x2028 || r == 0x2029 {
			return '?'
		}
		return r
	}, string(raw))
}

// putText writes a text that text reads, cut between two characters if it is too long.
func putText(b []byte, s string) {
	s = strings.ToValidUTF8(s, "?")
	n := min(len(s), len(b)-1, 255)
	for n < len(s) && n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	clear(b)
	b[0] = byte(n)
	copy(b[1:], s[:n])
}
