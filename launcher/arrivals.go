package launcher

import (
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/muster-run/muster/horovod"
)

// arrivals is whether workers come to Horovod's rendezvous, as the node knows that serves it. Each of those that do not is a world of one rank.
type arrivals struct {
	file  string // is there until one has come
	wells atomic.Int32
	said  atomic.Bool
}

// lateHorovod is when workers that have not come are told of, where nothing tells sooner that they train.
const lateHorovod = 30 * time.Second

// awaited are those of a round, of which the agent knows that leads it.
func (r *round) awaited(at start) *arrivals {
	if !r.plan.Framework.Rendezvous || !r.state.leads() || r.session.World.Size() == 1 {
		return nil
	}
	return &arrivals{file: filepath.Join(r.run, horovod.Empty(strconv.Itoa(at.Exchange)))}
}

// open says that nobody has come, before anybody can. Who serves the rendezvous takes that back.
func (a *arrivals) open() error {
	if a == nil {
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
	if _, err := os.Stat(a.file); err != nil || a.said.Swap(true) {
		return ""
	}
	return "no worker has come to Horovod's rendezvous: those that train do so alone, each as a world of one rank; " +
		"does the script call hvd.init(), and was Horovod built with gloo (horovodrun --check-build)?"
}
