package launcher

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/output"
)

// DefaultQuota is what the log files of one stream of one worker may hold.
const DefaultQuota = 256 << 20

// openLogs makes the directory of this run's log files, if there are to be any, and returns where the output goes.
func openLogs(c Config, p Plan) (output.Routes, error) {
	o := c.Output
	base, err := c.petOutput(&o)
	if err != nil {
		return o, err
	}
	for flag, s := range map[string]output.Streams{"redirects": o.Redirects, "tee": o.Tee} {
		if local := s.MaxLocal(); local >= p.Spec.Self.Slots {
			return o, fail(job.ExitUsage, "", "--%s names local rank %d, but this node has %d workers, numbered from 0", flag, local, p.Spec.Self.Slots)
		}
	}
	if base == os.DevNull || base == "" && !o.Redirects.Any() && !o.Tee.Any() {
		return o, nil
	}
	if o.Dir, err = logDir(base, p.Called, c.Host.Hostname); err != nil {
		return o, fail(job.ExitSystem, "say --log-dir with a directory that can be written", "make a directory for log files: %w", err)
	}
	c.Log.Info("log files are in " + o.Dir)
	o.Dir, err = filepath.Abs(o.Dir) // workers, who get paths below it, may go elsewhere
	return o, err
}

// warnBeyond tells of flags that name ranks which the world does not have.
func (c Config) warnBeyond(size int) {
	for flag, ranks := range map[string]output.Ranks{"ranks": c.Output.Ranks, "stdin": c.Output.Stdin} {
		if rank := ranks.Beyond(size); rank >= 0 {
			c.Log.Warn(fmt.Sprintf("--%s names rank %d, but the world has ranks 0 to %d", flag, rank, size-1))
		}
	}
}

// petOutput completes o with torchrun's variables, where no flag said it, and returns the base of the log files. A base alone
// means that everything is wanted in files too.
func (c Config) petOutput(o *output.Routes) (base string, err error) {
	base = c.LogDir
	said := map[string]bool{}
	for _, v := range []struct {
		flag, name string
		set        func(string) error
	}{
		{"log-dir", "PET_LOG_DIR", func(text string) error { base = text; return nil }},
		{"redirects", "PET_REDIRECTS", func(text string) error { return o.Redirects.Set(text) }},
		{"tee", "PET_TEE", func(text string) error { return o.Tee.Set(text) }},
		{"local-ranks-filter", "PET_LOCAL_RANKS_FILTER", func(text string) error { return o.LocalRanks.Set(text) }},
	} {
		text, _ := c.getenv(v.name)
		if _, said[v.flag] = c.From[v.flag]; said[v.flag] || text == "" {
			continue
		}
		said[v.flag] = true
		if err := v.set(text); err != nil {
			return "", fail(job.ExitUsage, "", "%s: %w", v.name, err)
		}
	}
	if base != "" && !said["redirects"] && !said["tee"] {
		o.Tee = output.AllStreams
	}
	return base, nil
}

// logDir makes this node's directory of this run, as torchrun names it, and with the host: nodes may share a file system.
func logDir(base, id, host string) (string, error) {
	var err error
	if base == "" {
		base, err = os.MkdirTemp("", "muster-logs-")
	} else {
		err = os.MkdirAll(base, 0o755)
	}
	if err != nil {
		return "", err
	}
	return os.MkdirTemp(base, fmt.Sprintf("%s_%s_*", safeName(id), safeName(host)))
}
