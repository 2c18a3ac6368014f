"""Makes the default group, and then the last rank fails where it is the job's first attempt.

fail_group.py WORLD_SIZE
"""
import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
size = dist.get_world_size()
assert size == int(sys.argv[1]), size
x = torch.ones(1)
dist.all_reduce(x)
assert x.item() == size, x
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == size - 1:
    sys.exit(3)
