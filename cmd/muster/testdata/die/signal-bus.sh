#!/bin/sh
# A worker dies of SIGBUS, which nobody of muster sent.
#
# code: 120
# class: killed
# rank: 2
# signal: SIGBUS
# kind: signal
# says: was killed by SIGBUS
# says: memory of a mapped file could not be provided
[ $RANK = 2 ] || exec sleep 1000
kill -BUS $$
