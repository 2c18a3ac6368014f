#include "go_asm.h"
#include "textflag.h"

#define PRCTL 157 // arch/x86/entry/syscalls/syscall_64.tbl
#define SET 29    // PR_SET_TIMERSLACK, include/uapi/linux/prctl.h
#define GET 30    // PR_GET_TIMERSLACK

// func begin()
// The kernel jumps here, with the arguments at SP (System V ABI, AMD64, 3.4.1). There is no stack frame, and none is needed.
TEXT ·begin(SB), NOSPLIT|NOFRAME, $0
	MOVQ $PRCTL, AX
	MOVQ $GET, DI
	SYSCALL
	MOVQ AX, ·came(SB)
	CMPQ AX, $1
	JLT  runtime
	CMPQ AX, $const_Slack
	JGE  runtime
	MOVQ $PRCTL, AX
	MOVQ $SET, DI
	MOVQ $const_Slack, SI
	SYSCALL

runtime:
	JMP _rt0_amd64_linux(SB)
