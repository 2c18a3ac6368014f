#!/bin/sh
# A worker dies of SIGKILL, which nobody of muster sent.
#
# code: 137
# class: killed
# rank: 2
# signal: SIGKILL
# kind: killed
# says: was killed by SIGKILL
# says: , which muster did not send; its container counts no kill for want of memory
[ $RANK = 2 ] || exec sleep 1000
kill -KILL $$
