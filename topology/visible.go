package topology

import (
	"strconv"
	"strings"
)

// Visible applies CUDA_VISIBLE_DEVICES and its kin to gpus: how many of them a process sees.
// An index or id that does not exist ends the list (CUDA C Programming Guide, "CUDA Environment Variables").
func Visible(gpus []GPU, getenv func(string) (string, bool)) (int, string) {
	n := len(gpus)
	for _, name := range []string{"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"} {
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
