"""Opens a TCPStore at MASTER_ADDR:MASTER_PORT, hosted by rank 0, without any group.

master_store.py WORLD_SIZE
"""
import os
import sys

import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
assert size == int(sys.argv[1]), size
build = {"use_libuv": False} if os.environ.get("USE_LIBUV") == "0" else {}  # Debian builds without libuv
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size, rank == 0, **build)
store.set(f"rank{rank}", str(rank))
assert [store.get(f"rank{r}") for r in range(size)] == [str(r).encode() for r in range(size)]
if store.add("left", 1) < size and rank == 0:  # the host leaves last
    store.set("hosting", "until all have left")
    while store.add("left", 0) < size:
        pass
