#!/bin/sh
# The agent of node 0, which leads, is killed: another one takes over, and tells all of what comes later.
#
# code: 5
# class: failed
# rank: 1
# exit: 5
# says: rank 1 on
# says: exited with code 5
[ $RANK = 1 ] || exec sleep 1000
exe=$(readlink /proc/$PPID/exe)
agents() {
	for p in $(cat /proc/$PPID/task/*/children); do
		[ "$(readlink /proc/$p/exe)" != "$exe" ] || echo $p
	done
}
old=$(agents)
kill -KILL $old
while [ -z "$(agents)" ] || [ "$(agents)" = "$old" ]; do sleep 0.01; done
exit 5
