"""Starts one process in each worker, and those make a group of their own: another port, else the worker's environment.

child_group.py WORLD_SIZE PORT
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def child(_, size, port):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = port
    dist.init_process_group("gloo")
    assert dist.get_world_size() == size, dist.get_world_size()
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == size, x
    dist.destroy_process_group()


if __name__ == "__main__":
    size, port = int(sys.argv[1]), sys.argv[2]
    dist.init_process_group("gloo")
    assert dist.get_world_size() == size, dist.get_world_size()
    mp.spawn(child, args=(size, port), nprocs=1)
    dist.barrier()
    dist.destroy_process_group()
