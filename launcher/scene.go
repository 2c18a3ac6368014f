package launcher

import (
	"os"
	"sync"

	"github.com/muster-run/muster/evidence"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report"
)

// A scene is what this node's workers find around them, as far as it may end them.
type scene struct {
	memory evidence.Memory
	before evidence.Usage // of memory, when the round began
	disks  []string
	hidden func() report.Mask // of the environment's secrets
	files  *reach             // where those are, and what workers leave there
}

// openScene looks around before workers are started. What cannot be read is not known later either.
func openScene(c Config) scene {
	memory, _ := evidence.OpenMemory("/", os.Getpid())
	before, _ := memory.Read()
	disks := []string{"."}
	for _, name := range []string{"TMPDIR", "HOME"} {
		if dir, _ := c.getenv(name); dir != "" {
			disks = append(disks, dir)
		}
	}
	return scene{memory, before, disks, sync.OnceValue(func() report.Mask { return report.NewMask(c.Environ) }), new(reach)}
}

// explain adds to a failure what its end means, as far as the worker's last lines and this machine tell, and hides secrets in it. ended is the exception that ended
// its program, as its page tells; "": of none, or that is not known.
func (s scene) explain(f *job.Failure, ended string, tail []string) {
	sig, _ := evidence.Recognise(f.Exception, ended, tail)
	f.Echo = sig.Consequence
	after, _ := s.memory.Read()
	full, _ := reachFor(s.files, func() []evidence.Space { return evidence.Disk(s.disks...) })
	found, hint := evidence.Explain(*f, evidence.Seen{
		Tail: tail, Ended: ended, OOM: after.Since(s.before), Shared: evidence.SharedMemory(), Full: full,
	})
	if found.Kind == sig.Kind && f.Exception == "" && sig.Line != "" { // which library, which argument
		found.Text += ": " + s.hidden().Line(sig.Line, exceptionText)
	}
	if found.Text != "" {
		f.Evidence, f.Hint = append(f.Evidence, found), hint
	}
	s.hidden().Failure(f)
}
