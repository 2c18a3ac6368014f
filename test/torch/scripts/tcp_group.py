"""Makes the default group at an address of the script's own.

tcp_group.py WORLD_SIZE PORT
"""
import os
import sys

import torch
import torch.distributed as dist

size, port = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=int(os.environ["RANK"]), world_size=size)
assert dist.get_world_size() == size
x = torch.ones(1)
dist.all_reduce(x)
assert x.item() == size, x
dist.destroy_process_group()
