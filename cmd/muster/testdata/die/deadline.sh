#!/bin/sh
# The job takes longer than it may; the workers save what they have.
#
# code: 72
# class: late
# flags: --deadline 10
# says: the job has not ended within 10s (--deadline, on
# after: test -e saved-0 && test -e saved-1 && test -e saved-2 && test -e saved-3
trap 'echo >"$SHARED/saved-$RANK"; exit 0' TERM
while :; do sleep 0.05; done
