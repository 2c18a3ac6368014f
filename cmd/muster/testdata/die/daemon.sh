#!/bin/sh
# A worker ends well and leaves a daemon behind: two forks, a session and an environment of its own.
#
# code: 0
# class: succeeded
# says: all workers of all 2 nodes ended well
# after: ! kill -0 $(cat pid-0 pid-1 pid-2 pid-3) 2>/dev/null
(env -i setsid sh -c 'sleep 1000 >/dev/null 2>&1 & echo $! >"$0/pid-$1"' "$SHARED" $RANK)
