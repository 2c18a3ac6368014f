package launcher

import (
	"fmt"
	"sync"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/suspects"
)

// This file is the directory in which jobs remember which machines failed them. It may be on a server that does not answer: nobody
// waits for it long.

const (
	readSuspects  = 2 * time.Second
	writeSuspects = time.Second // at the end of a job, for what is being written
)

// doubt returns what the meeting asks about machines; nil: there is no such directory. It is read at the first question, by the node
// that leads the meeting alone.
func (c Config) doubt() func(job.Machine) string {
	if c.Suspects == "" {
		return nil
	}
	findings := sync.OnceValue(c.findings)
	return func(m job.Machine) string {
		f, found := suspects.About(findings(), m)
		if !found {
			return ""
		}
		return report.Line(fmt.Sprintf("%v is suspect since %s: %s (job %s)", m, f.Time.UTC().Format("2006-01-02 15:04Z"), f.Why, f.Job), 400)
	}
}

// findings reads the directory.
func (c Config) findings() []suspects.Finding {
	type result struct {
		all []suspects.Finding
		err error
	}
	read := make(chan result, 1)
	go func() { // no deadline ends a call to a file server that is gone; what comes too late nobody takes
		all, err := suspects.Dir(c.Suspects).Read(time.Now().Add(-c.SuspectsFor))
		read <- result{all, err}
	}()
	select {
	case r := <-read:
		if r.err != nil {
			c.Log.Warn(fmt.Sprintf("%s %s: %v", c.by("suspects"), c.Suspects, r.err))
		}
		return r.all
	case <-time.After(readSuspects):
		c.Log.Warn(fmt.Sprintf("%s %s could not be read within %v: nobody is suspected", c.by("suspects"), c.Suspects, readSuspects))
		return nil
	}
}

// say is for what the meeting has to say to people.
func (c Config) say(d *desk) func(string) {
	return func(text string) {
		c.Log.Warn(text)
		d.remark(text)
	}
}

// accuse keeps a finding, while the round goes on. The leader's policy may ask it of a node that has no directory.
func (r *round) accuse(a accuse) {
	if r.c.Suspects == "" {
		return
	}
	finding := suspects.Finding{Time: time.Now(), Machine: a.Machine, Kind: a.Kind, Why: a.Why, Job: r.plan.Spec.ID, By: r.c.Host.Hostname}
	r.c.Log.Warn(fmt.Sprintf("%v is suspect from now on, for %v", a.Machine, r.c.SuspectsFor))
	before, written := r.written, make(chan struct{})
	r.written = written
	go func() {
		defer close(written)
		if before != nil {
			<-before
		}
		if err := suspects.Dir(r.c.Suspects).Add(r.plan.Spec.Machine, finding); err != nil {
			r.c.Log.Warn(err.Error())
		}
	}()
}

// endAccusing waits for what is being written, but not for ever.
func (r *round) endAccusing() {
	if r.written == nil {
		return
	}
	select {
	case <-r.written:
	case <-time.After(writeSuspects):
		r.c.Log.Warn(fmt.Sprintf("%s %s does not take what was found within %v", r.c.by("suspects"), r.c.Suspects, writeSuspects))
	}
}
