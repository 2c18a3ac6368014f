#!/bin/sh
# A worker exits with code 1.
#
# code: 1
# class: failed
# rank: 2
# exit: 1
# says: exited with code 1; all 2 nodes stopped; exit 1
[ $RANK = 2 ] || exec sleep 1000
exit 1
