"""A node is wanted during training: all ranks agree on the step, write a checkpoint and end."""
# code: 143
# class: preempted
# python: debian
# says: node 1 (
# says: ) was told to stop by SIGTERM; exit 143
# after: grep -qx "rank 0" checkpoint-0 && grep -qx "rank 1" checkpoint-1 && grep -qx "rank 2" checkpoint-2 && grep -qx "rank 3" checkpoint-3
# after: cat checkpoint-* | grep step | sort -u | wc -l | grep -qx 1
import os
import signal

import torch
import torch.distributed as dist

wanted = torch.zeros(1)


def preempt(*_):
    wanted[0] = 1


signal.signal(signal.SIGTERM, preempt)
dist.init_process_group("gloo")
rank = dist.get_rank()
weights = torch.zeros(10)
for step in range(1_000_000):
    if rank == 3 and step == 5:
        os.kill(os.getppid(), signal.SIGTERM)  # as a kubelet does
    gradient, stop = torch.full((10,), float(rank)), wanted.clone()
    dist.all_reduce(gradient)
    dist.all_reduce(stop)
    weights += gradient
    if stop:
        break
with open(f"{os.environ['SHARED']}/checkpoint-{rank}", "w") as f:
    print(f"rank {rank}\nstep {step}\n{weights.tolist()}", file=f)
