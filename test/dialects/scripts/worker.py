#!/usr/bin/env python3
"""Writes what a worker sees of its launcher, one JSON file per rank, in $DUMPS."""
import json
import os
import sys

with open("/proc/self/numa_maps") as f:
    policy = f.readline().split()[1]  # of its memory: default, bind:0, prefer:0
name = os.environ.get("RANK", "alone")
with open(os.path.join(os.environ["DUMPS"], name + ".json"), "w") as f:
    json.dump({"argv": sys.argv, "env": dict(os.environ), "dir": os.getcwd(), "cores": sorted(os.sched_getaffinity(0)), "policy": policy}, f)
