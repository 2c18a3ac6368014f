"""One step with DDP: parameters that differ at first are the same on all ranks before it and after."""
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
assert n == int(os.environ["WORLD_SIZE"]) == 4 and rank == int(os.environ["RANK"]), (rank, n)

torch.manual_seed(rank)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
before = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
model(torch.full((2, 8), float(rank + 1))).square().mean().backward()
optimizer.step()

mine = torch.cat([p.detach().flatten() for p in model.parameters()])
assert not torch.equal(mine, before)
everyone = [torch.empty_like(mine) for _ in range(n)]
dist.all_gather(everyone, mine)
assert all(torch.equal(one, mine) for one in everyone)
print(f"rank {rank} of {n}: equal parameters {mine.sum().item():.6f}", flush=True)
dist.destroy_process_group()
