#!/bin/sh
# A worker exits with code 3.
#
# code: 3
# class: failed
# rank: 2
# exit: 3
# says: exited with code 3; all 2 nodes stopped; exit 3
[ $RANK = 2 ] || exec sleep 1000
exit 3
