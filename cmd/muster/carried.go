//go:build bundle && !full

package main

import _ "embed"

// carried is the full build of this program, packed with gzip.
//
//go:embed full.gz
var carried string
