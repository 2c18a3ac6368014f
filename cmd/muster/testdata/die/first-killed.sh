#!/bin/sh
# The first process of node 1 is killed, and with it all that it owned.
#
# code: 138
# class: lost
# gone: 1
# gone code: -1
# gone says: the first process on node 1 (
# says: the first process on node 1 (
# says: ) was killed, and its workers with it; exit 138
[ $RANK = 2 ] || exec sleep 1000
kill -KILL $PPID
sleep 1000
