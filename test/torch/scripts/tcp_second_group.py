"""Makes a group at an address of the script's own beside the default group, as RLHF trainers do to reach their samplers.

tcp_second_group.py WORLD_SIZE PORT
"""
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

size, port = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo")
assert dist.get_world_size() == size, dist.get_world_size()
store, rank, n = next(dist.rendezvous(f"tcp://127.0.0.1:{port}", dist.get_rank(), size))
group = dist.ProcessGroupGloo(dist.PrefixStore("samplers", store), rank, n, timedelta(seconds=60))
x = torch.ones(1)
group.allreduce([x]).wait()
assert x.item() == size, x
dist.barrier()
dist.destroy_process_group()
