#!/bin/sh
# A worker dies of SIGILL, which nobody of muster sent.
#
# code: 117
# class: killed
# rank: 2
# signal: SIGILL
# kind: signal
# says: was killed by SIGILL
# says: it ran an instruction that this CPU does not have
[ $RANK = 2 ] || exec sleep 1000
kill -ILL $$
