#!/bin/sh
# A worker dies of SIGABRT, which nobody of muster sent.
#
# code: 119
# class: killed
# rank: 2
# signal: SIGABRT
# kind: signal
# says: was killed by SIGABRT
# says: a library in it gave up
[ $RANK = 2 ] || exec sleep 1000
kill -ABRT $$
