// Command release makes the files of a release from what was committed last: the program for both architectures, its manual page, the licences
// of what is in it, a list of that (SPDX), and checksums. It builds in two clones, whose results must be the same to the byte.
package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

func main() {
	out := flag.String("out", "bin/release", "directory for the files")
	arches := flag.String("arch", "amd64,arm64", "architectures")
	again := flag.Bool("again", true, "compile everything anew in the second clone, and not only what is not cached")
	only := flag.String("licences", "", "write this file alone: the licences of what is in the programs that are named behind the flags")
	flag.Parse()
	if *only != "" {
		if err := licencesOf(*only, flag.Args()); err != nil {
			fmt.Fprintln(os.Stderr, "release:", err)
			os.Exit(1)
		}
		return
	}
	files, err := release(*out, strings.Split(*arches, ","), *again)
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
	fmt.Print(files)
}

// licencesOf writes what goes with programs that were built here, where nothing but them is delivered: in an image.
func licencesOf(out string, programs []string) error {
	var built []program
	for _, path := range programs {
		p, err := read(path, "")
		if err != nil {
			return err
		}
		built = append(built, p)
	}
	if len(built) == 0 {
		return errors.New("-licences FILE wants programs that make build made")
	}
	parts, err := partsOf(".", built)
	if err != nil {
		return err
	}
	return os.WriteFile(out, licences(parts), 0o644)
}

// release fills the directory, and returns what is in it with checksums.
func release(out string, arches []string, again bool) (sums string, err error) {
	temp, err := os.MkdirTemp("", "release-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	top, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return "", fmt.Errorf("git rev-parse: %w; a release is made from a clone", err)
	}
	clones := []string{filepath.Join(temp, "one"), filepath.Join(temp, "at", "another", "place")}
	from := append([]string{strings.TrimSpace(string(top))}, clones...) // each of the one before: what is committed meanwhile does not count
	for i, dir := range clones {
		var vars []string
		if i == 1 && again {
			vars = []string{"GOCACHE=" + filepath.Join(temp, "cache")}
		}
		if err := build(from[i], dir, arches, vars); err != nil {
			return "", err
		}
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return "", err
	}
	files := map[string][]byte{}
	var built []program
	for _, arch := range arches {
		at := filepath.Join("bin", "linux-"+arch, "muster")
		one, err := os.ReadFile(filepath.Join(clones[0], at))
		if err != nil {
			return "", err
		}
		two, err := os.ReadFile(filepath.Join(clones[1], at))
		if err != nil {
			return "", err
		}
		if !bytes.Equal(one, two) {
			return "", fmt.Errorf("the program for %s is another one when it is built in another directory", arch)
		}
		p, err := read(filepath.Join(clones[0], at), arch)
		if err != nil {
			return "", err
		}
		if p.time == "" || p.revision == "" {
			return "", fmt.Errorf("%s does not say from which commit it was built", p.path)
		}
		files["muster-linux-"+arch] = one
		built = append(built, p)
	}
	if err := document(clones[0], built, files); err != nil {
		return "", err
	}
	return write(out, files)
}

// document adds what goes with the programs.
func document(clone string, built []program, files map[string][]byte) error {
	parts, err := partsOf(clone, built)
	if err != nil {
		return err
	}
	if files["LICENSE"], err = os.ReadFile(filepath.Join(clone, "LICENSE")); err != nil {
		return err
	}
	files["THIRD_PARTY_LICENSES"] = licences(parts)
	if files["muster.spdx.json"], err = json.MarshalIndent(bill(built, parts, files), "", " "); err != nil {
		return err
	}
	for _, p := range built {
		if p.arch == runtime.GOARCH {
			files["muster.1"], err = exec.Command(p.path, "man").Output()
		}
	}
	return err
}

// write puts the files where they are wanted, and their checksums beside them.
func write(out string, files map[string][]byte) (string, error) {
	var sums strings.Builder
	for _, name := range sorted(files) {
		mode := os.FileMode(0o644)
		if strings.HasPrefix(name, "muster-linux-") {
			mode = 0o755
		}
		path := filepath.Join(out, name)
		if err := os.WriteFile(path, files[name], mode); err != nil {
			return "", err
		}
		if err := os.Chmod(path, mode); err != nil {
			return "", err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(files[name]), name)
	}
	return sums.String(), os.WriteFile(filepath.Join(out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// fixed is what changes the bytes of a program, and must not be what whoever makes the release has set for himself.
var fixed = []string{"GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off", "GIT_CONFIG_COUNT=0"}

// build clones what was committed last, and makes the programs there.
func build(from, dir string, arches, vars []string) error {
	vars = append(vars, fixed...)
	if err := run(".", vars, "git", "clone", "--quiet", "-c", "core.autocrlf=false", "-c", "core.eol=lf", from, dir); err != nil {
		return err
	}
	for _, arch := range arches {
		if err := run(dir, append(vars, "GOARCH="+arch), "make", "build", "BIN=bin/linux-"+arch+"/muster"); err != nil {
			return err
		}
	}
	return nil
}

func run(dir string, vars []string, argv ...string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), vars...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// A program is one that was built.
type program struct {
	path, arch string
	version    string   // of muster
	goVersion  string   // with which it was built
	time       string   // of the last change
	revision   string   // its name
	modules    []module // that are in it, and in the build that it carries
}

// A module is one of others.
type module struct{ path, version string }

func (m module) String() string { return m.path + "@" + m.version }

// read is what Go noted in a program, and in the build with etcd beside it, which the program carries packed.
func read(path, arch string) (p program, err error) {
	p.path, p.arch = path, arch
	for _, file := range []string{path, path + "-full"} {
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return p, err
		}
		p.version, p.goVersion = info.Main.Version, info.GoVersion
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.time":
				p.time = s.Value
			case "vcs.revision":
				p.revision = s.Value
			}
		}
		for _, d := range info.Deps {
			if d.Replace != nil {
				d = d.Replace
			}
			if m := (module{d.Path, d.Version}); !slices.Contains(p.modules, m) {
				p.modules = append(p.modules, m)
			}
		}
	}
	return p, nil
}
