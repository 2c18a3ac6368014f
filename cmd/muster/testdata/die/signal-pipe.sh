#!/bin/sh
# A worker dies of SIGPIPE, which nobody of muster sent.
#
# code: 123
# class: killed
# rank: 2
# signal: SIGPIPE
# kind: signal
# says: was killed by SIGPIPE
# says: whoever read its output went away
[ $RANK = 2 ] || exec sleep 1000
kill -PIPE $$
