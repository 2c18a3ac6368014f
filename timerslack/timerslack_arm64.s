#include "go_asm.h"
#include "textflag.h"

#define PRCTL 167 // include/uapi/asm-generic/unistd.h
#define SET 29    // PR_SET_TIMERSLACK, include/uapi/linux/prctl.h
#define GET 30    // PR_GET_TIMERSLACK

// func begin()
// The kernel jumps here, with the arguments at RSP. There is no stack frame, and none is needed.
TEXT ·begin(SB), NOSPLIT|NOFRAME, $0
	MOVD $PRCTL, R8
	MOVD $GET, R0
	SVC
	MOVD R0, ·came(SB)
	CMP  $1, R0
	BLT  runtime
	MOVD $const_Slack, R1
	CMP  R1, R0
	BGE  runtime
	MOVD $PRCTL, R8
	MOVD $SET, R0
	SVC

runtime:
	JMP _rt0_arm64_linux(SB)
