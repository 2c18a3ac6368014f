package job

import (
	"fmt"
	"strings"
	"time"
)

// A Straggler is a rank for which the others wait while training goes on.
type Straggler struct {
	Rank   int           `json:"rank"`
	Node   string        `json:"node,omitempty"`
	Lost   float64       `json:"lost,omitempty"`                  // share of all time in which others had entered more collectives than it; 0: not known
	Last   float64       `json:"last,omitempty"`                  // of all times at which any rank was behind the others, the share at which it was
	Step   time.Duration `json:"step,omitempty"`                  // how long a step takes; 0: not known
	Waits  float64       `json:"in_collectives,omitempty"`        // share of its time in collectives, and
	Others float64       `json:"others_in_collectives,omitempty"` // the median of all ranks; 0: not known
}

// String says it in words.
func (s Straggler) String() string {
	who := fmt.Sprintf("rank %d", s.Rank)
	if s.Node != "" {
		who += " (" + s.Node + ")"
	}
	var how []string
	if s.Lost > 0 {
		how = append(how, fmt.Sprintf("it comes last in %.0f %% of all cases, and is behind the others %.0f %% of the time%s", 100*s.Last, 100*s.Lost, s.each()))
	}
	if s.Others > 0 {
		how = append(how, fmt.Sprintf("it spends %.0f %% of its time in collectives, they %.0f %%", 100*s.Waits, 100*s.Others))
	}
	return fmt.Sprintf("the others wait for %s: %s", who, strings.Join(how, "; "))
}

// each is what it costs of a step.
func (s Straggler) each() string {
	if s.Step <= 0 {
		return ""
	}
	return fmt.Sprintf(", %s of each step of %s", figures(time.Duration(s.Lost*float64(s.Step))), figures(s.Step))
}

// figures is a length of time in two or three figures.
func figures(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f ms", d.Seconds()*1000)
}
