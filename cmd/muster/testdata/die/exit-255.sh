#!/bin/sh
# A worker exits with 255, which an operator that retries from 128 on shall not see.
#
# code: 1
# class: failed
# rank: 1
# exit: 255
# says: exited with code 255; all 2 nodes stopped; exit 1
[ $RANK = 1 ] || exec sleep 1000
exit 255
