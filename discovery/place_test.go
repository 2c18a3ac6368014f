package discovery

import (
	"os"
	"strings"
	"testing"

	"github.com/muster-run/muster/job"
)

func hostOf(name string, environ, files map[string]string) job.Host {
	return job.Host{
		Hostname: name, Getenv: func(name string) string { return environ[name] },
		ReadFile: func(path string) ([]byte, error) {
			if text, ok := files[path]; ok {
				return []byte(text), nil
			}
			return nil, &os.PathError{Op: "open", Path: path, Err: os.ErrNotExist}
		},
	}
}

func TestStands(t *testing.T) {
	slurm := func(address, pattern string) map[string]string {
		return map[string]string{"SLURM_TOPOLOGY_ADDR": address, "SLURM_TOPOLOGY_ADDR_PATTERN": pattern}
	}
	const table = "# rack by rack\ngpu[001-002] rack=r1\n\ngpu003.hpc r2/leaf9 # moved\nlogin x y z\n"
	for _, c := range []struct {
		host, said, file string
		environ, files   map[string]string
		want, by         string
	}{
		{},
		{said: "rack=r7,switch=leaf3", want: "rack=r7,switch=leaf3", by: "--place"},
		{said: "leaf3", want: "switch=leaf3", by: "--place"},
		{said: "r7/leaf3", want: "rack=r7,switch=leaf3", by: "--place"},
		{said: "z/b/r/s", want: "zone=z,block=b,rack=r,switch=s", by: "--place"},
		{said: "zone=eu-1a, clique=c0ffee.1", want: "zone=eu-1a,clique=c0ffee.1", by: "--place"},
		{said: "none", environ: slurm("s0.s1.n3", "switch.switch.node")},

		{environ: slurm("s0.s1.n3", "switch.switch.node"), want: "rack=s0,switch=s1", by: "SLURM_TOPOLOGY_ADDR=s0.s1.n3"},
		{environ: slurm("s1.n3", "switch.node"), want: "switch=s1", by: "SLURM_TOPOLOGY_ADDR=s1.n3"},
		{environ: slurm("a.b.c.d.e.n3", "switch.switch.switch.switch.switch.node"), want: "zone=a.b,block=c,rack=d,switch=e", by: "SLURM_TOPOLOGY_ADDR=a.b.c.d.e.n3"},
		{environ: slurm("b7.n3", "block.node"), want: "block=b7", by: "SLURM_TOPOLOGY_ADDR=b7.n3"},
		{environ: slurm("n3", "node")},
		{environ: slurm("n3.hpc", "node"), by: "! SLURM_TOPOLOGY_ADDR=n3.hpc has 2 words, SLURM_TOPOLOGY_ADDR_PATTERN=node 1: where this node stands is not known"},
		{said: "rack=r7", environ: slurm("s0.s1.n3", "switch.switch.node"), want: "rack=r7,switch=s1", by: "--place; SLURM_TOPOLOGY_ADDR=s0.s1.n3"},

		{host: "GPU002", file: "/p", files: map[string]string{"/p": table}, want: "rack=r1", by: "/p"},
		{host: "gpu003", file: "/p", files: map[string]string{"/p": table}, want: "rack=r2,switch=leaf9", by: "/p"},
		{host: "pod-7", file: "/p", environ: map[string]string{"NODE_NAME": "gpu001"}, files: map[string]string{"/p": table}, want: "rack=r1", by: "/p"},
		{host: "gpu004", file: "/p", files: map[string]string{"/p": table}, by: "! /p has no place for gpu004"},
		{host: "gpu1", file: "/p", files: map[string]string{"/p": "gpu1 r1\ngpu[1-2] rack=,switch=r1\n"}, want: "switch=r1", by: "/p"},
		{host: "x", file: "/p", files: map[string]string{"/p": "b1/r1/s1\n"}, want: "block=b1,rack=r1,switch=s1", by: "/p"},

		{files: map[string]string{podFiles[0]: "app=\"x\"\ntopology.kubernetes.io/zone=\"eu-1a\"\ntopology.k8s.aws/network-node-layer-3=\"nn-3\"\nnvidia.com/gpu.clique=\"\"\nbroken\n"},
			want: "zone=eu-1a,switch=nn-3", by: podFiles[0]},
		{files: map[string]string{podFiles[1]: "nvidia.com/gpu.clique=\"7b9f.32766\"\n", podFiles[0]: "fabric.topograph.run/tier-0=\"a\\nb\"\n"}, want: "clique=7b9f.32766", by: podFiles[1]},
		{files: map[string]string{cloudFile: `{"v1":{"availability_zone":"us-east-1a"}}`}, want: "zone=us-east-1a", by: cloudFile},
		{files: map[string]string{cloudFile: `{"v1":{"availability_zone":null}}`}},
		{files: map[string]string{cloudFile: `{"v1":`}},
	} {
		s, err := Stands(hostOf(c.host, c.environ, c.files), Said{c.said, "--place"}, Said{c.file, "--place-file"})
		by := strings.Join(s.By, "; ")
		for _, n := range s.Notes {
			by += "! " + n
		}
		if err != nil || s.Place.String() != c.want || by != c.by {
			t.Errorf("%+v: %q by %q, %v", c, s.Place, by, err)
		}
	}
}

func TestStandsNowhere(t *testing.T) {
	files := map[string]string{"/bad": "gpu1 rack=\n", "/long": strings.Repeat("#\n", maxPlaces), "/words": "gpu1 rack=a switch=b\n", "/twice": "gpu[1-2] rack=r7\n# moved\ngpu2 rack=r8\ngpu1 r7/s1\n"}
	for _, c := range []struct{ said, file, want string }{
		{"row=3", "", `--place "row=3": "row" is no part of a place: zone, block, rack, clique, switch are`},
		{"a/b/c/d/e", "", `--place "a/b/c/d/e" has 5 parts: ZONE/BLOCK/RACK/SWITCH are the most`},
		{"rack=r7,rack=r8", "", `--place "rack=r7,rack=r8" has two of rack: "r7" and "r8"`},
		{"zone=$(ZONE),rack=r7", "", `--place "$(ZONE)" is a variable that Kubernetes left as it is`},
		{"rack=", "", "--place names no part of a place: give one, such as rack=r7, or none"},
		{"rack=a\x1b[2J", "", `--place "a\x1b[2J" has a character that no name has`},
		{strings.Repeat("x", 200), "", "has 200 bytes, more than the 128 of a name"},
		{"", "/none", "--place-file /none: file does not exist"},
		{"", "/bad", "--place-file /bad: line 1: names no part of a place"},
		{"", "/words", "--place-file /words: line 1 has 3 words: a place, or a list of nodes and a place"},
		{"", "/long", "more than 4194304"},
		{"", "/twice", "--place-file /twice: line 4 has rack=r7,switch=s1 for gpu1, and line 1 rack=r7; give each node one place"},
	} {
		if _, err := Stands(hostOf("gpu1", nil, files), Said{c.said, "--place"}, Said{c.file, "--place-file"}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q %q: %v, want %q", c.said, c.file, err, c.want)
		}
	}
}

func FuzzStands(f *testing.F) {
	f.Add("rack=r7,switch=l", "a.b.n", "switch.switch.node", "x=\"y\"", "gpu[1-2] r1\n")
	f.Fuzz(func(t *testing.T, said, address, pattern, labels, table string) {
		h := hostOf("gpu1", map[string]string{"SLURM_TOPOLOGY_ADDR": address, "SLURM_TOPOLOGY_ADDR_PATTERN": pattern}, map[string]string{podFiles[0]: labels, cloudFile: labels, "/p": table})
		for _, said := range []string{said, ""} {
			s, err := Stands(h, Said{said, "--place"}, Said{"/p", "--place-file"})
			for _, part := range s.Path() {
				if bad := checkPart(part); err == nil && bad != nil {
					t.Fatalf("%q: %v", s.Place, bad)
				}
			}
		}
	})
}
