package page

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Several agents unpack at once; each finds all of it.
func TestUnpack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	var all sync.WaitGroup
	paths := make([]string, 8)
	for i := range paths {
		all.Go(func() {
			var err error
			if paths[i], err = Unpack(dir); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, p := range paths {
		if p == "" || p != paths[0] {
			t.Fatalf("%q", paths)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	if info, err := os.Stat(filepath.Join(paths[0], "sitecustomize.py")); err != nil || info.Mode() != 0o444 {
		t.Errorf("%v, %v", info, err)
	}
}

// Something else under that name is no hook.
func TestUnpackSpoiled(t *testing.T) {
	dir := t.TempDir()
	path, err := Unpack(dir)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(path, "sitecustomize.py")
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Unpack(dir); err == nil || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
}

func TestEnv(t *testing.T) {
	for _, c := range []struct{ given, want string }{
		{"", "MUSTER_PAGE=/p PYTHONPATH=/hook TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_TRACE_BUFFER_SIZE=2000"},
		{"PYTHONPATH=", "MUSTER_PAGE=/p PYTHONPATH=/hook TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_TRACE_BUFFER_SIZE=2000"},
		{"PYTHONPATH=/a::/b: TORCH_NCCL_TRACE_BUFFER_SIZE=0", "MUSTER_PAGE=/p PYTHONPATH=/hook:/a::/b:"},
		{"PYTHONPATH=/a TORCH_FR_BUFFER_SIZE=5", "MUSTER_PAGE=/p PYTHONPATH=/hook:/a"},
		{"PYTHONPATH=/a MUSTER_HOOK=off", "MUSTER_PAGE=/p"},
	} {
		given := map[string]string{}
		for _, kv := range strings.Fields(c.given) {
			name, value, _ := strings.Cut(kv, "=")
			given[name] = value
		}
		var got []string
		for _, v := range Env("/hook", "/p", func(name string) (string, bool) { v, ok := given[name]; return v, ok }) {
			got = append(got, v.Name+"="+v.Value)
			if v.Why == "" {
				t.Errorf("%s: no reason", v.Name)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.given, strings.Join(got, " "), c.want)
		}
	}
}

func TestCatches(t *testing.T) {
	for _, c := range []struct {
		status string
		want   bool
	}{
		{"Name:\tx\nSigCgt:\t0008000000000000\nCapInh:\t0\n", true},
		{"Name:\tx\nSigCgt:\tfff7ffffffffffff\nCapInh:\t0\n", false},
		{"Name:\tx\n", false},
		{"", false},
	} {
		if Catches(c.status) != c.want {
			t.Errorf("%q: %v", c.status, !c.want)
		}
	}
}
