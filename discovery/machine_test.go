package discovery

import (
	"io/fs"
	"testing"

	"github.com/muster-run/muster/job"
)

func TestMachine(t *testing.T) {
	const boot, id = "a1b2\n", "0123abcd\n"
	for name, c := range map[string]struct {
		vars  map[string]string
		files map[string]string
		want  job.Machine
	}{
		"bare machine":        {nil, map[string]string{"/etc/machine-id": id}, job.Machine{Name: "host", ID: "0123abcd", Boot: "a1b2"}},
		"without machine-id":  {nil, nil, job.Machine{Name: "host", Boot: "a1b2"}},
		"pod":                 {map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, map[string]string{"/etc/machine-id": id}, job.Machine{Boot: "a1b2"}},
		"pod that is told":    {map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1", "NODE_NAME": "gpu07"}, nil, job.Machine{Name: "gpu07", Boot: "a1b2"}},
		"container of Docker": {nil, map[string]string{"/.dockerenv": "", "/etc/machine-id": id}, job.Machine{Boot: "a1b2"}},
		"step of Slurm":       {map[string]string{"SLURMD_NODENAME": "gpu07"}, map[string]string{"/etc/machine-id": id}, job.Machine{Name: "gpu07", Boot: "a1b2"}},
	} {
		got := Machine(job.Host{
			Hostname: "host", Getenv: func(name string) string { return c.vars[name] },
			ReadFile: func(path string) ([]byte, error) {
				if path == "/proc/sys/kernel/random/boot_id" {
					return []byte(boot), nil
				}
				if text, ok := c.files[path]; ok {
					return []byte(text), nil
				}
				return nil, fs.ErrNotExist
			},
		})
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestSameMachine(t *testing.T) {
	gpu := job.Machine{Name: "gpu07", Boot: "1"}
	for _, c := range []struct {
		a, b job.Machine
		want bool
	}{
		{gpu, job.Machine{Name: "gpu07", Boot: "2"}, true}, // it was started anew
		{gpu, job.Machine{Name: "gpu08", Boot: "1"}, false},
		{gpu, job.Machine{Boot: "1"}, true},
		{gpu, job.Machine{Boot: "2"}, false},
		{gpu, job.Machine{Name: "gpu07", ID: "x", Boot: "1"}, false},
		{job.Machine{Name: "vm", ID: "x"}, job.Machine{Name: "vm", ID: "y"}, false},
		{job.Machine{}, job.Machine{}, false},
	} {
		if c.a.Is(c.b) != c.want || c.b.Is(c.a) != c.want {
			t.Errorf("%v is %v: not %v", c.a, c.b, c.want)
		}
	}
}
