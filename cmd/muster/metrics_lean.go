//go:build !full

package main

import (
	"net/http"

	"github.com/muster-run/muster/report"
)

// metricsOpener is what answers scrapes: the full build, which takes the place of this process. It returns if that cannot be.
func metricsOpener() (func(func() report.Status, func() report.Counts) http.Handler, error) {
	return nil, grow(carried, "metrics")
}
