"""A script raises an exception, without torch."""
# code: 1
# class: failed
# rank: 2
# exit: 1
# exception: ValueError: seed must not be negative, got -7
# says: exited with code 1: ValueError: seed must not be negative, got -7; all 2 nodes stopped; exit 1
import os
import time


def check(seed):
    if seed < 0:
        raise ValueError(f"seed must not be negative, got {seed}")


if os.environ["RANK"] == "2":
    check(-7)
time.sleep(1000)
