package launcher

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/ports"
	"github.com/muster-run/muster/proc"
)

// A neighbour is another job's agent that has the port at which this one is to host the meeting, and does not say that it shares it: its machine is
// busy, or it stands still. The zero value is none, as far as is known.
type neighbour struct{ show *waiting }

// muteTime is how long it is waited for.
const muteTime = time.Minute

// look takes in why the port was not to be had, and shows that this agent waits for a neighbour. It puts a deadline off for one that may still answer, and
// reports whether it was waited for long enough.
func (n *neighbour) look(m *meeting, err error, late *time.Time) (over bool) {
	if !errors.Is(err, errMute) {
		return false
	}
	if n.show == nil {
		n.show = newWaiting(m.c.Log, m.desk, "waiting for port "+portOf(m.port))
	}
	who, cure := m.listener()
	n.show.tick(fmt.Sprintf("%s agent%s has it and does not answer; %s", m.whoseAgent(), who, cure))
	if time.Since(n.show.began) >= muteTime || time.Now().After(m.end) {
		return true
	}
	*late = time.Now().Add(strangerTime) // after what may take longer than that on a busy machine
	return false
}

// unheard is the end of a wait for a neighbour.
func (m *meeting) unheard() error {
	who, cure := m.listener()
	return fail(job.ExitStranger, cure+", or give this job another port with --rdzv-endpoint or --master-port",
		"this node should host the meeting point, but %s agent%s has port %s and does not answer", m.whoseAgent(), who, portOf(m.port))
}

// pastAttempts is how many attempts at this job before this one are looked for.
const pastAttempts = 16

// whoseAgent says whose agent listens at the port: "another job's", or that of an earlier attempt at this one, as far as its claim shows.
func (m *meeting) whoseAgent() string {
	_, attempt, _ := cutLast(m.spec.ID, attemptMark)
	here, err := strconv.Atoi(attempt)
	if m.spec.ID == m.plan.Name || err != nil {
		return "another job's"
	}
	port := number(portOf(m.port))
	holders := ports.Holders(port)
	for n := here - 1; n >= max(0, here-pastAttempts); n-- {
		id := m.plan.Name
		if n > 0 {
			id += attemptMark + strconv.Itoa(n)
		}
		if slices.ContainsFunc(ports.Claimants(port, id), func(pid int) bool { return slices.Contains(holders, pid) }) {
			return fmt.Sprintf("an earlier attempt's (%s)", id)
		}
	}
	return "another job's"
}

// listener names who listens at the port, and says what helps where he does not answer.
func (m *meeting) listener() (who, cure string) {
	return unanswering(ports.Holders(number(portOf(m.port))))
}

// unanswering names processes of which one should answer, and says what helps where it does not.
func unanswering(all []int) (who, cure string) {
	for _, pid := range all {
		if p, err := proc.Root("/proc").Process(pid); err == nil && (p.State == 'T' || p.State == 't') {
			return ports.Named([]int{pid}), fmt.Sprintf("it was stopped: let it go on (kill -CONT %d), or end it", pid)
		}
	}
	return ports.Named(all), "end it if it hangs"
}
