#!/bin/sh
# A worker forks a host of orphans and dies.
#
# code: 4
# class: failed
# rank: 2
# exit: 4
# says: exited with code 4; all 2 nodes stopped; exit 4
[ $RANK = 2 ] || exec sleep 1000
for i in $(seq 200); do
	(setsid sleep 1000 &)
done
exit 4
