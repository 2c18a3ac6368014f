package launcher

// agentStore decides whether the agent hosts the workers' store or rank 0 does. docs/worker-store.md has the reasons.
func agentStore(c Config, p Plan) bool {
	return c.WorkerStore == "agent"
}
