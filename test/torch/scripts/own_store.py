"""Opens a TCPStore of its own, hosted by rank 0, beside the default group.

own_store.py WORLD_SIZE PORT
"""
import os
import sys

import torch.distributed as dist

size, port = int(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo")
rank = dist.get_rank()
assert dist.get_world_size() == size, dist.get_world_size()
build = {"use_libuv": False} if os.environ.get("USE_LIBUV") == "0" else {}  # Debian builds without libuv
store = dist.TCPStore("127.0.0.1", port, size, rank == 0, **build)
store.set(f"rank{rank}", str(rank))
assert [store.get(f"rank{r}") for r in range(size)] == [str(r).encode() for r in range(size)]
dist.barrier()
dist.destroy_process_group()
