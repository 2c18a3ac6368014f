"""Makes the default group at tcp://MASTER_ADDR:MASTER_PORT, spelled out as older code does.

tcp_master_group.py WORLD_SIZE
"""
import os
import sys

import torch
import torch.distributed as dist

address = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
dist.init_process_group("gloo", init_method=address, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
assert dist.get_world_size() == int(sys.argv[1]), dist.get_world_size()
x = torch.ones(1)
dist.all_reduce(x)
assert x.item() == int(sys.argv[1]), x
dist.destroy_process_group()
