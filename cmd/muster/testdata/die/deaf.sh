#!/bin/sh
# A worker fails, and the others do not listen to TERM.
#
# code: 3
# class: failed
# rank: 3
# exit: 3
# flags: --stop-timeout 1
# says: exited with code 3; all 2 nodes stopped; exit 3
trap '' TERM
echo >"$SHARED/deaf-$RANK"
[ $RANK = 3 ] || while :; do sleep 0.1; done
until [ -e "$SHARED/deaf-0" ] && [ -e "$SHARED/deaf-1" ] && [ -e "$SHARED/deaf-2" ]; do sleep 0.02; done
exit 3
