package launcher

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/witness"
)

// NCCL's watch gets an address of the job's own where there are GPUs, unless the user chose one, or none; two jobs never have the same.
func TestOpenRAS(t *testing.T) {
	for _, c := range []struct {
		environ string
		gpus    int
		set     bool   // muster sets the variable
		asked   string // where the watch is asked, if it does not
	}{
		{"", 0, false, ""},
		{"NCCL_RAS_ADDR=localhost:5", 0, false, ""},
		{"", 2, true, ""},
		{"NCCL_RAS_ENABLE=1", 2, true, ""},
		{"NCCL_RAS_ENABLE=0", 2, false, ""},
		{"NCCL_RAS_ENABLE=0 NCCL_RAS_ADDR=localhost:5", 2, false, ""},
		{"NCCL_RAS_ADDR=[::1]:5", 2, false, "[::1]:5"},
	} {
		h := &heritage{Plan: Plan{Devices: make([]string, c.gpus)}}
		free := h.openRAS(Config{Environ: strings.Fields(c.environ)})
		defer free()
		value, set := h.withRAS(job.Task{}).Env.Lookup(witness.RASName)
		if set != c.set || set && value != h.RAS || !set && h.RAS != c.asked {
			t.Errorf("%q with %d GPUs: %q %v, asked at %q", c.environ, c.gpus, value, set, h.RAS)
		}
		if !set {
			continue
		}
		host, port, err := net.SplitHostPort(h.RAS)
		if host != "127.0.0.1" || err != nil {
			t.Errorf("%q, %v", h.RAS, err)
		}
		other := &heritage{Plan: h.Plan}
		defer other.openRAS(Config{})()
		if other.RAS == h.RAS {
			t.Errorf("two jobs have %q", h.RAS)
		}
		number := 0
		fmt.Sscan(port, &number)
		if fd, err := h.Plan.holdRAS(Config{}, number, false); err == nil {
			t.Errorf("another job could have %q, too (descriptor %d)", h.RAS, fd)
		}
		if _, err := (Plan{Endpoint: job.Addr("h:" + port)}).holdRAS(Config{}, number, true); err == nil {
			t.Error("it may be where the nodes meet")
		}
	}
}

// An agent that takes over keeps the address that the workers have.
func TestOpenRASAgain(t *testing.T) {
	v := witness.RASVar(28100)
	h := &heritage{Plan: Plan{Devices: make([]string, 1)}, RAS: v.Value, RASVar: &v}
	h.openRAS(Config{})
	if h.RAS != "127.0.0.1:28100" {
		t.Error(h.RAS)
	}
}
