package launcher

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/muster-run/muster/horovod"
)

// arrivals is whether workers come to Horovod's rendezvous. Each of those that do not is a world of one rank.
type arrivals struct {
	file  string            // is there until one has come, on the node that serves it; "": another one does
	at    string            // where that node is asked
	tell  func(text string) // what it answers, if there is something to say
	wells atomic.Int32
	said  atomic.Bool
}

// lateHorovod is when workers that have not come are told of, where nothing tells sooner that they train.
const lateHorovod = 30 * time.Second

// awaited are those of a round, of which the agent knows that leads it; the others ask.
func (r *round) awaited(at start) *arrivals {
	switch port := strconv.Itoa(at.Exchange); {
	case !r.plan.Framework.Rendezvous || r.session.World.Size() == 1:
		return nil
	case r.state.leads():
		return &arrivals{file: filepath.Join(r.run, horovod.Empty(port))}
	default:
		return &arrivals{at: net.JoinHostPort(r.placeOf(at).MasterAddr, port), tell: func(text string) { r.c.Log.Warn(text) }}
	}
}

// open says that nobody has come, before anybody can. Who serves the rendezvous takes that back.
func (a *arrivals) open() error {
	if a == nil || a.file == "" {
		return nil
	}
	return os.WriteFile(a.file, nil, 0o600)
}

// ended takes in the end of a worker.
func (a *arrivals) ended(well bool) {
	if a != nil && well {
		a.wells.Add(1)
	}
}

// over reports whether workers of this node have ended well.
func (a *arrivals) over() bool { return a != nil && a.wells.Load() > 0 }

// alone returns what there is to say, once, of workers of which none has come, if it is time to.
func (a *arrivals) alone(late bool) string {
	if a == nil || !late || a.said.Load() {
		return ""
	}
	if a.file == "" {
		if !a.said.Swap(true) {
			go a.ask()
		}
		return ""
	}
	if _, err := os.Stat(a.file); err != nil || a.said.Swap(true) {
		return ""
	}
	return nobodyCame
}

// ask asks the node that serves the rendezvous. One that does not answer, or has an older muster, speaks for itself.
func (a *arrivals) ask() {
	ctx, stop := context.WithTimeout(context.Background(), comeTime)
	defer stop()
	if came, err := horovod.HasCome(ctx, a.at); err == nil && !came {
		a.tell(nobodyCame)
	}
}

// comeTime is how long an answer may take.
const comeTime = 10 * time.Second

const nobodyCame = "no worker has come to Horovod's rendezvous: those that train do so alone, each as a world of one rank; " +
	"does the script call hvd.init(), and was Horovod built with gloo (horovodrun --check-build)?"
