#!/bin/sh
# The program cannot be started on node 1: its interpreter is no program.
#
# code: 126
# class: not-started
# rank: 2
# exit: 126
# around: [ $NODE = 0 ] || sed -i '1s,.*,#!/etc/passwd,' forbidden.sh; exec "$@"
# says: could not be started:
exec sleep 1000
