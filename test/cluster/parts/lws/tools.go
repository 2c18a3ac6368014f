//go:build tools

// Package lws names programs, so that their modules have sums.
package lws

import (
	_ "sigs.k8s.io/lws/cmd"
)
