package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/discovery"
	"github.com/muster-run/muster/framework"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/topology"
)

// A place is a machine to look at: this one, or one that is described.
type place struct {
	env, root, hostname string
	fixture, pod        string
	gpus                int // -1: nobody says
}

func discoverCommand() *cli.Command {
	at, asJSON := place{gpus: -1}, false
	return &cli.Command{
		Name: "discover", Usage: "say what the platform left here, and which job that makes", ArgsUsage: "[--json] [--env-file FILE] [--root DIR]",
		Description: "Asks nobody and starts nothing. For another machine, give what was there:\n\n" +
			"  kubectl exec POD -- env > env.txt\n" +
			"  muster discover --env-file env.txt --hostname sdxl-worker-0 --gpus 8",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Destination: &asJSON, Usage: "as one JSON object"},
			&cli.StringFlag{Name: "env-file", Destination: &at.env, Usage: "`FILE` with the environment instead: NAME=VALUE lines, or with NUL behind each"},
			&cli.StringFlag{Name: "root", Destination: &at.root, Usage: "`DIR` under which files lie that the platform mounted, instead of /"},
			&cli.StringFlag{Name: "hostname", Destination: &at.hostname, Usage: "`NAME` of the host instead of this one's"},
			&cli.GenericFlag{Name: "gpus", Value: number{&at.gpus, 0, 1 << 16}, Usage: "`N` GPUs instead of this machine's"},
			&cli.StringFlag{Name: "fixture", Destination: &at.fixture, Usage: "`FILE` of a job's pods, as discovery/testdata/platforms has them"},
			&cli.StringFlag{Name: "pod", Destination: &at.pod, Usage: "`NAME` of the one among them; all without"},
		},
		Action: func(x *cli.Context) error {
			if x.Args().Len() > 0 {
				return wrong("discover: takes no arguments, and got %q", x.Args().First())
			}
			if at.fixture != "" && at.pod == "" {
				return discoverAll(os.Stdout, at, asJSON)
			}
			h, err := at.host()
			if err != nil {
				return wrong("discover: %v", err)
			}
			return discover(os.Stdout, h, asJSON)
		},
	}
}

// discover prints what was understood. What muster run would refuse ends with its code.
func discover(w io.Writer, h job.Host, asJSON bool) error {
	found, reading := readingOf(h)
	stands, err := discovery.Stands(h, discovery.Said{Value: h.Getenv("MUSTER_PLACE"), By: "MUSTER_PLACE"}, discovery.Said{Value: h.Getenv("MUSTER_PLACE_FILE"), By: "MUSTER_PLACE_FILE"})
	if err != nil {
		return wrong("discover: %v", err)
	}
	reading.Place, reading.PlaceBy, reading.Warnings = stands.Place.String(), stands.By, append(reading.Warnings, stands.Notes...)
	if asJSON {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		if err := e.Encode(reading); err != nil {
			return err
		}
	} else if err := printReading(w, found, reading); err != nil {
		return err
	}
	if reading.Error != nil {
		return exit(job.ExitUsage)
	}
	return nil
}

// readingOf is what a machine's platform says, and what follows from it for muster run.
func readingOf(h job.Host) (discovery.Finding, discovery.Reading) {
	found := discovery.Detect(h)
	reading := found.Reading(h)
	reading.Workers = workers(found, reading)
	if id := launcher.Meets(found); id != "" {
		reading.RdzvID = &id
	}
	return found, reading
}

// host is what a platform's reader will see.
func (at place) host() (job.Host, error) {
	switch {
	case at.pod != "" && at.fixture == "":
		return job.Host{}, fmt.Errorf("--pod goes with --fixture")
	case at.fixture != "":
		return at.podHost()
	case at.env == "" && at.root == "":
		h := thisHost()
		h.Hostname = cmp.Or(at.hostname, h.Hostname)
		if at.gpus >= 0 {
			h.GPUs = func() int { return at.gpus }
		}
		return h, nil
	}
	environ, err := at.environ()
	if err != nil {
		return job.Host{}, err
	}
	files, err := at.files()
	if err != nil {
		return job.Host{}, err
	}
	return discovery.Elsewhere(environ, files, at.named(environ), max(at.gpus, 0)), nil
}

var errFixture = errors.New("--fixture has all that --env-file, --root and --hostname say")

func (at place) podHost() (job.Host, error) {
	if at.env+at.root+at.hostname != "" {
		return job.Host{}, errFixture
	}
	f, err := readFixture(at.fixture)
	if err != nil {
		return job.Host{}, err
	}
	p, err := f.Pod(at.pod)
	if err != nil {
		return job.Host{}, fmt.Errorf("%s %w", at.fixture, err)
	}
	if at.gpus >= 0 {
		f.GPUs = at.gpus
	}
	return p.Host(f.GPUs), nil
}

func readFixture(path string) (f discovery.Fixture, err error) {
	text, err := bounded(path)
	if err != nil {
		return f, err
	}
	if f, err = discovery.ParseFixture(text); err != nil {
		return f, fmt.Errorf("%s %w", path, err)
	}
	return f, nil
}

// maxDescribed bounds a file that describes a machine.
const maxDescribed = 16 << 20

func bounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return whole(f, path)
}

// whole is all of a file, unless it is too long.
func whole(f io.Reader, name string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(f, maxDescribed+1))
	if err == nil && len(text) > maxDescribed {
		err = fmt.Errorf("%s is longer than %d bytes", name, maxDescribed)
	}
	return text, err
}

// environ is the described environment, or this process's own, of which the first of duplicates counts.
func (at place) environ() ([]string, error) {
	if at.env == "" {
		return job.Env{}.Over(os.Environ()), nil
	}
	text, err := bounded(at.env)
	if err != nil {
		return nil, fmt.Errorf("--env-file: %w", err)
	}
	environ := discovery.ParseEnv(text)
	if len(environ) == 0 && len(bytes.TrimSpace(text)) > 0 {
		return nil, fmt.Errorf("--env-file: no line of %s is NAME=VALUE", at.env)
	}
	return environ, nil
}

// files are those under --root: without one a described machine has none.
func (at place) files() (fs.FS, error) {
	if at.root == "" {
		return os.DirFS(os.DevNull), nil // which has no files
	}
	if info, err := os.Stat(at.root); err != nil {
		return nil, fmt.Errorf("--root: %w", err)
	} else if !info.IsDir() { // a pipe would be waited for
		return nil, fmt.Errorf("--root: %w", &fs.PathError{Op: "read files from", Path: at.root, Err: syscall.ENOTDIR})
	}
	root, err := os.OpenRoot(filepath.Clean(at.root))
	if err != nil {
		return nil, fmt.Errorf("--root: %w", err)
	}
	return mounted{root}, nil
}

// mounted are the files under --root. What lies there may be anything: a pipe is not waited for, and what has no end not read to it.
type mounted struct{ *os.Root }

func (m mounted) Open(name string) (fs.File, error) {
	return m.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

func (m mounted) ReadFile(name string) ([]byte, error) {
	f, err := m.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("it is no regular file")}
	}
	return whole(f, name)
}

// named is the described machine's name: a container's is in HOSTNAME, too.
func (at place) named(environ []string) string {
	name := at.hostname
	for _, kv := range environ {
		if value, ok := strings.CutPrefix(kv, "HOSTNAME="); ok && at.hostname == "" {
			name = value
		}
	}
	return name
}

// visible is how many GPUs muster run would find for the workers of a machine; 0 if that cannot be known.
func visible(root topology.Root, getenv func(string) (string, bool)) int {
	machine, err := topology.Probe(root)
	if err != nil {
		return 0
	}
	n, _ := machine.Visible(getenv)
	return n
}

// discoverAll is a line for each pod of a fixture, or an object with a reading for each by its name.
func discoverAll(w io.Writer, at place, asJSON bool) error {
	f, err := readFixture(at.fixture)
	switch {
	case err != nil:
		return wrong("discover: %v", err)
	case len(f.Pods) == 0:
		return wrong("discover: %s has no pods", at.fixture)
	case at.env+at.root+at.hostname != "":
		return wrong("discover: %v", errFixture)
	}
	if at.gpus >= 0 {
		f.GPUs = at.gpus
	}
	if asJSON {
		all := map[string]discovery.Reading{}
		for _, p := range f.Pods {
			_, all[p.Name] = readingOf(p.Host(f.GPUs))
		}
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		return e.Encode(all)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "pod\tplatform\tnodes\tthis node\twhere they meet\tworkers\trole\t")
	for _, p := range f.Pods {
		h := p.Host(f.GPUs)
		found := discovery.Detect(h)
		r := found.Reading(h)
		note := ""
		if r.Error != nil {
			note = "refused: " + *r.Error
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", p.Name, r.Rule, nodesOf(r), shown(r.Rank), meetingOf(r), workersOf(r), shown(r.Role), note)
	}
	return t.Flush()
}

// printReading is for a person who has the manifest beside it.
func printReading(w io.Writer, found discovery.Finding, r discovery.Reading) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range []struct{ name, value string }{
		{"platform", r.Rule},
		{"nodes", nodesOf(r)},
		{"this node", shown(r.Rank)},
		{"where they meet", meetingOf(r)},
		{"stands at", r.Place},
		{"workers here", workersOf(r)},
		{"role", roleOf(r)},
		{"servers beside them", count(r.Servers)},
		{"the platform's group", shown(r.Members)},
		{"group", shown(r.Group)},
		{"job", shown(r.JobID)},
		{"namespace", shown(r.Namespace)},
		{"attempt", shown(r.Attempt)},
		{"rdzv-id", shown(r.RdzvID)},
		{"framework", shown(r.Framework)},
		{"process", processOf(r)},
		{"after success", yes(r.ParkAfterSuccess, "the platform starts it again")},
		{"the job's end", yes(r.ExitDecider, "this node's")},
	} {
		if row.value != "" && row.value != "-" {
			fmt.Fprintf(t, "%s\t%s\n", row.name, row.value)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	section(w, "by", slices.Concat(r.Evidence, r.PlaceBy))
	section(w, "note", r.Warnings)
	if r.NotRun != nil {
		section(w, "muster run has no part in it", []string{*r.NotRun})
	}
	if r.Error != nil {
		section(w, "muster run would refuse", []string{*r.Error})
	}
	return nil
}

func section(w io.Writer, name string, lines []string) {
	if len(lines) > 0 {
		fmt.Fprintf(w, "\n%s:\n  %s\n", name, strings.Join(lines, "\n  "))
	}
}

// nodesOf is a number or a range.
func nodesOf(r discovery.Reading) string {
	if r.Nodes == nil && r.Min != nil {
		return fmt.Sprintf("%d:%d", *r.Min, *r.Max)
	}
	return shown(r.Nodes)
}

func meetingOf(r discovery.Reading) string {
	if r.Host == nil {
		return "-"
	}
	at := *r.Host
	switch {
	case r.PortOwner != nil && r.Port != nil:
		at += fmt.Sprintf(", but not at port %d, which is the framework's own", *r.Port)
	case r.Port != nil:
		at += " port " + strconv.Itoa(*r.Port)
	}
	return at
}

// workers is how many muster run would start here: a framework may have one for all GPUs.
func workers(found discovery.Finding, r discovery.Reading) *int {
	if r.NProc == nil || r.NotRun != nil || r.Error != nil {
		return nil
	}
	n := *r.NProc
	if f, err := framework.Lookup(found.Framework); found.Outside || err == nil && f.Whole {
		n = 1
	}
	return &n
}

// workersOf is how many workers this node would have: a framework may have one for all GPUs.
func workersOf(r discovery.Reading) string {
	if r.Framework != nil && r.NProc != nil {
		if f, err := framework.Lookup(*r.Framework); err == nil && f.Whole {
			return "1 for all GPUs"
		}
	}
	return shown(r.NProc)
}

func roleOf(r discovery.Reading) string {
	if r.Role == nil || r.Index == nil {
		return shown(r.Role)
	}
	return fmt.Sprintf("%s %d", *r.Role, *r.Index)
}

func processOf(r discovery.Reading) string {
	if !r.PerProcess {
		return ""
	}
	return fmt.Sprintf("%s, on its node %s", shown(r.ProcessRank), shown(r.LocalRank))
}

func yes(is bool, text string) string {
	if is {
		return text
	}
	return ""
}

func count(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// shown is a value that may be missing.
func shown(v any) string {
	switch v := v.(type) {
	case *int:
		if v != nil {
			return strconv.Itoa(*v)
		}
	case *string:
		if v != nil {
			return *v
		}
	case nil:
	default:
		return fmt.Sprint(v)
	}
	return "-"
}
