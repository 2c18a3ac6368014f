#!/bin/sh
# The agent of node 1 is killed, and whoever takes over, again and again: its first process stops the workers, and the
# other node knows.
#
# code: 138
# class: lost
# gone: 1
# gone code: 138
# gone says: the agent died (signal 9), as did the 5 before it; workers were stopped
# says: node 1 (
# says: ) was lost:
[ $RANK = 2 ] || exec sleep 1000
exe=$(readlink /proc/$PPID/exe)
agents() {
	for p in $(cat /proc/$PPID/task/*/children); do
		[ "$(readlink /proc/$p/exe)" != "$exe" ] || echo $p
	done
}
while :; do
	kill -KILL $(agents) 2>/dev/null
	sleep 0.01
done
