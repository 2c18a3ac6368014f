// Package lazy keeps patterns that are compiled when they are first needed: most starts of the program need none.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp compiles expr at its first use; one that cannot be compiled panics then.
func Regexp(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
