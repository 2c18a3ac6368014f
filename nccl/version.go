package nccl

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Version is that of NCCL, or of a driver. The zero Version is not known.
type Version struct{ Major, Minor, Patch int }

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// Compare orders versions.
func (v Version) Compare(w Version) int {
	return cmp.Or(cmp.Compare(v.Major, w.Major), cmp.Compare(v.Minor, w.Minor), cmp.Compare(v.Patch, w.Patch))
}

// ParseVersion reads "2.26.2", "2.26", "2.26.2+cuda12.4", "2.26.2.post1", "550.40.07".
func ParseVersion(text string) (v Version, err error) {
	rest := text
	for i, into := range []*int{&v.Major, &v.Minor, &v.Patch} {
		n := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		if n == 0 || n > 6 {
			return Version{}, fmt.Errorf("%.40q is no version", text)
		}
		*into, _ = strconv.Atoi(rest[:n])
		var ok bool
		if rest, ok = strings.CutPrefix(rest[n:], "."); !ok {
			if i == 0 {
				return Version{}, fmt.Errorf("%.40q is no version", text)
			}
			break
		}
	}
	return v, nil
}

const (
	soname = "libnccl.so.2"
	rccl   = "librccl.so" // AMD's; what its file is numbered by is not NCCL's version
)

// version is that of the NCCL that a worker loads, and what says so: one that is preloaded; the one that PyTorch has in itself; the wheel
// beside PyTorch, which PyTorch looks in first (DT_RPATH); else the first that the dynamic loader finds.
func (c container) version() (Version, string) {
	for _, file := range strings.FieldsFunc(c.env("LD_PRELOAD"), func(r rune) bool { return r == ' ' || r == ':' }) {
		if name := filepath.Base(file); strings.HasPrefix(name, "libnccl.so") || strings.HasPrefix(name, rccl) {
			return c.versionOf(file)
		}
	}
	for _, site := range c.sites() {
		if torch := filepath.Join(site, "torch/lib/libtorch_cuda.so"); c.exists(torch) {
			if shared, known := c.loads(torch); known && !shared {
				return c.inside(torch), torch
			}
			if v, from := c.wheel(site); v != (Version{}) {
				return v, from
			}
			break
		}
		if file := filepath.Join(site, "torch/lib", rccl); c.exists(file) { // PyTorch's wheel for ROCm
			return c.versionOf(file)
		}
		if v, from := c.wheel(site); v != (Version{}) { // JAX, or a trainer of another kind
			return v, from
		}
	}
	for _, dir := range c.libraries() {
		if file := filepath.Join(dir, soname); c.exists(file) {
			return c.versionOf(file)
		}
	}
	for _, dir := range append(c.libraries(), "/opt/rocm/lib") {
		if file := filepath.Join(dir, rccl+".1"); c.exists(file) {
			return c.versionOf(file)
		}
	}
	return Version{}, ""
}

// wheel is the version of the package nvidia-nccl-cu12, or of another CUDA's.
func (c container) wheel(site string) (Version, string) {
	file := filepath.Join(site, "nvidia/nccl/lib", soname)
	if !c.exists(file) {
		return Version{}, ""
	}
	for _, name := range c.names(site) {
		rest, ok := strings.CutPrefix(name, "nvidia_nccl_cu")
		_, number, cut := strings.Cut(rest, "-")
		if !ok || !cut || !strings.HasSuffix(name, ".dist-info") {
			continue
		}
		if v, err := ParseVersion(number); err == nil {
			return v, filepath.Join(site, name)
		}
	}
	return c.versionOf(file)
}

// versionOf is a library's version by its file's name, to which a link leads, else by what is in the file.
func (c container) versionOf(file string) (Version, string) {
	if real, err := filepath.EvalSymlinks(c.path(file)); err == nil {
		if number, ok := strings.CutPrefix(filepath.Base(real), "libnccl.so."); ok && strings.Contains(number, ".") {
			if v, err := ParseVersion(number); err == nil {
				return v, file
			}
		}
	}
	return c.inside(file), file
}

// loads reports whether a library of PyTorch's has NCCL loaded beside itself, and whether that is known.
func (c container) loads(file string) (shared, known bool) {
	f, err := c.open(file)
	if err != nil {
		return false, false
	}
	defer f.Close()
	e, err := elf.NewFile(f)
	if err != nil {
		return false, false
	}
	needed, err := e.ImportedLibraries()
	return slices.ContainsFunc(needed, func(n string) bool { return strings.HasPrefix(n, "libnccl.so") }), err == nil
}

// maxConstants bounds how much of a library's constants is read: NCCL has a few megabytes of them, PyTorch more.
const maxConstants = 64 << 20

// inside finds the version that a library has among its constants.
func (c container) inside(file string) Version {
	f, err := c.open(file)
	if err != nil {
		return Version{}
	}
	defer f.Close()
	e, err := elf.NewFile(f)
	if err != nil {
		return Version{}
	}
	s := e.Section(".rodata")
	if s == nil || s.Type == elf.SHT_NOBITS || s.Flags&elf.SHF_COMPRESSED != 0 {
		return Version{}
	}
	return banner(io.LimitReader(s.Open(), maxConstants))
}

// banner finds "NCCL version 2.26.2+cuda12.4", which NCCL prints when it begins, or "RCCL version : 2.22.3-HEAD".
func banner(r io.Reader) Version {
	const mark = "CCL version "
	const tail = 32 // behind the mark, and enough for a version
	b, have := make([]byte, 256<<10), 0
	for {
		n, err := io.ReadFull(r, b[have:])
		have += n
		for from := 0; ; {
			i := bytes.Index(b[from:have], []byte(mark))
			if i < 0 {
				break
			}
			from += i + len(mark)
			text := strings.TrimPrefix(string(b[from:min(have, from+tail)]), ": ")
			if v, bad := ParseVersion(text); bad == nil && v.Major == 2 && (err != nil || from+tail <= have) {
				return v
			}
		}
		if err != nil { // the end, and whatever else ends it
			return Version{}
		}
		keep := len(mark) + tail
		have = copy(b, b[have-keep:have])
	}
}
