package heartbeat

import (
	"time"

	"github.com/muster-run/muster/job"
)

// A Roll puts together what the nodes of a world tell in one round, for one look after the other.
type Roll struct {
	world   job.World
	round   int
	version string // of the leader
	reader
	unpacker
	heard []bool // at this look
	look  Look
}

// NewRoll is that of a round. A node of another version than the leader's may not tell of its workers.
func NewRoll(w job.World, round int, version string) *Roll {
	return &Roll{world: w, round: round, version: version, heard: make([]bool, len(w.Members)), look: Look{Beats: make([]job.Beat, 0, w.Size())}}
}

// Begin begins a look, at a moment as in [Look]. The one before is over: its memory is used again.
func (r *Roll) Begin(at time.Duration) {
	r.again()
	clear(r.heard)
	r.look = Look{At: at, Beats: r.look.Beats[:0], Unheard: r.look.Unheard[:0], Ended: r.look.Ended[:0]}
}

// Own takes in what the leader's own node knows.
func (r *Roll) Own(group int, beats []job.Beat, ended []int) {
	r.heard[group] = true
	r.look.Beats = append(r.look.Beats, beats...)
	r.look.Ended = append(r.look.Ended, ended...)
}

// Told takes in what another node told. Nobody speaks for another node, nor of another round.
func (r *Roll) Told(group int, report Report) {
	if group < 0 || group >= len(r.heard) || report.Generation != r.world.Generation || report.Round != r.round {
		return
	}
	before, m := len(r.look.Beats), r.world.Members[group]
	beats, err := r.unpack(r.look.Beats, report.Ranks)
	if err != nil || len(beats)-before > m.Slots {
		return
	}
	r.heard[group] = true
	r.look.Beats = beats[:before]
	for _, b := range beats[before:] {
		if runs(m, b.Rank) {
			r.look.Beats = append(r.look.Beats, b)
		}
	}
	for _, rank := range report.Ended {
		if runs(m, rank) {
			r.look.Ended = append(r.look.Ended, rank)
		}
	}
}

// A Reader reads what nodes tell of whose ranks nobody knows beforehand.
type Reader struct{ unpacker }

// Begin begins a look. The one before is over: its memory is used again.
func (r *Reader) Begin() { r.again() }

// Ranks are the beats in a report.
func (r *Reader) Ranks(report Report) ([]job.Beat, error) { return r.unpack(nil, report.Ranks) }

func runs(m job.Member, rank int) bool { return m.First <= rank && rank < m.First+m.Slots }

// Look is what the nodes told since Begin.
func (r *Roll) Look() Look {
	for n, m := range r.world.Members {
		for local := range m.Slots {
			switch {
			case r.heard[n]:
			case m.Version != r.version:
				r.look.Beats = append(r.look.Beats, job.Beat{Rank: m.First + local, Mute: "muster " + m.Version + " runs it"})
			default:
				r.look.Unheard = append(r.look.Unheard, m.First+local)
			}
		}
	}
	return r.look
}
