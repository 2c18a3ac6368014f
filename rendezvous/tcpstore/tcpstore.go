// Package tcpstore speaks the protocol of PyTorch's c10d TCPStore, as server and as client.
package tcpstore

import "errors"

// ErrServerClosed is returned by Serve after Shutdown or Close.
var ErrServerClosed = errors.New("tcpstore: server closed")

// Legacy says how a server takes connections that open without the magic of PyTorch 2.2 and later. The numbers 0 to
// 6 mean the same in 1.13 and 2.1; from 7 on they differ.
type Legacy byte

const (
	// LegacyGuess tells 1.13 and 2.1 apart by what they send: 7 is 2.1's DELETE_KEY, 8 is 2.1's APPEND when a value
	// follows the key and 1.13's DELETE_KEY when nothing does.
	LegacyGuess Legacy = iota
	// LegacyA takes them as PyTorch 1.13 and 2.0. Only so does WATCH_KEY work, which 1.13 offers in C++ alone.
	LegacyA
	// LegacyB takes them as PyTorch 2.1.
	LegacyB
	// LegacyNone closes them.
	LegacyNone
)
