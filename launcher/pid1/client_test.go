package pid1

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// When the first process is killed the kernel tells the agent by SIGTERM, perhaps long before the connection ends: nobody
// has asked the job to stop. What came by way of the first process did.
func TestDeathIsNoRequest(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	first, err := newLink(pair[0])
	if err != nil {
		t.Fatal(err)
	}
	agent, err := newLink(pair[1])
	if err != nil {
		t.Fatal(err)
	}
	first.settle(false)
	agent.settle(false)
	c := newClient(agent)
	if err := first.send(message{Kind: tellSignal, Signal: unix.SIGINT}); err != nil {
		t.Fatal(err)
	}
	if s := <-c.Signals(); s != unix.SIGINT {
		t.Errorf("delivered %v, want what the first process told of, %v", s, unix.SIGINT)
	}
	c.direct <- os.Signal(unix.SIGTERM)
	first.conn.Close()
	<-c.Lost()
	c.direct <- os.Signal(unix.SIGHUP)
	if s := <-c.Signals(); s != unix.SIGHUP {
		t.Errorf("delivered %v, want only what came after the first process's death, %v", s, unix.SIGHUP)
	}
	c.Close(0)
}
