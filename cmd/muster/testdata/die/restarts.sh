#!/bin/sh
# A worker fails in every round, until no restart is left.
#
# code: 7
# class: failed
# rank: 2
# exit: 7
# flags: --max-restarts 2
# says: exited with code 7; all 2 nodes stopped, after 2 restarts; exit 7
[ $RANK = 2 ] || exec sleep 1000
exit 7
