package output

import (
	"os"
	"testing"

	"github.com/muster-run/muster/proc"
)

// What workers write is counted by stream, wherever it goes; and what neither the console nor the log files took.
func TestCounts(t *testing.T) {
	for _, c := range []struct {
		name    string
		gone    bool   // nobody reads the console
		dir     string // of log files
		unshown uint64
		unfiled uint64
	}{
		{name: "all is well", dir: t.TempDir()},
		{name: "nobody reads", gone: true, dir: t.TempDir(), unshown: 3},
		{name: "no disk", dir: "/proc/none", unfiled: 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := os.Create(t.TempDir() + "/out")
			if err != nil {
				t.Fatal(err)
			}
			if c.gone {
				r, w, err := os.Pipe()
				if err != nil {
					t.Fatal(err)
				}
				r.Close()
				out = w
			}
			defer out.Close()
			console := NewConsole(out, out, Style{})
			for _, writes := range [][2]string{{"a\nbc\n", "d\n"}, {"", "no newline"}} { // two workers, one after the other
				var read, write [2]*os.File
				for i := range read {
					if read[i], write[i], err = os.Pipe(); err != nil {
						t.Fatal(err)
					}
					if _, err := write[i].WriteString(writes[i]); err != nil {
						t.Fatal(err)
					}
					write[i].Close()
				}
				lines := proc.Lines{Shown: [2]bool{true, true}, Filed: [2]bool{true, true}, Dir: c.dir}
				if writes[0] == "" {
					lines.Shown, lines.Filed = [2]bool{}, [2]bool{}
				}
				console.Carry(lines, read).Close()
			}
			_ = console.Close(t.Context())
			want := Counts{Bytes: [2]uint64{5, 12}, Lines: [2]uint64{2, 1}, Unshown: c.unshown, Unfiled: c.unfiled}
			if got := console.Counts(); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			if sum := console.Counts().Add(want); sum.Lines[0] != 4 || sum.Unshown != 2*c.unshown {
				t.Errorf("%+v", sum)
			}
		})
	}
}
