"""Steps in bf16 with gradients accumulated over two batches each, as accelerate's own examples have it."""
import os

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=2)
rank, n = accelerator.process_index, accelerator.num_processes
assert n == int(os.environ["WORLD_SIZE"]) == 4 and rank == int(os.environ["RANK"]), (rank, n)

torch.manual_seed(rank)  # parameters that differ, until they are prepared
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x = torch.arange(64.0).reshape(16, 4) / 64
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
assert isinstance(model, torch.nn.parallel.DistributedDataParallel), type(model)
before = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
for inputs, targets in loader:
    with accelerator.accumulate(model):
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()

mine = torch.cat([p.detach().flatten() for p in model.parameters()])
assert not torch.equal(mine, before)
everyone = accelerator.gather(mine.unsqueeze(0))
assert everyone.shape[0] == n and (everyone == mine).all(), everyone
print(f"rank {rank} of {n}: equal parameters {mine.sum().item():.6f}", flush=True)
accelerator.end_training()
