#!/bin/sh
# A worker dies of SIGHUP, which nobody of muster sent.
#
# code: 114
# class: killed
# rank: 2
# signal: SIGHUP
# kind: signal
# says: was killed by SIGHUP
# says: its terminal or session was closed
[ $RANK = 2 ] || exec sleep 1000
kill -HUP $$
