#!/bin/sh
# A worker fails on a node that is 100 ms away from the leader; 20 ms later one fails beside the leader, for no reason
# that muster could know to be a consequence.
#
# code: 5
# class: failed
# rank: 2
# exit: 5
# delay: 100ms
# says: exited with code 5; all 2 nodes stopped; exit 5
case $RANK in
2)	echo $$ >"$SHARED/pid.new"; mv "$SHARED/pid.new" "$SHARED/pid"; exit 5 ;;
0)	until [ -e "$SHARED/pid" ] && ! kill -0 $(cat "$SHARED/pid") 2>/dev/null; do sleep 0.02; done; sleep 0.02; exit 9 ;;
esac
exec sleep 1000
