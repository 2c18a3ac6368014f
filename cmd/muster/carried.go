//go:build bundle && !full

package main

import _ "embed"

// carried is the full build of this program, as package packed has it. It is never in this directory: the Makefile lays it over (-overlay).
//
//go:embed full.gz
var carried string
