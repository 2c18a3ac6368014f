#!/bin/sh
# The agent of node 0, which leads, is killed.
#
# code: 138
# class: lost
# gone: 0
# gone code: 138
# gone says: the agent died (signal 9); workers were stopped
# says: node 0 (
# says: ) was lost:
[ $RANK = 1 ] || exec sleep 1000
exe=$(readlink /proc/$PPID/exe)
for p in $(cat /proc/$PPID/task/*/children); do
	[ "$(readlink /proc/$p/exe)" != "$exe" ] || kill -KILL $p
done
sleep 1000
