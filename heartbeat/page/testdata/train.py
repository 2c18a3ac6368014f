# A small real training: ranks, 1 thread each, of which the last one is late at step 8. Its page is read meanwhile.
import os
import sys
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)
kind = sys.argv[1]
dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(32, 32))
if kind == "ddp":
    model = torch.nn.parallel.DistributedDataParallel(model)
elif kind == "fsdp":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
elif kind == "fsdp1":
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
other = 1 - dist.get_rank()


def exchange(way):
    """Sends to the other rank and receives from it, as stages of a pipeline do."""
    out, back = torch.ones(8), torch.empty(8)
    if way == "batch":
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, out, other), dist.P2POp(dist.irecv, back, other)]):
            work.wait()
        return
    for do, x in ((dist.send, out), (dist.recv, back)) if other else ((dist.recv, back), (dist.send, out)):
        do(x, other)


optimizer = torch.optim.SGD(model.parameters(), 0.1)
late = dist.get_rank() == dist.get_world_size() - 1
for step in range(16):
    if step == 8 and late:
        sys.stdin.readline()
    if kind in ("pipe", "batch"):
        exchange(kind)
    model(torch.randn(8, 32)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("done", flush=True)
sys.stdin.readline()
