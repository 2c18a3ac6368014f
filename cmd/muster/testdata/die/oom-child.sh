#!/bin/sh
# What a worker starts needs more memory than the container may have; the worker is a shell and says so by a code.
#
# code: 137
# class: oom
# rank: 3
# exit: 137
# kind: oom
# memory: 256 MiB
# says: the kernel killed a process of its container for want of memory (limit 256 MiB)
[ $RANK = 3 ] || exec sleep 1000
head -c 512m /dev/zero | tail >/dev/null
