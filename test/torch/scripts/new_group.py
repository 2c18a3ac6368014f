"""Makes groups inside the default group and meets in every kind of barrier that goes through the store.

new_group.py WORLD_SIZE
"""
import inspect
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
assert size == int(sys.argv[1]), size

halves = [dist.new_group(list(range(0, size, 2))), dist.new_group(list(range(1, size, 2)))]
mine = halves[rank % 2]
x = torch.ones(1)
dist.all_reduce(x, group=mine)
assert x.item() == dist.get_world_size(mine) == (size + 1 - rank % 2) // 2, x

dist.monitored_barrier(timeout=timedelta(seconds=60))
dist.barrier()

store = dist.PrefixStore("of/the/user", c10d._get_default_store())
store.set(f"rank{rank}", f"hello from {rank}")
for r in range(size):
    assert store.get(f"rank{r}") == f"hello from {r}".encode()
if "group_name" in inspect.signature(c10d._store_based_barrier).parameters:
    c10d._store_based_barrier(rank, store, "barrier", size, timedelta(seconds=60))
else:
    c10d._store_based_barrier(rank, store, timedelta(seconds=60))
dist.barrier()
dist.destroy_process_group()
