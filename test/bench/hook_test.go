package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
)

// What a step takes more than those beside it is found while the machine gets slower and slower, as it does when others use it; of the same and the
// same nothing is found.
func TestWithin(t *testing.T) {
	for _, more := range []float64{0, 0.02} {
		in, lines := io.Pipe()
		answers, out := io.Pipe()
		go func() {
			defer out.Close()
			speed, all := 1e6, bufio.NewScanner(in)
			for all.Scan() {
				var times, used []string
				for _, letter := range all.Text() {
					step := speed
					if letter == 'w' {
						step *= 1 + more
					}
					times, used = append(times, fmt.Sprint(int(step))), append(used, "1")
					speed *= 1.001
				}
				fmt.Fprintln(out, strings.Join(append(times, used...), " "))
			}
		}()
		one := &training{ranks: []trainee{{in: lines, out: bufio.NewReader(answers)}}}
		var with, none []float64
		if err := one.within(0, &with, &none, ratio); err != nil {
			t.Fatal(err)
		}
		lines.Close()
		if math.Abs(with[0]-math.Log(1+more)) > 1.6e-3 || math.Abs(none[0]) > 2.1e-3 {
			t.Errorf("%v more is seen as %v, and none as %v", more, with, none)
		}
	}
}

func TestInterval(t *testing.T) {
	for want, plays := range map[string][]float64{
		"+3.0 % (+1.0 to +5.0, n 5)":   {1, 2, 3, 4, 5},
		"+2.0 % (-10.7 to +14.7, n 2)": {1, 3},
		"+2.0 % (-Inf to +Inf, n 1)":   {2},
	} {
		if got := interval(plays, 1, "%+.1f", "%"); got != want {
			t.Errorf("%v: %s, want %s", plays, got, want)
		}
	}
}
