package main

import (
	"fmt"
	"math"
	"slices"
)

func mean(all []float64) (sum float64) {
	for _, x := range all {
		sum += x / float64(len(all))
	}
	return sum
}

func median(all []float64) float64 { return quantile(all, 0.5) }

func quartile(all []float64) float64 { return quantile(all, 0.25) }

func quantile(all []float64, part float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[int(part*float64(len(all)))]
}

// interval is the mean of what plays say and between which two it is with 95 %, if plays differ as chance does. It goes by Student's
// t: of five plays the bootstrap, which draws from no others, says too little.
func interval(plays []float64, unit float64, format, name string) string {
	m, off := mean(plays), spread(plays)
	return fmt.Sprintf(format+" %s ("+format+" to "+format+", n %d)", m*unit, name, (m-off)*unit, (m+off)*unit, len(plays))
}

// spread is how far from the mean of plays that of all others is, with 95 %.
func spread(plays []float64) float64 {
	m, squares, n := mean(plays), 0.0, len(plays)
	if n < 2 {
		return math.Inf(1) // one play says nothing of others
	}
	for _, x := range plays {
		squares += (x - m) * (x - m)
	}
	return student[min(n-2, len(student)-1)] * math.Sqrt(squares/float64(n-1)/float64(n))
}

// student is how many standard errors are 95 %, by degrees of freedom, from 1.
var student = []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086}
