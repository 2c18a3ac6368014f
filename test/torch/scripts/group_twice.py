"""Makes the default group, ends it and, after a pause, makes it again, as notebooks and test suites do.

group_twice.py WORLD_SIZE
"""
import sys
import time

import torch
import torch.distributed as dist

for _ in range(2):
    dist.init_process_group("gloo")
    assert dist.get_world_size() == int(sys.argv[1]), dist.get_world_size()
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == int(sys.argv[1]), x
    dist.destroy_process_group()
    time.sleep(0.3)  # without a pause it is a race even where rank 0 hosts: another rank may find the old store still open
