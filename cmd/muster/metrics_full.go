//go:build full

package main

import (
	"net/http"

	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/report/metrics"
)

// metricsOpener is what answers scrapes in this build, which has all that it takes.
func metricsOpener() (func(func() report.Status, func() report.Counts) http.Handler, error) {
	return metrics.Handler, nil
}
