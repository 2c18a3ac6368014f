"""One rank fails, and takes long to end: its peers notice that it is gone, end before it does, and it is stopped on their account."""
# code: 1
# class: failed
# rank: 1
# exit: 1
# python: debian newest
# exception: ValueError: bad sample 4711
# says: exited with code 1: ValueError: bad sample 4711; all 2 nodes stopped; exit 1
import atexit
import os
import time

import torch
import torch.distributed as dist


def upload():
    time.sleep(5)  # as what tells a server of the failure may; the peers wait in a collective
    dist.destroy_process_group()
    time.sleep(1000)


dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(1000):
    dist.all_reduce(torch.ones(1000))
    if rank == 1 and step == 3:
        atexit.register(upload)
        raise ValueError("bad sample 4711")
