package discovery

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-run/muster/job"
)

// A reader reads variables and files, and keeps what it saw as evidence.
type reader struct {
	host     job.Host
	evidence []string
	warnings []Warning
}

// A halfMatch is what a system's traces lack to be one: they prove that it is there, and do not say enough.
type halfMatch struct {
	text     string
	harmless bool // a node alone may have them, too
}

func (h halfMatch) Error() string { return h.text }

func half(format string, args ...any) error { return halfMatch{text: fmt.Sprintf(format, args...)} }

func harmless(format string, args ...any) error {
	return halfMatch{text: fmt.Sprintf(format, args...), harmless: true}
}

// isHalf reports whether err means that another platform may have the rest.
func isHalf(err error) bool { return errors.As(err, new(halfMatch)) }

// errUnset says that a variable is not there.
var errUnset = errors.New("not set")

// get is a variable without the blanks around it, not kept as evidence.
func (r *reader) get(name string) string { return strings.TrimSpace(r.host.Getenv(name)) }

// all reports whether all of these variables are set.
func (r *reader) all(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return r.get(name) == "" })
}

// any reports whether one of these variables is set, and not by kubelet in the name of a Service.
func (r *reader) any(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return r.get(name) != "" && !isLink(r.get(name)) })
}

// isLink reports whether a value is what kubelet writes into NAME_PORT for a Service called "name".
func isLink(value string) bool { return strings.Contains(value, "://") }

// text returns a variable that is set, "" otherwise.
func (r *reader) text(name string) string {
	v := r.get(name)
	if v != "" {
		r.saw(name + "=" + v)
	}
	return v
}

// maxEvidence bounds what is repeated of a value: some hold the names of all nodes.
const maxEvidence = 160

// saw keeps a piece of evidence, once.
func (r *reader) saw(text string) {
	if len(text) > maxEvidence {
		text = strings.ToValidUTF8(text[:maxEvidence], "") + "…"
	}
	if !slices.Contains(r.evidence, text) {
		r.evidence = append(r.evidence, text)
	}
}

// warn keeps what a person should know; code is the same in a word for programs.
func (r *reader) warn(code, format string, args ...any) {
	r.warnings = append(r.warnings, Warning{code, fmt.Sprintf(format, args...)})
}

// need returns a variable without which the system says nothing.
func (r *reader) need(name string) (string, error) {
	if v := r.text(name); v != "" {
		return v, nil
	}
	return "", half("%s is not set", name)
}

// number returns a variable that must be a whole number of at least low when it is set, and with an error the one below: it says nothing, where 0 may be a
// node's number. errUnset says that it is not set.
func (r *reader) number(name string, low int) (int, error) {
	v := r.text(name)
	if v == "" {
		return low - 1, errUnset
	}
	n, err := whole(v)
	if err != nil || n < low {
		return low - 1, fmt.Errorf("%s=%s is not a whole number from %d on", name, clip(v), low)
	}
	return n, nil
}

// required is number where the system says nothing without it.
func (r *reader) required(name string, low int) (int, error) {
	n, err := r.number(name, low)
	if errors.Is(err, errUnset) {
		return n, half("%s is not set", name)
	}
	return n, err
}

// maybe is number where it may be missing.
func (r *reader) maybe(name string, low, fallback int) (int, error) {
	n, err := r.number(name, low)
	return optional(n, err, fallback)
}

// plain is a variable's number, if it is nothing else.
func (r *reader) plain(name string) (int, bool) {
	n, err := whole(r.get(name))
	return n, err == nil
}

// whole takes digits alone, as no other number of nodes or port is meant.
func whole(text string) (int, error) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, errors.New("is not a whole number")
	}
	return strconv.Atoi(text)
}

// clip bounds what is repeated of somebody else's text in an error.
func clip(text string) string {
	if len(text) > maxEvidence {
		return strings.ToValidUTF8(text[:maxEvidence], "") + "…"
	}
	return text
}

// attempt is the number of this start of the job, where a system tells all nodes the same.
func (r *reader) attempt(name string, f *Finding) error {
	n, err := r.maybe(name, 0, -1)
	if err == nil && n >= 0 {
		f.Attempt, f.AttemptBy = n, name
	}
	return err
}

// port returns a variable that holds a port, or 0. A Service named "master" makes kubelet set MASTER_PORT=tcp://…,
// which is not meant for us: it counts as unset, with a warning.
func (r *reader) port(name string) (int, error) {
	if v := r.get(name); isLink(v) {
		r.warn("service_link", "%s=%s is no port; it is left aside", name, clip(v))
		return 0, nil
	}
	n, err := r.number(name, 1)
	if err == nil && n > 65535 {
		return 0, fmt.Errorf("%s=%d is no port: the last is 65535", name, n)
	}
	return optional(n, err, 0)
}

// world reads how many nodes there are and which one this is, where a system has a variable for each that nobody else has.
func (r *reader) world(f *Finding, nodes, rank string) (err error) {
	if f.Nodes, err = r.required(nodes, 1); err != nil {
		return err
	}
	f.Rank, err = r.required(rank, 0)
	return err
}

// master reads where node 0 runs, and the port there. In a job of one node nobody is to be met, so that an odd address
// does no harm.
func (r *reader) master(addr, port string, f *Finding) (err error) {
	if f.Port, err = r.port(port); err != nil {
		return err
	}
	return r.at(addr, r.text(addr), f)
}

// at says that node 0 runs on this host, which a variable or file names.
func (r *reader) at(name, host string, f *Finding) (err error) {
	if f.Host, err = Host(host); err != nil && f.Nodes != 1 {
		return fmt.Errorf("%s=%s %w", name, clip(host), err)
	}
	f.RankZero = true
	return nil
}

// endpoint is at with a port behind the host.
func (r *reader) endpoint(name, text string, f *Finding) (err error) {
	if f.Host, f.Port, err = Endpoint(text); err != nil && f.Nodes != 1 {
		return fmt.Errorf("%s=%s %w", name, clip(text), err)
	}
	f.RankZero = true
	return nil
}

// itself says that node 0 is this one, which the system tells nobody but the others.
func (r *reader) itself(f *Finding) {
	f.Self, f.RankZero = true, true
	f.Host, _ = Host(r.host.Hostname) // a machine's name is one
}

// optional turns an unset number into fallback.
func optional(n int, err error, fallback int) (int, error) {
	if errors.Is(err, errUnset) {
		return fallback, nil
	}
	return n, err
}

// maxFile bounds a file that a system mounted: a line for each of the most nodes takes less.
const maxFile = 1 << 24

// file returns a file that a system mounted, "" when there is none.
func (r *reader) file(path string) string {
	b, err := r.host.ReadFile(path)
	if err != nil || len(b) == 0 || len(b) > maxFile {
		return ""
	}
	r.saw(path)
	return string(b)
}

// files are the names of those in a directory that end so, in order.
func (r *reader) files(dir, suffix string) (names []string) {
	if r.host.List == nil {
		return nil
	}
	for _, name := range r.host.List(dir) {
		if strings.HasSuffix(name, suffix) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, natural)
	return names
}

// variables are the names of those that begin and end so, in order.
func (r *reader) variables(prefix, suffix string) (names []string) {
	for _, kv := range r.host.Environ {
		name, _, _ := strings.Cut(kv, "=")
		if len(name) > len(prefix)+len(suffix) && strings.HasPrefix(name, prefix) && strings.HasSuffix(name, suffix) && r.get(name) != "" {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, natural)
	return slices.Compact(names)
}

// sizeVariable is --nnodes, for platforms that do not say how many nodes there are.
const sizeVariable = "MUSTER_NNODES"

// size is the number of nodes where the platform does not say it.
func (r *reader) size(f *Finding) (err error) {
	v := r.text(sizeVariable)
	if v == "" {
		return errUnset
	}
	f.asked = true
	if f.Least, f.Nodes, err = job.ParseNodes(v); err != nil {
		return fmt.Errorf("%s=%w", sizeVariable, err)
	}
	return nil
}

// gpus is how many GPUs the workers of this node would see.
func (r *reader) gpus() int {
	if r.host.GPUs == nil {
		return 0
	}
	return r.host.GPUs()
}

// inKubernetes: kubelet tells every container where its API server is.
func (r *reader) inKubernetes() bool { return r.get("KUBERNETES_SERVICE_HOST") != "" }

// kubeletOnHost is how kubelet begins /etc/hosts of a pod on the host's network (pkg/kubelet/kubelet_pods.go).
const kubeletOnHost = "# Kubernetes-managed hosts file (host network)."

// onHost reports whether this is a pod on the host's network, whose name is the machine's: a number in that is none of the job's.
func (r *reader) onHost() bool {
	b, _ := r.host.ReadFile("/etc/hosts") // nobody knows where there is none
	return strings.HasPrefix(string(b), kubeletOnHost)
}

// subdomain is that of this pod, by the line that kubelet writes for it into /etc/hosts; known is false where it writes none: on a host's
// network, or outside Kubernetes.
func (r *reader) subdomain() (name string, known bool) {
	b, err := r.host.ReadFile("/etc/hosts")
	if err != nil || len(b) > maxFile || r.onHost() {
		return "", false
	}
	own := first(r.host.Hostname)
	for line := range strings.Lines(string(b)) {
		words := strings.Fields(line)
		if len(words) < 2 || strings.HasPrefix(line, "#") || strings.HasPrefix(words[0], "127.") {
			continue
		}
		if rest, ok := strings.CutPrefix(words[1], own+"."); ok {
			return first(rest), true
		}
		if slices.Contains(words[1:], own) {
			known = true
		}
	}
	return "", known
}

// first is a name's first label: of an address it is all of it.
func first(name string) string {
	label, _, _ := strings.Cut(name, ".")
	if strings.Trim(label, "0123456789") == "" {
		return name
	}
	return label
}

// ordinal splits "llm-node-3" into "llm-node" and 3.
func ordinal(name string) (base string, n int, ok bool) {
	i := strings.LastIndexByte(name, '-')
	if i < 1 {
		return "", 0, false
	}
	n, err := whole(name[i+1:])
	return name[:i], n, err == nil
}

// roles are what operators call the nodes of a job in the names of their pods.
var roles = []string{"master", "chief", "worker", "ps", "evaluator", "launcher", "heter"}

// member splits the name of an operator's pod, "llm-worker-3", into "llm", the role and 3; ok is false for other roles.
func member(name string, roles ...string) (base, role string, n int, ok bool) {
	base, n, ok = ordinal(name)
	if !ok {
		return "", "", 0, false
	}
	for _, role := range roles {
		if rest, is := strings.CutSuffix(base, "-"+role); is && rest != "" {
			return rest, role, n, true
		}
	}
	return "", "", 0, false
}

// list takes a comma list apart; blanks and empty words do not count.
func list(text string) (words []string) {
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word != "" {
			words = append(words, word)
		}
	}
	return words
}

// hosts takes a list of names or addresses apart, each in the one spelling; two that are the same cannot be.
func hosts(words []string) (names []string, err error) {
	if len(words) > job.MaxNodes {
		return nil, fmt.Errorf("has %d hosts, and at most %d nodes are possible", len(words), job.MaxNodes)
	}
	seen := map[string]bool{}
	for _, word := range words {
		name, _, err := Endpoint(word)
		if err != nil {
			return nil, fmt.Errorf("has %s, which %w", clip(word), err)
		}
		if seen[word] {
			return nil, fmt.Errorf("has %s twice", clip(word))
		}
		seen[word] = true
		names = append(names, name)
	}
	return names, nil
}

// natural orders names as people count: node-2 before node-10.
func natural(a, b string) int {
	for a != "" && b != "" {
		x, y := digits(a), digits(b)
		if x > 0 && y > 0 {
			m, n := strings.TrimLeft(a[:x], "0"), strings.TrimLeft(b[:y], "0")
			if len(m) != len(n) {
				return len(m) - len(n)
			}
			if c := strings.Compare(m, n); c != 0 {
				return c
			}
			a, b = a[x:], b[y:]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

// digits is how many digits text begins with.
func digits(text string) int {
	return len(text) - len(strings.TrimLeft(text, "0123456789"))
}
