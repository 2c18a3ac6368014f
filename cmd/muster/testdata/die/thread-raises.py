"""A thread ends with an exception, of which Python tells; nobody has caught it, and the main thread ends with a code for that."""
# code: 1
# class: failed
# rank: 1
# exit: 1
# python: debian
# exception: ValueError: bad shard 12
# says: exited with code 1 after a thread of it had ended with ValueError: bad shard 12; all 2 nodes stopped; exit 1
import sys
import threading

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


def load():
    raise ValueError("bad shard 12")


for step in range(1000):
    dist.all_reduce(torch.ones(1000))
    if rank == 1 and step == 3:
        loader = threading.Thread(target=load)
        loader.start()
        loader.join()
        sys.exit(1)
