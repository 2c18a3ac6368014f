package framework

import (
	"os"
	"strings"
	"testing"
)

// What Python 3.11 prints of an exception group, and of one that holds another.
const (
	oneGroup = `  + Exception Group Traceback (most recent call last):
  |   File "<string>", line 1, in <module>
  | ExceptionGroup: several (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: a
    +---------------- 2 ----------------
    | TypeError: b
    +------------------------------------`
	groupInGroup = `Traceback (most recent call last):
  File "<string>", line 2, in f
ValueError: x

The above exception was the direct cause of the following exception:

  + Exception Group Traceback (most recent call last):
  |   File "<string>", line 5, in <module>
step: 7
  | ExceptionGroup: outer (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ExceptionGroup: in (1 sub-exception)
    +-+---------------- 1 ----------------
      | Traceback (most recent call last):
      |   File "<string>", line 3, in <module>
      | ValueError: x
      +------------------------------------
    +---------------- 2 ----------------
    | KeyError: 'k'
    +------------------------------------`
)

func TestTraceback(t *testing.T) {
	for text, want := range map[string]string{
		"":                     "",
		"ValueError: no frame": "",
		"Traceback (most recent call last):\n  File \"x\", line 1\n    f()\nValueError: bad\nbye":            "ValueError: bad",
		"Traceback (most recent call last):\nargv ['a: b']\n  a\nstep 3\nValueError: mixed":                  "ValueError: mixed",
		"[rank1]: Traceback (most recent call last):\n[rank1]:   File \"x\"\n[rank1]: ValueError: bad batch": "ValueError: bad batch",
		"Traceback (most recent call last):\n  a\nKeyError: 'x'\n\nDuring handling of the above exception, another exception occurred:\n\n" +
			"Traceback (most recent call last):\n  b\nRuntimeError: y": "RuntimeError: y",
		"Traceback (most recent call last):\n  File \"x\"\nKeyError: Caught KeyError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  File \"y\"\n    f()\nKeyError: 'bad-sample-26'\n": "KeyError: 'bad-sample-26'",
		"  File \"/job/train.py\", line 9\n    print((1\n         ^\nSyntaxError: '(' was never closed":                                                                                                                "SyntaxError: '(' was never closed",
		oneGroup:     "ExceptionGroup: several (2 sub-exceptions): ValueError: a",
		groupInGroup: "ExceptionGroup: outer (2 sub-exceptions): ValueError: x",
		groupInGroup + "\n" + "Traceback (most recent call last):\n  b\nRuntimeError: y": "RuntimeError: y",
		"[rank1]: " + strings.ReplaceAll(oneGroup, "\n", "\n[rank1]: "):                  "ExceptionGroup: several (2 sub-exceptions): ValueError: a",
	} {
		if got := traceback(strings.Split(text, "\n")); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// What torch's @record writes, and what some plugins write instead.
func TestRecorded(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		`{"message": {"message": "ValueError: bad", "extraInfo": {"timestamp": "1"}}}`: "ValueError: bad",
		`{"message": "plain", "timestamp": 1}`:                                         "plain",
		`{"message": 7}`:                                                               "",
		`no json`:                                                                      "",
	} {
		err := os.MkdirAll(dir+"/0", 0o755)
		if err == nil {
			err = os.WriteFile(dir+"/0/error.json", []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := torch.Exception(dir, 0, nil); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
