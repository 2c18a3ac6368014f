package witness

import "unsafe"

var oneByte [1]byte

// unsafePointer is a place of one byte, for system calls that are made without the runtime.
func unsafePointer() unsafe.Pointer { return unsafe.Pointer(&oneByte) }
