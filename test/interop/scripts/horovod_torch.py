"""Steps with Horovod's DistributedOptimizer: parameters that differ at first are the same on all ranks. Its controller is gloo, and it starts twice."""
import os

import horovod.torch as hvd
import torch

for again in range(2):
    outer = hvd.ProcessSet([0, 3])
    hvd.init(process_sets=[outer])
    rank, n = hvd.rank(), hvd.size()
    assert n == int(os.environ["WORLD_SIZE"]) == 4 and rank == int(os.environ["RANK"]), (rank, n)
    assert hvd.local_size() == 2 and hvd.local_rank() == int(os.environ["LOCAL_RANK"]), (hvd.local_rank(), hvd.local_size())
    assert hvd.cross_size() == 2 and hvd.cross_rank() == rank // 2, (hvd.cross_rank(), hvd.cross_size())
    if not again:
        hvd.shutdown()

torch.manual_seed(rank)
model = torch.nn.Linear(8, 4)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
before = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
for _ in range(2):
    optimizer.zero_grad()
    model(torch.full((2, 8), float(rank + 1))).square().mean().backward()
    optimizer.step()

mine = torch.cat([p.detach().flatten() for p in model.parameters()])
assert not torch.equal(mine, before)
everyone = hvd.allgather(mine.unsqueeze(0))
assert everyone.shape[0] == n and all(torch.equal(one, mine) for one in everyone), everyone
if rank in outer.ranks:
    assert hvd.allreduce(torch.tensor(float(rank)), op=hvd.Sum, process_set=outer).item() == 3
hvd.barrier()  # who shuts down takes the others along
print(f"rank {rank} of {n}: equal parameters {mine.sum().item():.6f}", flush=True)
hvd.shutdown()
