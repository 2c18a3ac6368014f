package launcher

import (
	"errors"
	"syscall"
	"testing"

	"github.com/muster-run/muster/test/freeport"
)

// A store that may be anywhere is not put where another job's workers are to listen; one that was asked for is.
func TestHeldPortIsNotTaken(t *testing.T) {
	port := freeport.Take(t)
	if ln, err := listenOn("127.0.0.1", port, false); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%v, %v", ln, err)
	}
	ln, err := listenOn("127.0.0.1", port, true)
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
}
