"""Steps of ZeRO stage 1 on the CPU, each rank with data of its own."""
import os

import deepspeed
import torch

deepspeed.init_distributed("gloo")
dist = torch.distributed
rank, n = dist.get_rank(), dist.get_world_size()
assert n == int(os.environ["WORLD_SIZE"]) == 4 and rank == int(os.environ["RANK"]), (rank, n)

torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
engine, *_ = deepspeed.initialize(
    model=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
    config={
        "train_micro_batch_size_per_gpu": 2,
        "train_batch_size": 8,
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
    },
)
torch.manual_seed(rank)
before = torch.cat([p.detach().flatten().clone() for p in engine.module.parameters()])
for _ in range(3):
    engine.backward(engine(torch.randn(2, 4)).pow(2).mean())
    engine.step()

mine = torch.cat([p.detach().flatten() for p in engine.module.parameters()])
assert not torch.equal(mine, before)
everyone = [torch.empty_like(mine) for _ in range(n)]
dist.all_gather(everyone, mine)
assert all(torch.equal(mine, other) for other in everyone), everyone
print(f"rank {rank} of {n}: equal parameters {mine.sum().item():.6f}", flush=True)
