//go:build !bundle && !full

package main

const carried = "" // without make
