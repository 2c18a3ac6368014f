package output

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-run/muster/proc"
)

func TestExpression(t *testing.T) {
	for text, want := range map[string]string{
		`step (\d+)`:                "",
		`it[`:                       "missing closing ]",
		`(\d+)?`:                    "matches every line",
		``:                          "matches every line",
		`a\b(?=c)`:                  "re2",
		strings.Repeat("x", 1<<20):  "the expression has 1048576 bytes, and may have 1024",
		strings.Repeat("x{99}", 50): "",
		"(((x{999}){999}){999}){9}": "invalid repeat count",
	} {
		var e Expression
		if err := e.Set(text); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || (e == "") != (err != nil) {
			t.Errorf("%.80q: %v, want %q", text, err, want)
		}
	}
}

// Lines are found however they come; what is too long, too much, or not wanted is not looked at.
func TestScanner(t *testing.T) {
	flood := strings.Repeat(strings.Repeat("x", 999)+"\n", 3000)
	for _, c := range []struct {
		name, in      string
		matches, step uint64
	}{
		{"nothing", "", 0, 0},
		{"lines", "step 1\nloss 3\nstep 2 loss 4\r\n", 2, 2},
		{"a line that is not complete", "step 1\nstep 2", 1, 1},
		{"a bar", "\rstep 1\rstep 2\rstep 3\n", 3, 3},
		{"no number that can be one", "step 99999999999999999999999\nstep 7\nstep 99999999999999999999999\n", 3, 7},
		{"a long line, at its beginning", "step 8 " + strings.Repeat("y", 300<<10) + "\n", 1, 8},
		{"a long line, at its end", strings.Repeat("y", 300<<10) + "step 9\nstep 10\n", 1, 10},
		{"bytes", "\xff\x00step 3\xfe\n", 1, 3},
		{"a flood", flood + "step 4\n", 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			for _, size := range []int{1, 7, 128 << 10} {
				if len(c.in) > 1<<18 && size < 1000 {
					continue
				}
				r := &rhythm{progress: regexp.MustCompile(`step (\d+)`)}
				s := scanner{rhythm: r}
				for in := c.in; in != ""; in = in[min(size, len(in)):] {
					s.see([]byte(in[:min(size, len(in))]))
				}
				if got := r.read(true); got != (Rhythm{uint64(len(c.in)), c.matches, c.step}) {
					t.Errorf("%s, by %d bytes: %+v", c.name, size, got)
				}
				if cap(s.line) > 2*lookLine {
					t.Errorf("%s: %d bytes are kept", c.name, cap(s.line))
				}
				time.Sleep(time.Second) // later it is looked again
				s.see([]byte("\nstep 5\n"))
				if got := r.read(false); got.Step != 5 {
					t.Errorf("%s, later: %+v", c.name, got)
				}
				s.see([]byte("step 6\n"))
				if got := r.read(false); got.Step != 5 {
					t.Errorf("%s, not wanted: %+v", c.name, got)
				}
			}
		})
	}
}

// What a process writes to both its streams is counted, and comes through as it is.
func TestCarrierRhythm(t *testing.T) {
	out, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c := NewConsole(out, out, Style{})
	var read, write [2]*os.File
	for i := range read {
		if read[i], write[i], err = os.Pipe(); err != nil {
			t.Fatal(err)
		}
	}
	k := c.Carry(proc.Lines{Bare: true, Shown: [2]bool{true, true}, Progress: `^step (\d+)`}, read)
	for i, w := range write {
		if _, err := w.WriteString([]string{"step 3\n", "no step\n"}[i]); err != nil {
			t.Fatal(err)
		}
		w.Close()
	}
	k.Close()
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := k.Rhythm(true); got != (Rhythm{15, 1, 3}) {
		t.Errorf("%+v", got)
	}
	if text, err := os.ReadFile(out.Name()); err != nil || len(text) != 15 {
		t.Errorf("%q, %v", text, err)
	}
}

// BenchmarkScanner is what a look at lines costs, where there are more than are looked at.
func BenchmarkScanner(b *testing.B) {
	text := []byte(strings.Repeat("[2026-11-22 01:02:03] epoch 1 iteration 2 loss 0.123456 lr 0.001\n", 2000))
	for name, expression := range map[string]string{"none": "", "step": `iteration (\d+)/`} {
		b.Run(name, func(b *testing.B) {
			r := &rhythm{}
			if expression != "" {
				r.progress = regexp.MustCompile(expression)
			}
			s := scanner{rhythm: r}
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				s.see(text)
			}
		})
	}
}
