#!/bin/sh
# A worker dies of SIGQUIT, which nobody of muster sent.
#
# code: 116
# class: killed
# rank: 2
# signal: SIGQUIT
# kind: signal
# says: was killed by SIGQUIT
# says: somebody asked it for a core dump
[ $RANK = 2 ] || exec sleep 1000
kill -QUIT $$
