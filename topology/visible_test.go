package topology

import (
	"strings"
	"testing"
)

// What counts as a place for a worker, where little but device nodes is there.
func TestSlots(t *testing.T) {
	amd := map[string]string{
		"dev/kfd": "", "dev/dri/renderD128": "", "dev/dri/renderD136": "",
		"sys/class/kfd/kfd/topology/nodes/0/properties": "cpu_cores_count 64\nsimd_count 0\n",
		"sys/class/kfd/kfd/topology/nodes/1/properties": "simd_count 1216\nlocation_id 3072\ndomain 0\ndrm_render_minor 128\n",
		"sys/class/kfd/kfd/topology/nodes/2/properties": "simd_count 1216\nlocation_id 3073\ndomain 0\ndrm_render_minor 136\n",
		"sys/class/kfd/kfd/topology/nodes/3/properties": "simd_count 1216\nlocation_id 3074\ndomain 0\ndrm_render_minor 144\n",
	}
	mig := map[string]string{
		"proc/driver/nvidia/gpus/0000:1b:00.0/information":        "Model: A100\nGPU UUID: GPU-1\nDevice Minor: 0\n",
		"proc/driver/nvidia/capabilities/gpu0/mig/config":         "DeviceFileMinor: 1\n",
		"proc/driver/nvidia/capabilities/gpu0/mig/gi7/ci0/access": "DeviceFileMinor: 66\nDeviceFileMode: 292\n",
		"proc/driver/nvidia/capabilities/gpu0/mig/gi8/ci0/access": "DeviceFileMinor: 75\nDeviceFileMode: 292\n",
		"proc/driver/nvidia/capabilities/gpu0/mig/gi9/ci0/access": "nonsense\n",
		"dev/nvidia0": "", "dev/nvidia-caps/nvidia-cap66": "",
	}
	ascend := map[string]string{"dev/davinci0": "", "dev/davinci_manager": ""}
	for _, at := range []string{"0000:01:00.0", "0000:02:00.0"} {
		ascend["sys/bus/pci/devices/"+at+"/class"] = "0x120000\n"
		ascend["sys/bus/pci/devices/"+at+"/vendor"] = "0x19e5\n"
		ascend["sys/bus/pci/devices/"+at+"/device"] = "0xd802\n"
	}
	for _, c := range []struct {
		name   string
		files  map[string]string
		want   string // devices
		hidden string
	}{
		{name: "nothing at all"},
		{name: "NVIDIA's nodes alone, by number", files: map[string]string{"dev/nvidia10": "", "dev/nvidia0": "", "dev/nvidia2": "", "dev/nvidiactl": "", "dev/nvidia-uvm": "", "dev/nvidia-caps/x": ""},
			want: "/dev/nvidia0 /dev/nvidia2 /dev/nvidia10"},
		{name: "AMD's nodes alone", files: map[string]string{"dev/kfd": "", "dev/dri/renderD128": "", "dev/dri/renderD129": "", "dev/dri/card0": ""},
			want: "/dev/dri/renderD128 /dev/dri/renderD129"},
		{name: "a display", files: map[string]string{"dev/dri/renderD128": ""}},
		{name: "parts of a card of AMD's, one of them another's", files: amd, want: "/dev/dri/renderD128 /dev/dri/renderD136"},
		{name: "GPUs that the container was not given", files: map[string]string{"proc/driver/nvidia/gpus/0000:1b:00.0/information": "GPU UUID: GPU-1\nDevice Minor: 0\n", "dev/nvidiactl": ""},
			hidden: "the machine has 1 accelerator, but this container may use none of them (GPU 0: no /dev/nvidia0 in this container)"},
		{name: "a number that is no minor", files: map[string]string{"dev/nvidia99999999999999999999": "", "dev/nvidia4294967295": "", "dev/nvidia01": "", "dev/nvidia1": ""}, want: "/dev/nvidia1"},
		{name: "MIG, one instance of three", files: mig, want: "/dev/nvidia0"},
		{name: "Ascend, one of two", files: ascend, want: "/dev/davinci0"},
		{name: "an FPGA", files: map[string]string{"sys/bus/pci/devices/0000:01:00.0/class": "0x120000\n", "sys/bus/pci/devices/0000:01:00.0/vendor": "0x10ee\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Root(t.TempDir())
			for name, text := range c.files {
				write(t, r, name, text)
			}
			m := probed(t, r)
			var devices []string
			for _, g := range m.Slots() {
				devices = append(devices, g.Device)
			}
			if got := strings.Join(devices, " "); got != c.want || !strings.HasPrefix(m.Hidden, c.hidden) || (m.Hidden == "") != (c.hidden == "") {
				t.Errorf("got %q, hidden %q; want %q, hidden %q", got, m.Hidden, c.want, c.hidden)
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

// Counters that stand at their end are told so; those that the kernel does not have are none.
func TestCounters(t *testing.T) {
	text := edit(t, described(t, "workstation-1gpu")+hca, "port mlx5_0 1 ", "down=0", "down=255", "sym=0", `sym="N/A (no PMA)"`)
	c := expanded(t, text).Counters("mlx5_0", 1)
	if c.LinkDowned == nil || *c.LinkDowned != 255 || c.Recovered == nil || c.Symbols != nil || !c.Saturated() {
		t.Errorf("%+v", c)
	}
	if c := Root(t.TempDir()).Counters("mlx5_0", 1); c != (Counters{}) || c.Saturated() {
		t.Errorf("%+v", c)
	}
}

const hca = `
hca mlx5_0 pci=0000:05:00.0 hca_type=MT4129 fw=28.39.3004 board=MT_0000000838 node_guid=a088:c203:0090:0000 uverbs=0 node_type="1: CA"
port mlx5_0 1 state="4: ACTIVE" phys="5: LinkUp" rate="400 Gb/sec (4X NDR)" layer=InfiniBand lid=0x40 sm_lid=0x1 cap=0xa751e84a down=0 recov=0 sym=0
`
