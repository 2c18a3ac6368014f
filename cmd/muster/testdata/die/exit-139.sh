#!/bin/sh
# A worker is a shell, and what it runs is killed by a signal.
#
# code: 122
# class: killed
# rank: 3
# exit: 139
# kind: signal
# says: exited with code 139 (a shell's word for SIGSEGV); native code touched memory that is not there; all 2 nodes stopped; exit 122
[ $RANK = 3 ] || exec sleep 1000
sh -c 'kill -SEGV $$'
