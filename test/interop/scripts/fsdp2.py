"""One step with FSDP2: each rank holds a part of the parameters; gathered, they are the same on all."""
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
assert n == int(os.environ["WORLD_SIZE"]) == 4 and rank == int(os.environ["RANK"]), (rank, n)

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
mesh = init_device_mesh("cpu", (n,))
for layer in model:
    if isinstance(layer, torch.nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def whole():
    return torch.cat([p.full_tensor().detach().flatten().clone() for p in model.parameters()])


assert all(p.to_local().numel() < p.numel() for p in model.parameters())
before = whole()
model(torch.full((2, 8), float(rank + 1))).square().mean().backward()
optimizer.step()
mine = whole()
assert not torch.equal(mine, before)
everyone = [torch.empty_like(mine) for _ in range(n)]
dist.all_gather(everyone, mine)
assert all(torch.equal(one, mine) for one in everyone)
print(f"rank {rank} of {n}: equal parameters {mine.sum().item():.6f}", flush=True)
dist.destroy_process_group()
