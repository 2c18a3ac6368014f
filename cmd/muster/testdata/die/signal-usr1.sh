#!/bin/sh
# A worker dies of SIGUSR1, which nobody of muster sent.
#
# code: 124
# class: killed
# rank: 2
# signal: SIGUSR1
# kind: signal
# says: was killed by SIGUSR1
# says: it got SIGUSR1 and has no handler for it
[ $RANK = 2 ] || exec sleep 1000
kill -USR1 $$
