#!/bin/sh
# The program cannot be started on node 1: its interpreter is not there.
#
# code: 127
# class: not-started
# rank: 2
# exit: 127
# around: [ $NODE = 0 ] || sed -i '1s,.*,#!/opt/conda/bin/sh,' missing.sh; exec "$@"
# says: could not be started:
# says: /opt/conda/bin/sh
exec sleep 1000
