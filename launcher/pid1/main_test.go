package pid1

import (
	"os"
	"testing"
)

// The test binary is also the binary under test: MUSTER_TEST_AGENT names what it shall do as an agent, behind a first
// process, and MUSTER_TEST_INIT makes it "muster init".
func TestMain(m *testing.M) {
	switch {
	case os.Getenv("MUSTER_TEST_AGENT") != "":
		os.Exit(agentMain())
	case os.Getenv("MUSTER_TEST_INIT") != "":
		os.Exit(initMain())
	}
	os.Exit(m.Run())
}
