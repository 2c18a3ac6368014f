package topology

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/muster-run/muster/topology/fixture"
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
	cut := maps.Clone(mig) // as the driver's installation leaves it
	delete(cut, "dev/nvidia-caps/nvidia-cap66")
	cut["dev/nvidia-caps/nvidia-cap1"], cut["dev/nvidia-caps/nvidia-cap2"] = "", ""
	others := maps.Clone(cut) // another GPU's instance is here
	others["dev/nvidia-caps/nvidia-cap201"] = ""
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
		{name: "MIG, where no instance was used since the machine started", files: cut, want: "/dev/nvidia0 /dev/nvidia0 /dev/nvidia0"},
		{name: "MIG, without any of its instances", files: others,
			hidden: "the machine has 1 accelerator, but this container may use none of them (GPU 0: it is cut up (MIG), and this container was given none of its instances)"},
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

// An integrated GPU, and the GPUs of other vendors, are none of the workers'.
func TestOneVendor(t *testing.T) {
	const display = `
pci 0000:0f:00.0 parent=0000:00 class=0x030000 id=1002:13c0 sub=1002:13c0 cur=16.0/16 max=16.0/16 numa=0 driver=amdgpu
kfd 0 cpu_cores_count=16 simd_count=0
kfd 1 simd_count=4 gfx_target_version=100306 location_id=3840 domain=0 drm_render_minor=129
file dev/kfd ""
file dev/dri/renderD129 ""
`
	one := described(t, "workstation-1gpu") + display
	without := fixture.Edit(t, one, "gpu 0000:01:00.0", "gpu 0000:01:00.0", "# gpu 0000:01:00.0")
	alone := "machine apu\nroot 0000:00 numa=0\n" + display
	radeon := fixture.Edit(t, one, "kfd 1 ", "simd_count=4", "simd_count=192")
	eight := described(t, "mi300x-8gpu-baremetal")
	t400 := eight + `
file dev/kfd ""
root 0000:f0 numa=0
pci 0000:f1:00.0 parent=0000:f0 class=0x030000 id=10de:1fb2 sub=10de:1fb2 cur=8.0/16 max=8.0/16 numa=0 driver=nvidia
gpu 0000:f1:00.0 minor=0 uuid="GPU-1" model="NVIDIA T400"
`
	for _, c := range []struct {
		name, text, vendor string
		slots              int
		hidden             bool
	}{
		{"a display beside a card", one, "nvidia", 1, false},
		{"a display beside a card that this container was not given", without, "", 0, true},
		{"the display alone", alone, "amd", 1, false},
		{"two cards of which either would do", radeon, "nvidia", 1, false},
		{"a card for displays beside accelerators", t400, "amd", 8, false},
	} {
		m := probed(t, expanded(t, c.text))
		slots := m.Slots()
		if len(slots) != c.slots || c.slots > 0 && slots[0].Vendor != c.vendor || (m.Hidden != "") != c.hidden {
			t.Errorf("%s: %d slots, hidden %q", c.name, len(slots), m.Hidden)
		}
		for _, g := range m.GPUs {
			if !g.Visible && g.Why == "" {
				t.Errorf("%s: nothing says why GPU %d is not used", c.name, g.Index)
			}
		}
	}
}

func TestVisible(t *testing.T) {
	eight := make([]GPU, 8)
	cuda, hip, npu := slices.Repeat([]GPU{{Vendor: "nvidia"}}, 8), slices.Repeat([]GPU{{Vendor: "amd"}}, 8), slices.Repeat([]GPU{{Vendor: "ascend"}}, 8)
	mlu, musa := slices.Repeat([]GPU{{Vendor: "cambricon"}}, 8), slices.Repeat([]GPU{{Vendor: "moorethreads"}}, 8)
	for i := range cuda {
		cuda[i].UUID, hip[i].UUID = fmt.Sprintf("GPU-%d0000000-aaaa", i), fmt.Sprintf("GPU-%016x", i)
	}
	for _, c := range []struct {
		gpus []GPU
		env  string
		want int
	}{
		{eight, "", 8},
		{eight, "CUDA_VISIBLE_DEVICES=0,1", 2},
		{eight, "CUDA_VISIBLE_DEVICES=", 0},
		{eight, "CUDA_VISIBLE_DEVICES=-1", 0},
		{eight, "CUDA_VISIBLE_DEVICES=2,9,3", 1},
		{eight, "CUDA_VISIBLE_DEVICES=GPU-1234,MIG-5678", 2},
		{eight, "CUDA_VISIBLE_DEVICES=GPU-1234,GPU-1234", 0},
		{eight, "CUDA_VISIBLE_DEVICES= 0 , 1 ,2", 3},
		{cuda, "CUDA_VISIBLE_DEVICES=NoDevFiles", 0},
		{cuda, "CUDA_VISIBLE_DEVICES=0,NoDevFiles,1", 1},
		{cuda, "CUDA_VISIBLE_DEVICES=0,0", 0},
		{cuda, "CUDA_VISIBLE_DEVICES=0,1,2,0", 0},
		{cuda, "CUDA_VISIBLE_DEVICES=0,,1", 1},
		{cuda, "CUDA_VISIBLE_DEVICES=1gpu,2gpu", 2},
		{cuda, "CUDA_VISIBLE_DEVICES=99999999999999999999", 0},
		{cuda, "CUDA_VISIBLE_DEVICES=GPU-dead,GPU-beef", 0},
		{cuda, "CUDA_VISIBLE_DEVICES=GPU-3,GPU-10000000-aaaa,GPU-beef,GPU-2", 2},
		{cuda, "CUDA_VISIBLE_DEVICES=GPU-3,GPU-30000000-aaaa", 0},
		{cuda, "CUDA_VISIBLE_DEVICES=GPU-", 0},
		{cuda, "CUDA_VISIBLE_DEVICES=MIG-1", 0},
		{cuda, "ROCR_VISIBLE_DEVICES=0; HIP_VISIBLE_DEVICES=0", 8},
		{hip, "HIP_VISIBLE_DEVICES=0,1,2", 3},
		{hip, "ROCR_VISIBLE_DEVICES=4,5; HIP_VISIBLE_DEVICES=0,1,2,3", 2},
		{hip, "ROCR_VISIBLE_DEVICES=4,5,6; HIP_VISIBLE_DEVICES=2", 1},
		{hip, "ROCR_VISIBLE_DEVICES=4,5; HIP_VISIBLE_DEVICES=4,5", 0},
		{hip, "ROCR_VISIBLE_DEVICES=4,GPU-0000000000000005; CUDA_VISIBLE_DEVICES=1", 1},
		{hip, "HIP_VISIBLE_DEVICES=0,1,2; CUDA_VISIBLE_DEVICES=0", 3},
		{mlu, "MLU_VISIBLE_DEVICES=0,1,2; CUDA_VISIBLE_DEVICES=0", 3},
		{musa, "MUSA_VISIBLE_DEVICES=7; CUDA_VISIBLE_DEVICES=0,1", 1},
		{npu, "ASCEND_RT_VISIBLE_DEVICES=0,1; CUDA_VISIBLE_DEVICES=0", 2},
		{nil, "CUDA_VISIBLE_DEVICES=0,1", 0},
	} {
		env := map[string]string{}
		for kv := range strings.SplitSeq(c.env, "; ") {
			if name, value, ok := strings.Cut(kv, "="); ok {
				env[name] = value
			}
		}
		got, why := visible(c.gpus, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		if len(got) != c.want || (why == "") != (c.want == len(c.gpus)) {
			t.Errorf("%s: %d because of %q, want %d", c.env, len(got), why, c.want)
		}
	}
	two := Machine{GPUs: []GPU{{Visible: true, Vendor: "nvidia"}, {Visible: true, Vendor: "nvidia"}}}
	const want = "CUDA_VISIBLE_DEVICES=1,1 (1 is there twice, which leaves none)"
	if n, why := two.Visible(func(name string) (string, bool) { return "1,1", name == "CUDA_VISIBLE_DEVICES" }); n != 0 || why != want {
		t.Errorf("%d, %q; want %q", n, why, want)
	}
}

// Counters that stand at their end are told so; those that the kernel does not have are none.
func TestCounters(t *testing.T) {
	text := fixture.Edit(t, described(t, "workstation-1gpu")+hca, "port mlx5_0 1 ", "down=0", "down=255", "sym=0", `sym="N/A (no PMA)"`)
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
