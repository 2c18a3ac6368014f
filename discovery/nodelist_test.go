package discovery

import (
	"strings"
	"testing"
)

func TestNodelist(t *testing.T) {
	for text, want := range map[string]string{
		"a1":              "a1",
		"a[1-3]":          "a1 a2 a3",
		"a[01-03,07]":     "a01 a02 a03 a07",
		"a[1-2]b[1-2]":    "a1b1 a1b2 a2b1 a2b2",
		"a[1,3],b5":       "a1 a3 b5",
		"n[098-101]":      "n098 n099 n100 n101",
		"rack[0-1]-n[2]":  "rack0-n2 rack1-n2",
		"x[1-2]y":         "x1y x2y",
		"GPU[8-10]":       "gpu8 gpu9 gpu10",
		"":                "is empty",
		"a[1-3":           "has a bracket that is not closed",
		"a[3-1]":          `has "3-1" in brackets`,
		"a[x]":            `has "x" in brackets`,
		"a[1-999999999]":  "has more than 131072 nodes",
		"a[0-999][0-999]": "has more than 131072 nodes",
		"a1,a1":           "has a1 twice",
		"a,,b":            `has "", which names no host`,
	} {
		nodes, err := Nodelist(text)
		got := strings.Join(nodes, " ")
		if err != nil {
			got = err.Error()
		}
		if got != want && (err == nil || !strings.HasPrefix(got, want)) {
			t.Errorf("%q: %s; want %s", text, got, want)
		}
	}
	for text, want := range map[string]int{"": 0, "1(x4)": 1, "2(x3),1": 2, "1,8(x2)": 8, "x": -1, "2(x": -1, "2(x3": -1} {
		got, err := TasksPerNode(text)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
}
