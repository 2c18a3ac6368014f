#!/bin/sh
# A worker dies of SIGFPE, which nobody of muster sent.
#
# code: 121
# class: killed
# rank: 2
# signal: SIGFPE
# kind: signal
# says: was killed by SIGFPE
# says: native code divided by zero
[ $RANK = 2 ] || exec sleep 1000
kill -FPE $$
