//go:build tools

// Package volcano names programs, so that their modules have sums.
package volcano

import (
	_ "volcano.sh/volcano/cmd/controller-manager"
	_ "volcano.sh/volcano/cmd/scheduler"
)
