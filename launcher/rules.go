package launcher

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/muster-run/muster/job"
)

// This file is which flags count where nodes were given different ones. What a world does is decided by one policy, its leader's:
// else one node would stop its workers later than others reckon with, or end the job in which they go on.

// under is a node's policy in a world whose leader told its own; nil: it has not. When a node's platform ends the job stays its own.
func (p policy) under(leader *policy) policy {
	if leader == nil {
		return p
	}
	theirs := *leader
	theirs.JobEnd = p.JobEnd
	return theirs
}

// rules are what members must know of a policy.
func (p policy) rules() *policy {
	p.JobEnd = 0
	return &p
}

// encode is how nodes hand the policy on from world to world.
func (p policy) encode() json.RawMessage {
	b, _ := json.Marshal(p.rules()) // numbers and words, which cannot fail
	return b
}

// inherited is the policy of a new world that is not simply this node's own; nil: that one counts, or what was told is nothing that this release
// reads, and who leads tells its own.
func (r *round) inherited(rules *job.Rules) *policy {
	if rules == nil || len(rules.Policy) == 0 {
		return nil
	}
	var theirs policy
	if err := json.Unmarshal(rules.Policy, &theirs); err != nil {
		r.c.Log.Debug(fmt.Sprintf("the job's policy: %v", err))
		return nil
	}
	if r.state.Policy == nil && theirs == *r.policy.rules() {
		return nil
	}
	return &theirs
}

// worldFlags are the flags of which the leader's count.
var worldFlags = []struct {
	name  string
	value func(policy) any
}{
	{"max-restarts", func(p policy) any { return p.MaxRestarts }},
	{"restart-window", func(p policy) any { return p.Window }},
	{"restart-backoff", func(p policy) any { return p.Backoff }},
	{"exclude-after", func(p policy) any { return p.Exclude }},
	{"exclude-for", func(p policy) any { return p.Rest }},
	{"join-policy", func(p policy) any { return p.Join }},
	{"last-call", func(p policy) any { return p.LastCall }},
	{"node-timeout", func(p policy) any { return p.nodeTimeout() }},
	{"stop-timeout", func(p policy) any { return p.StopTimeout }},
	{"grace", func(p policy) any { return p.Grace }},
	{"success", func(p policy) any { return p.Success }},
	{"max-idle-rounds", func(p policy) any { return p.Idle }},
	{"on-hang", func(p policy) any { return cmp.Or(p.OnHang, hangDump) }},
	{"on-worker-exit", func(p policy) any { return cmp.Or(p.OnExit, "stop") }},
	{"signal-exit posix", func(p policy) any { return p.Posix }},
}

// overruled says which of this node's flags do not count; "": all do.
func (p policy) overruled(theirs policy) string {
	var flags []string
	for _, f := range worldFlags {
		if a, b := f.value(theirs), f.value(p); a != b {
			flags = append(flags, fmt.Sprintf("--%s %v, not %v", f.name, a, b))
		}
	}
	if len(flags) == 0 && theirs.Regroups != p.Regroups {
		flags = append(flags, "--rdzv-timeout, which is 0 on one of both")
	}
	if len(flags) == 0 {
		return ""
	}
	return fmt.Sprintf("the flags of the job's first leader count: %s; give all nodes the same", strings.Join(flags, ", "))
}

// heed says once where this node was told otherwise than its world.
func (r *round) heed() {
	text := r.policy.overruled(r.rules())
	if text != "" && text != r.overruled {
		r.c.Log.Warn(text)
	}
	r.overruled = text
}

// rules are the policy of the world that this node is in.
func (r *round) rules() policy { return r.state.rules(r.policy) }

// rules are those of a world, for a node with this policy of its own. The world itself says when nodes give each other up: members that have not
// heard their leader's policy yet, and those of an older release, must not take another time for that.
func (s *state) rules(own policy) policy {
	p := own.under(s.Policy)
	p.NodeTimeout = s.Timeout
	return p
}
