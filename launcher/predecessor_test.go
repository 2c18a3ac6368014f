package launcher

import (
	"testing"
	"time"

	"github.com/muster-run/muster/ports"
)

// Who has the job's claim on the port is an agent of the job, also when it does not answer yet.
func TestPredecessorIsKnownByItsClaim(t *testing.T) {
	t.Parallel()
	c, p := joiner(freeEndpoint(t), 2, 0, "a")
	m := &meeting{c: c, plan: p, spec: p.Spec, port: p.Endpoint, end: time.Now().Add(time.Minute)}
	var before predecessor
	if before.look(t.Context(), m, time.Now()); before.show != nil {
		t.Fatal("nobody is there")
	}
	claim, err := ports.Claim(number(portOf(m.port)), m.spec.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer claim.Close()
	for late := time.Now().Add(time.Minute); before.show == nil; before.look(t.Context(), m, time.Now()) { // again and again, as who is to host does
		if time.Now().After(late) {
			t.Fatal("it is taken for another program")
		}
	}
}
