#!/bin/sh
# A worker dies of SIGTRAP, which nobody of muster sent.
#
# code: 118
# class: killed
# rank: 2
# signal: SIGTRAP
# kind: signal
# says: was killed by SIGTRAP
# says: it hit a breakpoint or an assertion of its runtime
[ $RANK = 2 ] || exec sleep 1000
kill -TRAP $$
