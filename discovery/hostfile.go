package discovery

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-run/muster/job"
)

// hostfiles are where systems leave the list of a job's nodes: T9k's DeepSpeedJob, DeepSpeed's own default, MPI's operators.
var hostfiles = []string{"/t9k/hostfile", "/job/hostfile", mpiHostfile}

// hostfile is a list of nodes, in which this one is. Their order is that of their numbers.
var hostfile = platform{
	name: "hostfile",
	here: func(r *reader) bool { return hostfilePath(r) != "" || r.any("DLTS_HOSTFILE") },
	find: func(r *reader, f *Finding) error {
		path := hostfilePath(r)
		if path == "" {
			return half("DLTS_HOSTFILE=%s is not there, or empty", r.text("DLTS_HOSTFILE"))
		}
		all, err := Hostfile(r.file(path))
		if err != nil {
			return fmt.Errorf("%s %w", path, err)
		}
		i := slices.IndexFunc(all, func(l HostLine) bool { return r.isSelf(l.Host) })
		if i < 0 {
			return half("%s has %d hosts, and %s is none of them: say --nnodes 1 for a run of this node alone, or --node-rank", path, len(all), r.host.Hostname)
		}
		f.lines(all)
		f.Rank, f.Decider = i, i == 0
		f.slots(all, i, path)
		if _, role, n, ok := member(first(r.host.Hostname), roles...); ok {
			f.Role, f.Index = role, n
		}
		return r.at(path, all[0].Host, f)
	},
	over: []string{"indexed", "jobset", "ordinal"},
}

// hostfilePath is the one that is there.
func hostfilePath(r *reader) string {
	for _, path := range append([]string{r.get("DLTS_HOSTFILE")}, hostfiles...) {
		if path != "" && strings.HasPrefix(path, "/") && strings.TrimSpace(r.file(path)) != "" {
			return path
		}
	}
	return ""
}

// isSelf reports whether a name in somebody's list means this node: hosts are listed by their full names, and call themselves by the first
// part.
func (r *reader) isSelf(name string) bool {
	return strings.EqualFold(name, r.host.Hostname) || strings.EqualFold(first(name), first(r.host.Hostname))
}

// lines says who is in a list of nodes.
func (f *Finding) lines(all []HostLine) {
	f.Nodes, f.Hosts = len(all), nil
	for _, l := range all {
		f.Hosts = append(f.Hosts, l.Host)
	}
}

// slots says how many workers node i has.
func (f *Finding) slots(all []HostLine, i int, path string) {
	if n := all[i].Slots; n > 0 {
		f.NProc, f.NProcBy = strconv.Itoa(n), path
	}
}

// A HostLine is one of a hostfile: a node, and how many workers it has; 0 where the line does not say.
type HostLine struct {
	Host  string
	Slots int
}

// Hostfile reads a list of nodes in the words of DeepSpeed and Open MPI, "host slots=8", or of Intel MPI and MPICH, "host:8". The error
// begins where the file's name ends.
func Hostfile(text string) (all []HostLine, err error) {
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		l, err := hostLine(words)
		if err != nil {
			return nil, fmt.Errorf("has the line %q, which %w", clip(strings.TrimSpace(line)), err)
		}
		if seen[l.Host] {
			return nil, fmt.Errorf("has %s twice", l.Host)
		}
		seen[l.Host] = true
		if all = append(all, l); len(all) > job.MaxNodes {
			return nil, errTooMany
		}
	}
	if len(all) == 0 {
		return nil, errors.New("has no hosts")
	}
	return all, nil
}

func hostLine(words []string) (l HostLine, err error) {
	if l.Host, l.Slots, err = Endpoint(words[0]); err != nil { // host:8 has the form of an endpoint
		return l, err
	}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		if name == "slots" {
			if l.Slots, err = whole(value); err != nil || l.Slots > 1<<16 {
				return l, fmt.Errorf("has slots=%s, which is no number of workers", clip(value))
			}
		}
	}
	return l, nil
}
