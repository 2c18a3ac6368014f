"""One rank fails quietly in the midst of training; the others scream that a peer is gone, rank 0 the loudest."""
# code: 1
# class: failed
# rank: 1
# exit: 1
# python: debian newest
# exception: ValueError: bad sample 4711
# says: exited with code 1 after it had caught ValueError: bad sample 4711; all 2 nodes stopped; exit 1
import os
import sys
import traceback

import torch
import torch.distributed as dist

culprit = int(os.environ.get("CULPRIT", "1"))
dist.init_process_group("gloo")
rank = dist.get_rank()
try:
    for step in range(1000):
        dist.all_reduce(torch.ones(1000))
        if rank == culprit and step == 3:
            raise ValueError("bad sample 4711")
except ValueError:
    traceback.print_exc()
    os._exit(1)  # for gloo's threads, which still run, may abort an orderly end
except RuntimeError:
    if rank == 0:
        print("FATAL ERROR: all is lost\n" * 300, file=sys.stderr)
    raise
