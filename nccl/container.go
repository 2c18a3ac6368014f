package nccl

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// A Container is what the files of a container say of the NCCL that its workers will load.
type Container struct {
	Version Version // the zero one: not known
	From    string  // the file or directory that says so
	Plugins []string
	Files   []File // that NCCL reads, the one that wins first
	Profile *File  // of Google's gIB, which is to be read in full; nil: there is none
	Script  string // of an older plugin of Google's, which the user is to source; "": there is none
	Mapped  bool   // an agent of the host has left the topology where NCCL looks for it
	Missing string // the file that NCCL_TOPO_FILE names, and that is not there
	UCX     []File // that UCX reads
}

// A container is where files are looked for.
type container struct {
	root   string
	getenv func(string) (string, bool)
	python string
	dir    string // the workers'
}

// Look reads a container's files below root. python is the interpreter that workers run with, "" if there is none, and dir is where they
// start. Nothing is loaded, and nothing is run.
func Look(root string, getenv func(string) (string, bool), python, dir string) Container {
	c := container{root, getenv, python, dir}
	var found Container
	found.Version, found.From = c.version()
	found.Plugins = c.plugins()
	found.Files = c.conf(found.Version)
	const gib, fastrak = "/usr/local/gib/scripts/nccl.conf", "/var/lib/tcpxo/lib64/nccl-env-profile.sh"
	if text, ok := c.text(gib); ok {
		found.Profile = &File{Name: gib, Values: parseConf(text)}
	}
	if c.exists(fastrak) {
		found.Script = fastrak
	}
	found.Mapped = c.exists("/var/run/nvidia-topologyd/virtualTopology.xml")
	name := c.env("NCCL_TOPO_FILE")
	for _, f := range found.Files {
		if _, set := getenv("NCCL_TOPO_FILE"); !set && name == "" {
			name = f.Values["NCCL_TOPO_FILE"]
		}
	}
	if name != "" && !c.exists(name) {
		found.Missing = name
	}
	found.UCX = c.ucx()
	return found
}

func (c container) env(name string) string {
	value, _ := c.getenv(name)
	return value
}

// path is where a name leads, as workers would have it.
func (c container) path(name string) string {
	if !filepath.IsAbs(name) {
		name = filepath.Join("/", c.dir, name)
	}
	return filepath.Join(c.root, name)
}

func (c container) exists(name string) bool {
	_, err := os.Stat(c.path(name))
	return err == nil
}

const (
	maxText  = 64 << 10
	maxNames = 1 << 14
)

// text is a small regular file.
func (c container) text(name string) (string, bool) {
	f, err := c.open(name)
	if err != nil {
		return "", false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxText))
	return strings.ToValidUTF8(string(b), "\uFFFD"), err == nil
}

// open opens a regular file alone: nothing else ends, or answers at once.
func (c container) open(name string) (*os.File, error) {
	f, err := os.OpenFile(c.path(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, fs.ErrInvalid
	}
	return f, nil
}

// names lists a directory.
func (c container) names(dir string) []string {
	f, err := os.Open(c.path(dir))
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(maxNames)
	slices.Sort(names)
	return names
}

// sites are where the interpreter looks for packages, as far as its place says.
func (c container) sites() (dirs []string) {
	for _, dir := range filepath.SplitList(c.env("PYTHONPATH")) {
		if filepath.IsAbs(dir) {
			dirs = append(dirs, dir)
		}
	}
	prefixes, own := c.prefixes(), c.own()
	if c.isolated() {
		prefixes = prefixes[:1]
	} else if none := c.env("PYTHONNOUSERSITE"); none == "" && own != "" && c.env("HOME") != "" {
		dirs = append(dirs, filepath.Join(c.env("HOME"), ".local/lib", own, "site-packages"))
	}
	for _, prefix := range prefixes {
		for _, lib := range []string{"lib", "lib64", "local/lib"} {
			for _, name := range c.names(filepath.Join(prefix, lib)) {
				if name == own || name == "python3" || own == "" && strings.HasPrefix(name, "python3") {
					at := filepath.Join(prefix, lib, name)
					dirs = append(dirs, filepath.Join(at, "site-packages"), filepath.Join(at, "dist-packages"))
				}
			}
		}
	}
	return dirs
}

// own is python3.12 of an interpreter of that version, by the name of its program; "": it does not say.
func (c container) own() string {
	real, err := filepath.EvalSymlinks(c.path(c.python))
	if err != nil || c.python == "" {
		return ""
	}
	name := filepath.Base(real)
	if minor, ok := strings.CutPrefix(name, "python3."); !ok || strings.Trim(minor, "0123456789") != "" {
		return ""
	}
	return name
}

// isolated reports whether the interpreter is of a virtual environment that sees neither the user's packages nor the system's (PEP 405).
func (c container) isolated() bool {
	if c.python == "" {
		return false
	}
	text, venv := c.text(filepath.Join(filepath.Dir(filepath.Dir(c.python)), "pyvenv.cfg"))
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, "=")
		if strings.TrimSpace(strings.ToLower(name)) == "include-system-site-packages" {
			return strings.TrimSpace(strings.ToLower(value)) != "true"
		}
	}
	return venv
}

// prefixes are the directories that the interpreter is below: a virtual environment's, and the one that this was made of.
func (c container) prefixes() (dirs []string) {
	if c.python == "" {
		return nil
	}
	dirs = []string{filepath.Dir(filepath.Dir(c.python))}
	if real, err := filepath.EvalSymlinks(c.path(c.python)); err == nil {
		if in, err := filepath.Rel(c.root, real); err == nil && !strings.HasPrefix(in, "..") {
			dirs = append(dirs, filepath.Dir(filepath.Dir("/"+in)))
		}
	}
	return slices.Compact(dirs)
}

// libraries are where the dynamic loader looks: conda's own first, for its programs say so themselves (DT_RPATH).
func (c container) libraries() (dirs []string) {
	for _, p := range c.prefixes() {
		if p != "/usr" && p != "/" {
			dirs = append(dirs, filepath.Join(p, "lib"))
		}
	}
	for _, dir := range filepath.SplitList(c.env("LD_LIBRARY_PATH")) {
		if filepath.IsAbs(dir) {
			dirs = append(dirs, dir)
		}
	}
	dirs = append(dirs, c.configured("/etc/ld.so.conf")...)
	for _, name := range c.names("/etc/ld.so.conf.d") {
		if strings.HasSuffix(name, ".conf") {
			dirs = append(dirs, c.configured("/etc/ld.so.conf.d/"+name)...)
		}
	}
	return append(dirs, "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
}

// configured are the directories that a file of ldconfig's names.
func (c container) configured(name string) (dirs []string) {
	text, _ := c.text(name)
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "/") {
			dirs = append(dirs, line)
		}
	}
	return dirs
}

// plugins are NCCL's plugins for networks, in the order in which they would be found.
func (c container) plugins() (files []string) {
	dirs := append(c.libraries(), "/opt/amazon/ofi-nccl/lib", "/opt/amazon/ofi-nccl/lib64", "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu", "/opt/aws-ofi-nccl/lib")
	for _, dir := range dirs {
		for _, name := range c.names(dir) {
			if file := filepath.Join(dir, name); strings.HasPrefix(name, "libnccl-net") && strings.Contains(name, ".so") && !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
	}
	return files
}
