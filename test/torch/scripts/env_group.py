"""Makes the default group from the environment, as nearly every training script does, and sums over it.

env_group.py WORLD_SIZE
"""
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
assert dist.get_world_size() == int(sys.argv[1]), dist.get_world_size()
x = torch.ones(1)
dist.all_reduce(x)
assert x.item() == int(sys.argv[1]), x
dist.destroy_process_group()
