package nccl

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A File is one that NCCL reads variables from: KEY=VALUE from the first column on, without blanks around =. Any variable may stand there.
type File struct {
	Name   string
	Home   bool // it is the user's ~/.nccl.conf, which NCCL_CONF_FILE takes the place of
	Values map[string]string
}

// Names are the variables in it, in order.
func (f File) Names() []string { return slices.Sorted(maps.Keys(f.Values)) }

const maxLine = 1 << 10 // of NCCL's own buffer (src/misc/param.cc)

// parseConf reads a file as NCCL does: lines without = say nothing, of two with one name the first counts, and blanks at the end are a
// part of the value. Older versions take a comment for a variable's name, which harms nobody.
func parseConf(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		name, value, ok := strings.Cut(line, "=")
		if !ok || strings.HasPrefix(line, "#") || len(line) >= maxLine || strings.TrimSpace(name) != name || name == "" {
			continue
		}
		if _, seen := values[name]; !seen {
			values[name] = value
		}
	}
	return values
}

// conf are the files that NCCL reads, the one that wins first: NCCL_CONF_FILE in place of ~/.nccl.conf since 2.23, then /etc/nccl.conf.
func (c container) conf(version Version) (files []File) {
	own := File{Name: c.env("NCCL_CONF_FILE")}
	if own.Name == "" || version != (Version{}) && version.Compare(Version{2, 23, 0}) < 0 {
		own = File{Home: true}
		if home := c.home(); home != "" {
			own.Name = filepath.Join(home, ".nccl.conf")
		}
	}
	for _, f := range []File{own, {Name: "/etc/nccl.conf"}} {
		if f.Name == "" {
			continue
		}
		if text, ok := c.text(f.Name); ok {
			f.Values = parseConf(text)
			files = append(files, f)
		}
	}
	return files
}

// home is the directory of the user that this process runs as, whatever HOME says: NCCL asks getpwuid. Of a user whom /etc/passwd does not
// have another service may know, which is not asked: then it is HOME's.
func (c container) home() string {
	text, _ := c.text("/etc/passwd")
	for line := range strings.Lines(text) {
		if w := strings.Split(strings.TrimSpace(line), ":"); len(w) == 7 && w[2] == strconv.Itoa(os.Getuid()) {
			return w[5]
		}
	}
	return c.env("HOME")
}

// ucx are the files that UCX reads: its own, the user's, and that of the workers' directory (UCX, ucs_config_parse_config_files).
func (c container) ucx() (files []File) {
	names := []string{"/etc/ucx/ucx.conf", "/usr/etc/ucx/ucx.conf", "/usr/local/etc/ucx/ucx.conf", "/opt/hpcx/ucx/etc/ucx/ucx.conf", "ucx.conf"}
	if home := c.env("HOME"); home != "" {
		names = append(names, filepath.Join(home, "ucx.conf"))
	}
	for _, name := range names {
		if text, ok := c.text(name); ok {
			files = append(files, File{Name: name, Values: parseUCX(text)})
		}
	}
	return files
}

// parseUCX reads NAME = VALUE, with blanks or without.
func parseUCX(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(line, "=")
		if name = strings.TrimSpace(name); ok && strings.HasPrefix(name, "UCX_") {
			values[name] = strings.TrimSpace(value)
		}
	}
	return values
}
