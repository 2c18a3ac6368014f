"""A training in small, gloo on CPU, one rank of which ends well before its first step, while the others wait for it.

leave.py init|group [--rank R]

init: rank R returns before it has joined the others. group: it has, and returns before another group is made, for which connections
are made anew; those of the first group nobody looks at meanwhile.
"""
import argparse
import os
import sys

import torch
import torch.distributed as dist

options = argparse.ArgumentParser()
options.add_argument("before", choices=["init", "group"])
options.add_argument("--rank", type=int, default=0)
args = options.parse_args()


def leave(before):
    if args.before == before and args.rank == int(os.environ["RANK"]):
        print("now leave", flush=True)
        sys.exit()


leave("init")
dist.init_process_group("gloo")
leave("group")
dist.all_reduce(torch.ones(4), group=dist.new_group())
