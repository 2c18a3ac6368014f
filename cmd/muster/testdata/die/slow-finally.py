"""One rank fails, and what handles its exception takes a while, its connections closed: its peers end before it does, and TERM would end it without a word."""
# code: 1
# class: failed
# rank: 1
# exit: 1
# python: debian newest
# exception: ValueError: bad sample 4711
# says: exited with code 1: ValueError: bad sample 4711; all 2 nodes stopped; exit 1
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
try:
    for step in range(1000):
        dist.all_reduce(torch.ones(1000))
        if rank == 1 and step == 3:
            raise ValueError("bad sample 4711")
finally:
    dist.destroy_process_group()
    if rank == 1:
        time.sleep(2)  # as what tells a server of the failure may
