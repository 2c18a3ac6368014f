#!/bin/sh
# A worker dies of SIGINT, which nobody of muster sent.
#
# code: 115
# class: killed
# rank: 2
# signal: SIGINT
# kind: signal
# says: was killed by SIGINT
# says: somebody interrupted it
[ $RANK = 2 ] || exec sleep 1000
kill -INT $$
