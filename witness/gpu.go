package witness

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A GPU is one of NVIDIA's as nvidia-smi shows it. One that hangs in a collective is busy, for NCCL's kernels wait by spinning, but
// takes less power than one that computes.
type GPU struct {
	Index  int    `json:"gpu"` // of the machine; a process's own numbers may be others
	UUID   string `json:"uuid,omitempty"`
	Watts  int    `json:"watts,omitempty"`  // drawn; 0: not told
	Busy   int    `json:"busy,omitempty"`   // percent of the time in which a kernel ran
	Memory uint64 `json:"memory,omitempty"` // bytes in use
	Error  string `json:"error,omitempty"`  // what is told in place of its figures: "[GPU is lost]"
}

// SMI is the command whose output GPUs reads. SMILimit is how long it may take: where the driver has died it never ends.
func SMI() []string {
	return []string{"nvidia-smi", "--query-gpu=index,uuid,power.draw,utilization.gpu,memory.used", "--format=csv,noheader,nounits"}
}

// SMILimit is how long one waits for SMI.
const SMILimit = 2 * time.Second

// maxGPUs bounds what GPUs keeps; no machine has so many.
const maxGPUs = 256

// GPUs reads the output of SMI. A figure that a GPU does not have, "[N/A]", is 0. Lines that are no GPU's are left out; the error says
// what they say if there is no other: "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. …".
func GPUs(output []byte) (gpus []GPU, err error) {
	for line := range strings.Lines(string(output)) {
		g, ok := parseGPU(line)
		if ok && len(gpus) < maxGPUs {
			gpus = append(gpus, g)
		}
		if text := strings.TrimSpace(line); !ok && text != "" && err == nil {
			err = fmt.Errorf("nvidia-smi: %.200s", text)
		}
	}
	if gpus != nil {
		err = nil
	}
	return gpus, err
}

// parseGPU reads a line such as "0, GPU-5a1…, 412.53, 100, 71250"; memory is in MiB.
func parseGPU(line string) (g GPU, ok bool) {
	f := strings.Split(line, ",")
	for i := range f {
		f[i] = strings.TrimSpace(f[i])
	}
	if len(f) != 5 {
		return g, false
	}
	var err error
	if g.Index, err = strconv.Atoi(f[0]); err != nil {
		return g, false
	}
	g.UUID = f[1]
	watts, known := figure(f[2])
	busy, known2 := figure(f[3])
	memory, known3 := figure(f[4])
	if !known && !known2 && !known3 {
		g.Error = f[2]
	}
	g.Watts, g.Busy, g.Memory = int(math.Round(watts)), int(busy), uint64(memory)<<20
	return g, true
}

// figure is a number that can be one; 0 is in place of another, and of a text.
func figure(text string) (float64, bool) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0 && v < 1e9) {
		return 0, false
	}
	return v, true
}
