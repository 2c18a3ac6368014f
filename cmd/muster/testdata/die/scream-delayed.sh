#!/bin/sh
# As scream.py, but the agent of the culprit's node is 100 ms away from the leader: the screams are there first.
# The agent stands in a network namespace of its own; its workers come back, for they talk among themselves.
#
# code: 1
# class: failed
# rank: 2
# exit: 1
# python: debian
# delay: 100ms
# exception: ValueError: bad sample 4711
# says: exited with code 1 after it had caught ValueError: bad sample 4711; all 2 nodes stopped; exit 1
CULPRIT=2 exec nsenter --net="$OUTSIDE" "$PYTHON_EXEC" -u "$DIE/scream.py"
