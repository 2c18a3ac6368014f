package discovery

import (
	"errors"
	"fmt"
	"net/netip"
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
		i, err := r.among(all)
		if err != nil {
			return half("%s %v: say --nnodes 1 for a run of this node alone, or --nnodes, --node-rank and --rdzv-endpoint", path, err)
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

// among is which line of a list means this node: by its full name, by an address, else by the first part of its name, where no other line has the
// same. The error begins where the file's name ends.
func (r *reader) among(all []HostLine) (int, error) {
	exact := slices.IndexFunc(all, func(l HostLine) bool { return strings.EqualFold(l.Host, r.host.Hostname) })
	if exact < 0 {
		own := r.addresses()
		exact = slices.IndexFunc(all, func(l HostLine) bool { return slices.Contains(own, l.Host) })
	}
	if exact >= 0 || len(all) == 1 && r.isHere(all[0].Host) {
		return max(exact, 0), nil
	}
	at := -1
	for i, l := range all {
		switch {
		case !r.isSelf(l.Host):
		case at >= 0:
			return -1, fmt.Errorf("has %s and %s, and which of them %s is nobody can tell", all[at].Host, l.Host, r.host.Hostname)
		default:
			at = i
		}
	}
	if at < 0 {
		return -1, fmt.Errorf("has %d hosts, and %s is none of them", len(all), r.host.Hostname)
	}
	return at, nil
}

// addresses are this node's, so far as somebody knows them: the machine, the downward API, kubelet's line of /etc/hosts.
func (r *reader) addresses() (own []string) {
	var all []string
	if r.host.Addresses != nil {
		all = r.host.Addresses()
	}
	all = append(all, r.get("POD_IP"), r.get("MY_POD_IP"))
	b, _ := r.host.ReadFile("/etc/hosts") // there need not be one
	for line := range strings.Lines(string(b[:min(len(b), maxFile)])) {
		if words := strings.Fields(line); len(words) > 1 && slices.Contains(words[1:], r.host.Hostname) {
			all = append(all, words[0])
		}
	}
	for _, text := range all {
		if ip, err := netip.ParseAddr(text); err == nil && !ip.IsLoopback() {
			own = append(own, ip.Unmap().String())
		}
	}
	return own
}

// isHere reports whether a name or address means this node, if only from here.
func (r *reader) isHere(name string) bool {
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && ip.IsLoopback() || r.isSelf(name) || slices.Contains(r.addresses(), name)
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
