// Package thread lends tests a thread of their own, to change what namespaces it is in.
package thread

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Own runs f on a thread that ends with it, so that nothing else ever runs where f left it.
func Own(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() != os.Getpid() {
			f()
			return
		}
		// The first thread does not end with a goroutine, and /proc/net and /proc/self/ns are its own. While this goroutine has it, another has none.
		Own(f)
		runtime.UnlockOSThread()
	}()
	<-done
}
