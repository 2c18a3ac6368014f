package dialects

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-run/muster/dialect"
	"github.com/muster-run/muster/job"
)

// A machine is some nodes of NUMA, each with these CPUs, of which so many are cores, and what workers are told to run on.
type machine struct {
	Nodes   [][]int
	Cores   int
	List    string
	Workers int
}

// machines are those of one node, of several, with hyperthreads, with memory in the package (a node without CPUs for each with some),
// with nodes that a kernel divided (numa=fake), and some that no one has.
var machines = []machine{
	{[][]int{span(0, 2)}, 2, "", 2},
	{[][]int{span(0, 2)}, 2, "1", 1},
	{[][]int{span(0, 4), span(4, 8)}, 8, "", 2},
	{[][]int{span(0, 4), span(4, 8)}, 8, "", 3},
	{[][]int{span(0, 4), span(4, 8)}, 8, "", 1},
	{[][]int{span(0, 4), span(4, 8)}, 8, "1,3-5,7", 2},
	{[][]int{append(span(0, 4), span(8, 12)...), append(span(4, 8), span(12, 16)...)}, 8, "", 4},
	{[][]int{span(0, 4), span(4, 8), {}, {}}, 8, "", 2},
	{[][]int{span(0, 4), {}, span(4, 8), {}}, 8, "2-5", 2},
	{[][]int{span(0, 4), {}, span(4, 8)}, 8, "", 2},
	{[][]int{span(0, 4), span(0, 4), span(4, 8), span(4, 8)}, 8, "", 2},
	{[][]int{span(0, 4), span(0, 4), span(0, 4), span(4, 8)}, 8, "", 4},
	{[][]int{span(0, 4), span(0, 4), {}, span(4, 8), span(4, 8)}, 8, "0-7", 2},
	{nil, 4, "", 2},
}

func span(from, to int) (list []int) {
	for i := from; i < to; i++ {
		list = append(list, i)
	}
	return list
}

// Where muster binds workers is where DeepSpeed has numactl bind them, on machines that are not this one.
func TestCores(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(python(t), "scripts/numactl.py")
	text, err := json.Marshal(machines)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(text)), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var theirs [][]bound
	if err := json.Unmarshal(out, &theirs); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for i, m := range machines {
		bindings, err := dialect.Cores{List: m.List}.Bindings(m.host(), m.Workers)
		if err != nil {
			t.Errorf("%+v: %v", m, err)
		}
		var ours []bound
		for _, b := range bindings {
			ours = append(ours, bound{b, len(b.CPUs)})
		}
		if !reflect.DeepEqual(ours, theirs[i]) {
			t.Errorf("%+v: DeepSpeed binds to %+v, muster to %+v", m, theirs[i], ours)
		}
	}
}

// bound is a worker's binding, and how many threads it is to have.
type bound struct {
	job.Binding
	Threads int
}

// host is a machine of whose kernel only this can be read.
func (m machine) host() job.Host {
	files := map[string]string{}
	var all []int
	for node, cpus := range m.Nodes {
		files[fmt.Sprintf("/sys/devices/system/node/node%d/cpulist", node)] = listed(cpus) + "\n"
		all = append(all, cpus...)
	}
	files["/sys/devices/system/node/online"] = listed(span(0, len(m.Nodes))) + "\n"
	if m.Nodes == nil {
		delete(files, "/sys/devices/system/node/online")
		all = span(0, m.Cores)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	files["/proc/self/status"] = "Name:\tx\nCpus_allowed_list:\t" + listed(all) + "\n"
	for _, cpu := range all {
		files[fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/core_cpus_list", cpu)] = strconv.Itoa(cpu % m.Cores)
	}
	return job.Host{ReadFile: func(path string) ([]byte, error) {
		if text, ok := files[path]; ok {
			return []byte(text), nil
		}
		return nil, os.ErrNotExist
	}}
}

func listed(numbers []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ","), "[]")
}
