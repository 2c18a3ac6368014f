// Package topology reads a machine's accelerators from what its kernel says.
package topology

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// A Root is where a machine's /dev, /proc and /sys begin: "/" for the one that we run on.
type Root string

func (r Root) path(elem ...string) string {
	return filepath.Join(append([]string{string(r)}, elem...)...)
}

// A GPU is an accelerator that this container may use.
type GPU struct {
	Device string // its device node: /dev/nvidia0, /dev/dri/renderD128
	Vendor string // nvidia, amd
}

// A Machine is what a node brings. No GPU is an ordinary answer.
type Machine struct {
	GPUs []GPU
	// Hidden says why a machine that has an accelerator's driver shows no accelerator to this container; else "".
	Hidden string
}

// Probe reads the machine under r.
func Probe(r Root) (Machine, error) {
	nvidia, err := r.nodes("dev", nvidiaNode, "nvidia")
	if err != nil {
		return Machine{}, err
	}
	amd, err := r.amd()
	if err != nil {
		return Machine{}, err
	}
	m := Machine{GPUs: append(nvidia, amd...)}
	if len(m.GPUs) == 0 {
		m.Hidden = r.hidden()
	}
	return m, nil
}

// nvidiaNode matches the device node of one GPU: the driver makes /dev/nvidia0 and so on, and the container
// runtime shows those that the container was given (NVIDIA driver README, chapter "Device nodes").
var nvidiaNode = regexp.MustCompile(`^nvidia([0-9]+)$`)

// renderNode matches the render node of one GPU (drivers/gpu/drm/drm_drv.c: minors from 128 on).
var renderNode = regexp.MustCompile(`^renderD([0-9]+)$`)

// nodes lists the device nodes in dir whose name matches, by number.
func (r Root) nodes(dir string, name *regexp.Regexp, vendor string) ([]GPU, error) {
	entries, err := os.ReadDir(r.path(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	byNumber := map[int]GPU{}
	highest := -1
	for _, e := range entries {
		m := name.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		n, err := strconv.Atoi(m[1])
		if err != nil || n > 1<<20 { // a minor number has 20 bits (include/linux/kdev_t.h)
			continue
		}
		byNumber[n] = GPU{Device: "/" + dir + "/" + e.Name(), Vendor: vendor}
		highest = max(highest, n)
	}
	return inOrder(byNumber, highest), nil
}

func inOrder(byNumber map[int]GPU, highest int) []GPU {
	var gpus []GPU
	for n := 0; n <= highest && len(gpus) < len(byNumber); n++ {
		if g, ok := byNumber[n]; ok {
			gpus = append(gpus, g)
		}
	}
	return gpus
}

// amd lists render nodes where the compute driver is open to us (drivers/gpu/drm/amd/amdkfd); a render node
// without /dev/kfd belongs to a display.
func (r Root) amd() ([]GPU, error) {
	if _, err := os.Stat(r.path("dev/kfd")); err != nil {
		return nil, nil
	}
	return r.nodes("dev/dri", renderNode, "amd")
}

// hidden looks for a driver whose devices this container was not given.
func (r Root) hidden() string {
	gpus, _ := os.ReadDir(r.path("proc/driver/nvidia/gpus"))
	if len(gpus) > 0 {
		return fmt.Sprintf("the NVIDIA driver has %d GPUs, but /dev holds no nvidia0, nvidia1, …: the container was given none "+
			"(nvidia.com/gpu in the pod's limits, or --gpus)", len(gpus))
	}
	return ""
}

// Visible applies CUDA_VISIBLE_DEVICES and its kin to gpus: how many of them a process sees.
// An index or id that does not exist ends the list (CUDA C Programming Guide, "CUDA Environment Variables").
func Visible(gpus []GPU, getenv func(string) (string, bool)) (int, string) {
	n := len(gpus)
	for _, name := range []string{"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"} {
		list, set := getenv(name)
		if !set || n == 0 {
			continue
		}
		if v := listed(list, n); v < n {
			return v, name + "=" + list
		}
	}
	return n, ""
}

// listed counts the entries of list up to the first that names no device among n.
func listed(list string, n int) int {
	count := 0
	for _, entry := range strings.Split(list, ",") {
		entry = strings.TrimSpace(entry)
		i, err := strconv.Atoi(entry)
		if entry == "" || err == nil && (i < 0 || i >= n) {
			break
		}
		count++ // an index that exists, or a UUID, which only the driver can check
	}
	return count
}
