package hang

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// figures are how long it took until a hang was suspected and found.
type figures struct {
	mu   sync.Mutex
	rows []*row
}

type row struct {
	book                 *figures
	scene, torch         string
	suspected, confirmed time.Duration
	said                 string
}

func (f *figures) row(scene, torch string) *row { return &row{book: f, scene: scene, torch: torch} }

func (r *row) set(suspected, confirmed time.Duration, said string) {
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	r.suspected, r.confirmed, r.said = suspected, confirmed, said
	r.book.rows = append(r.book.rows, r)
}

func (f *figures) String() string {
	var text strings.Builder
	for _, r := range f.rows {
		fmt.Fprintf(&text, "%-12s %-14s suspected %5.1f s, found %5.1f s: %s\n", r.scene, r.torch, r.suspected.Seconds(), r.confirmed.Seconds(), r.said)
	}
	return text.String()
}
