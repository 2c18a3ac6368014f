package topology

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree makes files, or directories where the name ends in a slash, under a fresh root.
func tree(t *testing.T, names ...string) Root {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Root(root)
}

func TestProbe(t *testing.T) {
	for _, c := range []struct {
		name   string
		files  []string
		want   string // devices
		hidden bool
	}{
		{name: "nothing at all"},
		{name: "NVIDIA, by number", files: []string{"dev/nvidia10", "dev/nvidia0", "dev/nvidia2", "dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia-caps/"},
			want: "/dev/nvidia0 /dev/nvidia2 /dev/nvidia10"},
		{name: "AMD", files: []string{"dev/kfd", "dev/dri/renderD128", "dev/dri/renderD129", "dev/dri/card0"},
			want: "/dev/dri/renderD128 /dev/dri/renderD129"},
		{name: "a display", files: []string{"dev/dri/renderD128"}},
		{name: "GPUs that the container was not given", files: []string{"proc/driver/nvidia/gpus/0000:1b:00.0/information", "dev/nvidiactl"}, hidden: true},
		{name: "a number that is no minor", files: []string{"dev/nvidia99999999999999999999", "dev/nvidia4294967295", "dev/nvidia1"}, want: "/dev/nvidia1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := Probe(tree(t, c.files...))
			var devices []string
			for _, g := range m.GPUs {
				devices = append(devices, g.Device)
			}
			if got := strings.Join(devices, " "); err != nil || got != c.want || (m.Hidden != "") != c.hidden {
				t.Errorf("got %q, hidden %q, %v; want %q, hidden %v", got, m.Hidden, err, c.want, c.hidden)
			}
		})
	}
}

func TestVisible(t *testing.T) {
	eight := make([]GPU, 8)
	for _, c := range []struct {
		env  map[string]string
		want int
	}{
		{nil, 8},
		{map[string]string{"CUDA_VISIBLE_DEVICES": "0,1"}, 2},
		{map[string]string{"CUDA_VISIBLE_DEVICES": ""}, 0},
		{map[string]string{"CUDA_VISIBLE_DEVICES": "-1"}, 0},
		{map[string]string{"CUDA_VISIBLE_DEVICES": "2,9,3"}, 1},
		{map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-1234,MIG-5678"}, 2},
		{map[string]string{"HIP_VISIBLE_DEVICES": " 0 , 1 ,2"}, 3},
	} {
		got, why := Visible(eight, func(name string) (string, bool) { v, ok := c.env[name]; return v, ok })
		if got != c.want || (why == "") != (c.want == 8) {
			t.Errorf("%v: %d because of %q, want %d", c.env, got, why, c.want)
		}
	}
	if n, _ := Visible(nil, func(string) (string, bool) { return "0,1", true }); n != 0 {
		t.Errorf("a machine without GPUs shows %d", n)
	}
}
