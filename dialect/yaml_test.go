package dialect

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// What Python's YAML makes of a value, as str() writes it.
func TestScalars(t *testing.T) {
	for _, c := range [][2]string{
		{"yes", "True"}, {"No", "False"}, {"y", "y"}, {"on", "True"}, {"off", "False"}, {"True", "True"}, {"tRue", "tRue"},
		{"1", "1"}, {"-1", "-1"}, {"+12", "12"}, {"007", "7"}, {"012_3", "83"}, {"08", "08"}, {"0o7", "0o7"}, {"0x1F", "31"}, {"0b101", "5"}, {"1_000", "1000"},
		{"100000000000000000000", "100000000000000000000"}, {"0,1", "0,1"}, {"2024-01-01", "2024-01-01"},
		{"1.0", "1.0"}, {"1e-3", "1e-3"}, {"1.5e-3", "0.0015"}, {"1.e+3", "1000.0"}, {".5", "0.5"}, {"-.5", "-.5"}, {"1.", "1.0"}, {"1.0e+16", "1e+16"}, {"0.1e+2", "10.0"},
		{"~", "<none>"}, {"null", "<none>"}, {"", "<none>"}, {"''", ""}, {"'1'", "1"}, {`"no"`, "no"}, {"!!str 1", "1"}, {"|-\n  no", "no"},
		{"[yes, 1]", "[True 1]"},
	} {
		keys, err := readKeys([]byte("k: "+c[0]), false)
		if err != nil {
			t.Errorf("%q: %v", c[0], err)
			continue
		}
		got := keys[0].text
		switch {
		case keys[0].none:
			got = "<none>"
		case keys[0].list != nil:
			got = "[" + strings.Join(keys[0].list, " ") + "]"
		}
		if got != c[1] {
			t.Errorf("%q is %q, want %q", c[0], got, c[1])
		}
	}
}

func TestFloats(t *testing.T) {
	for text, want := range map[string]string{
		"1": "1.0", "1e16": "1e+16", "1e15": "1000000000000000.0", "123456789012345678": "1.2345678901234568e+17",
		"1e-4": "0.0001", "1e-5": "1e-05", "0.1": "0.1", "1e22": "1e+22", "-2.5": "-2.5", "inf": "inf", "nan": "nan",
	} {
		if got, err := pyFloat(text); got != want || err != nil {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
}

func TestFileTooLong(t *testing.T) {
	long := bytes.Repeat([]byte("a: b\n"), maxFile/4)
	if _, err := readKeys(long, false); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Error(err)
	}
}

func FuzzReadKeys(f *testing.F) {
	f.Add([]byte("a: &x [1, no]\nb: *x\nc: {d: ~}"), false)
	f.Add([]byte("{\t\"a\": {\"b\": [true, null]}}"), true)
	f.Fuzz(func(t *testing.T, data []byte, isJSON bool) {
		keys, err := readKeys(data, isJSON)
		if err == nil && keys == nil {
			t.Error("neither keys nor an error")
		}
	})
}

func TestCores(t *testing.T) {
	const dir = "/sys/devices/system/cpu/"
	files := map[string]string{dir + "online": "0-2,5\n"}
	for cpu, threads := range map[int]string{0: "0,2\n", 1: "1,5\n", 2: "0,2\n", 5: "1,5\n"} {
		files[dir+"cpu"+strconv.Itoa(cpu)+"/topology/core_cpus_list"] = threads
	}
	if got := cores(host("h", nil, files)); got != 2 {
		t.Errorf("%d cores of 4 threads", got)
	}
	delete(files, dir+"cpu5/topology/core_cpus_list")
	if got := cores(host("h", nil, files)); got != 0 {
		t.Errorf("%d cores, where the kernel does not say", got)
	}
	for text, want := range map[string][]int{"0": {0}, "0-1,4": {0, 1, 4}, "": nil, "0-99999999": nil, "a-b": nil, "3-1": nil} {
		if got := cpuList(text); !slices.Equal(got, want) {
			t.Errorf("%q: %v", text, got)
		}
	}
}
