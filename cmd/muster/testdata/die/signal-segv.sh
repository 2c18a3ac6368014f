#!/bin/sh
# A worker dies of SIGSEGV, which nobody of muster sent.
#
# code: 122
# class: killed
# rank: 2
# signal: SIGSEGV
# kind: signal
# says: was killed by SIGSEGV
# says: native code touched memory that is not there
[ $RANK = 2 ] || exec sleep 1000
kill -SEGV $$
