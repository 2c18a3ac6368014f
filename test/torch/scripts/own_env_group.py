"""Sets MASTER_ADDR and MASTER_PORT itself before it makes the default group, as PyTorch's DDP tutorial does.

own_env_group.py WORLD_SIZE PORT
"""
import os
import sys

import torch
import torch.distributed as dist

size = int(sys.argv[1])
os.environ["MASTER_ADDR"] = "localhost"
os.environ["MASTER_PORT"] = sys.argv[2]
dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=size)
assert dist.get_world_size() == size, dist.get_world_size()
x = torch.ones(1)
dist.all_reduce(x)
assert x.item() == size, x
dist.destroy_process_group()
