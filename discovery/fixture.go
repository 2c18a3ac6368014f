package discovery

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/muster-run/muster/job"
)

// ParseEnv reads an environment that was written down: NAME=VALUE lines, as env(1) prints them, or with NUL behind each, as
// /proc/PID/environ has them. A line without a name continues the one before.
func ParseEnv(text []byte) (environ []string) {
	sep := "\n"
	if bytes.IndexByte(text, 0) >= 0 {
		sep = "\x00"
	}
	for kv := range strings.SplitSeq(string(text), sep) {
		if sep == "\n" {
			kv = strings.TrimSuffix(kv, "\r")
		}
		name, _, ok := strings.Cut(kv, "=")
		switch {
		case ok && isName(name):
			environ = append(environ, kv)
		case len(environ) > 0 && sep == "\n" && kv != "" && !strings.HasPrefix(kv, "#"):
			environ[len(environ)-1] += "\n" + kv
		}
	}
	return environ
}

// isName reports whether this is what shells take for a variable's name; Kubernetes also takes dots and dashes.
func isName(text string) bool {
	return text != "" && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") == ""
}

// Elsewhere is a host that is described: of a variable that stands twice the last one counts, as a container's runtime has it.
func Elsewhere(environ []string, files fs.FS, hostname string, gpus int) job.Host {
	values := map[string]string{}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		values[name] = value
	}
	return job.Host{
		Getenv:   func(name string) string { return values[name] },
		ReadFile: func(name string) ([]byte, error) { return fs.ReadFile(files, inside(name)) },
		List:     func(dir string) []string { return names(files, inside(dir)) },
		Hostname: hostname,
		Environ:  environ,
		GPUs:     func() int { return gpus },
	}
}

// inside is an absolute path as a file system without a root of its own has it.
func inside(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

// names are those of the files in a directory.
func names(files fs.FS, dir string) (all []string) {
	entries, err := fs.ReadDir(files, dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if !e.IsDir() {
			all = append(all, e.Name())
		}
	}
	return all
}

// A Fixture is one job as an operator made it, written down pod by pod.
type Fixture struct {
	GPUs int   `json:"gpus"`
	Pods []Pod `json:"pods"`
}

// A Pod is one of a fixture's: what its container would see.
type Pod struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Hostname    string            `json:"hostname"`
	Subdomain   string            `json:"subdomain"`
	HostNetwork bool              `json:"hostNetwork"`
	IP          string            `json:"podIP"`
	Env         [][2]string       `json:"env"`
	Files       map[string]string `json:"files"`
	Expect      map[string]any    `json:"expect"`
}

// ParseFixture reads one.
func ParseFixture(text []byte) (f Fixture, err error) {
	if err := json.Unmarshal(text, &f); err != nil {
		return f, fmt.Errorf("is no fixture: %w", err)
	}
	return f, nil
}

// Pod finds one by its name.
func (f Fixture) Pod(name string) (Pod, error) {
	var all []string
	for _, p := range f.Pods {
		if p.Name == name {
			return p, nil
		}
		all = append(all, p.Name)
	}
	return Pod{}, fmt.Errorf("has no pod %q: there are %s", name, clip(strings.Join(all, ", ")))
}

// Host is what the pod's container would see, with what kubelet itself adds: its line of /etc/hosts, and where names are looked up.
func (p Pod) Host(gpus int) job.Host {
	var environ []string
	for _, v := range p.Env {
		environ = append(environ, v[0]+"="+v[1])
	}
	files := tree{}
	for name, text := range p.Files {
		files[inside(name)] = text
	}
	if !p.HostNetwork && files["etc/hosts"] == "" {
		names := p.Hostname
		if p.Subdomain != "" {
			names = fmt.Sprintf("%s.%s.%s.svc.cluster.local\t%[1]s", p.Hostname, p.Subdomain, p.Namespace)
		}
		files["etc/hosts"] = fmt.Sprintf("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n%s\t%s\n", cmp.Or(p.IP, "10.244.0.1"), names)
	}
	return Elsewhere(environ, files, p.Hostname, gpus)
}

// A tree is a few files in memory.
type tree map[string]string

func (t tree) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid} // they are read whole
}

func (t tree) ReadFile(name string) ([]byte, error) {
	if text, ok := t[name]; ok {
		return []byte(text), nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (t tree) ReadDir(dir string) (entries []fs.DirEntry, err error) {
	for name := range t {
		if path.Dir(name) == dir {
			entries = append(entries, leaf(path.Base(name)))
		}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// A leaf is the name of a file.
type leaf string

func (l leaf) Name() string               { return string(l) }
func (l leaf) IsDir() bool                { return false }
func (l leaf) Type() fs.FileMode          { return 0 }
func (l leaf) Info() (fs.FileInfo, error) { return nil, fs.ErrInvalid }
