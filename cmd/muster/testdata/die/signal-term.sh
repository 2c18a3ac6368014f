#!/bin/sh
# A worker dies of SIGTERM, which nobody of muster sent.
#
# code: 143
# class: killed
# rank: 2
# signal: SIGTERM
# kind: signal
# says: was killed by SIGTERM
# says: , which muster did not send; somebody asked it to stop
[ $RANK = 2 ] || exec sleep 1000
kill -TERM $$
