package launcher

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/ports"
	"github.com/muster-run/muster/witness"
)

// heldRAS is the port of NCCL's watch, which the first process keeps from others beyond this agent's death.
const heldRAS = "ras"

// openRAS finds an address at which NCCL's own watch over this node's workers (RAS) answers: a port of the job's own, unless the user
// chose the address, or none. Where an agent before this one did so its choice stands, for the workers have it. free gives the port
// back.
func (h *heritage) openRAS(c Config) (free func()) {
	free = func() {}
	given, _ := c.getenv(witness.RASName)
	enabled, _ := c.getenv("NCCL_RAS_ENABLE")
	switch {
	case len(h.Plan.Devices) == 0 || enabled == "0":
		return free
	case given != "":
		h.RAS = given
		return free
	}
	if h.RAS == "" {
		fd, port, err := ports.Take(0, func(port int, lingering bool) (int, error) { return h.Plan.holdRAS(c, port, lingering) })
		if err != nil {
			c.Log.Info(fmt.Sprintf("NCCL's watch (RAS) has no address of this job's own: %v", err))
			return free
		}
		v := witness.RASVar(port)
		h.RAS, h.RASVar = v.Value, &v
		return c.keepPort(fd)
	}
	return func() { _ = c.First.Drop(heldRAS) }
}

// keepPort keeps a port that is held until free, beyond the death of this agent.
func (c Config) keepPort(fd int) (free func()) {
	held := os.NewFile(uintptr(fd), heldRAS)
	if c.First == nil { // no test of a port alone
		return func() { held.Close() }
	}
	defer held.Close()
	if err := c.First.Hold(heldRAS, held); err != nil {
		c.Log.Debug(err.Error())
	}
	return func() { _ = c.First.Drop(heldRAS) }
}

// holdRAS keeps a port for NCCL, which binds it as PyTorch binds its store's, unless it is to be somebody else's later.
func (p Plan) holdRAS(c Config, port int, lingering bool) (int, error) {
	if _, meeting, _ := net.SplitHostPort(string(p.Endpoint)); port == c.WorkerPort || strconv.Itoa(port) == meeting {
		return -1, errors.New("it is another's")
	}
	return ports.Hold(port, lingering)
}

// withRAS adds to a task's environment where NCCL's watch is to answer.
func (h *heritage) withRAS(t job.Task) job.Task {
	if h.RASVar != nil {
		t.Env = append(t.Env, *h.RASVar)
	}
	return t
}
