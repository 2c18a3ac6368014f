package topology

import (
	"slices"
	"strconv"
	"strings"
)

// Visible is how many places for workers a process with an environment sees: Slots, less what the variables of their vendor's runtime hide.
// The last text is what hides some.
func (m Machine) Visible(getenv func(string) (string, bool)) (int, string) {
	gpus, why := visible(m.Slots(), getenv)
	return len(gpus), why
}

// Seen are those places, in the order of the lists.
func (m Machine) Seen(getenv func(string) (string, bool)) []GPU {
	gpus, _ := visible(m.Slots(), getenv)
	return gpus
}

func visible(gpus []GPU, getenv func(string) (string, bool)) (seen []GPU, why string) {
	for _, name := range lists(gpus, getenv) {
		list, _ := getenv(name)
		if all, twice := listed(list, gpus); len(all) < len(gpus) {
			gpus, why = all, strings.TrimPrefix(why+" "+name+"="+list, " ")
			if twice != "" {
				why += " (" + twice + " is there twice, which leaves none)"
			}
		}
	}
	return gpus, why
}

// lists are the variables that are set and obeyed, in order: each counts among what the one before leaves. HIP's is another name for CUDA's
// (ROCm documentation, "GPU isolation techniques"; "HIP environment variables").
func lists(gpus []GPU, getenv func(string) (string, bool)) (names []string) {
	if len(gpus) == 0 {
		return nil
	}
	var obeyed []string
	switch gpus[0].Vendor {
	case "amd", "hygon":
		obeyed = []string{"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}
		if _, set := getenv("HIP_VISIBLE_DEVICES"); !set {
			obeyed[1] = "CUDA_VISIBLE_DEVICES"
		}
	case "ascend":
		obeyed = []string{"ASCEND_RT_VISIBLE_DEVICES"}
	case "cambricon":
		obeyed = []string{"MLU_VISIBLE_DEVICES"}
	case "moorethreads":
		obeyed = []string{"MUSA_VISIBLE_DEVICES"}
	default:
		obeyed = []string{"CUDA_VISIBLE_DEVICES"}
	}
	return slices.DeleteFunc(obeyed, func(name string) bool { _, set := getenv(name); return !set })
}

// listed are the GPUs that a list names, up to the first entry that names none (CUDA C++ Programming Guide, "CUDA Environment Variables").
// One that is named twice leaves nothing at all, as PyTorch found CUDA to do (torch/cuda/__init__.py, _parse_visible_devices).
func listed(list string, gpus []GPU) (all []GPU, twice string) {
	var taken []string
	for text := range strings.SplitSeq(list, ",") {
		g, name, ok := entry(strings.TrimSpace(text), gpus)
		if slices.Contains(taken, name) {
			return nil, strings.TrimSpace(text)
		}
		if !ok || len(all) == len(gpus) {
			break
		}
		all, taken = append(all, g), append(taken, name)
	}
	return all, ""
}

// entry is the GPU of an entry: by the number that the entry begins with, or by the beginning of its id, if no other's id begins so. An id that
// only the driver can check counts, for no GPU in particular.
func entry(text string, gpus []GPU) (g GPU, name string, ok bool) {
	if d := digits(text); d > 0 {
		i, err := strconv.Atoi(text[:d])
		if err != nil || i >= len(gpus) {
			return g, "", false
		}
		return gpus[i], strconv.Itoa(i), true
	}
	if !strings.HasPrefix(text, "GPU-") && !strings.HasPrefix(text, "MIG-") {
		return g, "", false
	}
	var those []GPU
	for _, g := range gpus {
		if strings.HasPrefix(strings.ToLower(g.UUID), strings.ToLower(text)) {
			those = append(those, g)
		}
	}
	switch {
	case len(those) == 1:
		return those[0], those[0].UUID, true
	case len(those) > 1:
		return g, "", false
	}
	unchecked := func(g GPU) bool { return g.UUID == "" || g.Vendor != "nvidia" } // ROCm's ids are written in more than one way
	return g, text, slices.ContainsFunc(gpus, unchecked)
}
