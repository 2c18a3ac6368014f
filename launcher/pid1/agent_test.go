package pid1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/muster-run/muster/proc"
)

// agents are the agents of these tests, by the name in MUSTER_TEST_AGENT.
var agents = map[string]func(c *Client) int{
	"sh": agentSh,
}

// agentMain is what cmd/muster does: become the first process, or be its agent.
func agentMain() int {
	c, err := Connect()
	if errors.Is(err, ErrNone) {
		return Main(Config{TerminationLog: os.Getenv("MUSTER_TERMINATION_LOG"), Grace: time.Second})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		return 70
	}
	code := agents[os.Getenv("MUSTER_TEST_AGENT")](c)
	if err := c.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
	}
	return code
}

// agentSh runs its arguments as one worker, prints its output and ends as it does.
func agentSh(c *Client) int {
	child, err := c.Start(context.Background(), proc.Spec{Argv: os.Args[1:], Env: os.Environ(), Tag: "test/0/1/x"})
	var e *proc.StartError
	if errors.As(err, &e) {
		fmt.Fprintln(os.Stderr, err)
		return e.Code
	}
	for s := bufio.NewScanner(child.Stdout); s.Scan(); {
		fmt.Println(s.Text())
	}
	exit := <-child.Exit
	return exit.Status()
}

func initMain() int { return 0 }
