package launcher

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// slow is a log whose every line takes as long as it says.
type slow time.Duration

func (s slow) Write(b []byte) (int, error) {
	time.Sleep(time.Duration(s))
	return len(b), nil
}

// To say who it is that does not answer may take longer than a stranger has time to go. The wait is not over for that.
func TestNeighbourOnABusyMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.NewTextHandler(slow(2*strangerTime), nil))
		m := &meeting{port: "127.0.0.1:1", end: time.Now().Add(time.Hour), c: Config{Log: log}}
		n := neighbour{newWaiting(log, nil, "waiting for port 1")}
		time.Sleep(firstTold)
		late := time.Now()
		if over := n.look(m, errMute, &late); over || !time.Now().Before(late) {
			t.Errorf("over: %v, and the deadline was %v ago", over, time.Since(late))
		}
		time.Sleep(muteTime)
		if !n.look(m, errMute, &late) {
			t.Error("it waits for ever")
		}
	})
}
