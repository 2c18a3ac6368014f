"""Starts two processes in each worker, which are a world of two that has nothing to do with the job's.

child_world.py WORLD_SIZE PORT [PORT of the next rank...]
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def child(rank, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo")
    assert dist.get_world_size() == 2, dist.get_world_size()
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == 2, x
    dist.destroy_process_group()


if __name__ == "__main__":
    assert int(os.environ["WORLD_SIZE"]) == int(sys.argv[1])
    mp.start_processes(child, args=(sys.argv[2 + int(os.environ["RANK"])],), nprocs=2, start_method="fork")
