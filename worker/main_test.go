package worker_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/test/leak"
)

// first is the first process of this test binary.
var first *pid1.Client

// TestMain runs the tests as an agent: the test binary becomes a first process, which starts it again.
func TestMain(m *testing.M) {
	if role := os.Getenv("MUSTER_TEST_WORKER"); role != "" {
		workers[role]()
		os.Exit(0)
	}
	c, err := pid1.Connect()
	if errors.Is(err, pid1.ErrNone) {
		os.Exit(pid1.Main(pid1.Config{}))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	first = c
	code := leak.Run(m)
	c.Close(code)
	os.Exit(code)
}

// workers are programs for the tests to start, by the name in MUSTER_TEST_WORKER.
var workers = map[string]func(){}
